"""Killed before any step that changes the disk, an index is intact and usable.

Merging and rebuilding build FAISS structures here.
"""

import os
import shutil
import signal
from collections import Counter

import pytest
import steps
from answers import contents
from forked import in_child
from structured import OLD, SWEPT, YOUNG, before, check

from indexes.folder.verify import verify
from retriever.index import Index

pytestmark = pytest.mark.usefixtures("hash_encoder")


def told_of_steps(perform):
    seen = []
    steps.watch(lambda kind, subject: seen.append(f"{kind} {subject}"))
    perform()
    return seen


def killed_before_step(perform, number):
    met = 0

    def step(kind, subject):
        nonlocal met
        met += 1
        if met > number:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.watch(step)
    perform()
    step("end", "")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.soak] * (kind not in ("small", "delete")))
        for kind in SWEPT
    ],
)
def test_killed_before_each_step(template, tmp_path, kind):
    operation = SWEPT[kind]
    held = before()
    allowed = [held, operation.steps(held)[-1]]
    everything = {**OLD, **YOUNG, **operation.put}
    whole = tmp_path / "whole"
    shutil.copytree(template, whole)
    status, told = in_child(lambda: told_of_steps(lambda: operation.perform(whole)))
    assert status == 0, told
    kinds = Counter(step.split()[0] for step in told)
    assert kinds["sql"] > 2, told
    assert kind in ("small", "delete") or kinds["fsync"] > 8, told
    final = check(whole, allowed[-1:], everything)
    seen = []
    for number in range(len(told) + 1):
        folder = tmp_path / str(number) / "index"
        shutil.copytree(template, folder)

        def perform(folder=folder):
            operation.perform(folder)

        status, said = in_child(lambda at=number, do=perform: killed_before_step(do, at))
        assert status == -signal.SIGKILL, said
        seen.append(check(folder, allowed, everything))
        if number % 3 and number < len(told):
            shutil.rmtree(folder.parent)
            continue
        assert in_child(perform) == (0, None)
        assert verify(folder) == []
        with Index.open(folder) as index:
            assert contents(index) == final[0]
            # A merge that was interrupted is done by the run that follows.
            assert len(index.info()["segments"]) == final[1][0]
            live = {f"{segment['segment']:06d}" for segment in index.info()["segments"]}
        assert {path.name for path in (folder / "segments").iterdir()} == live
        assert [path.name for path in folder.parent.iterdir()] == ["index"]
        shutil.rmtree(folder.parent)
    # Both sides of each moment of commit were met: a merge at the end of an addition has its own.
    assert seen[0] == check(template, allowed, everything)
    assert seen[-1] == final
    assert len({str(state) for state in seen}) == (3 if kind == "add" else 2)
