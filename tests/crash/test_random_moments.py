"""Killed at two hundred random moments while it changes, merges and rebuilds, nothing is lost."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from answers import contents
from forked import in_child
from structured import SWEPT, before, make
from workload import Contents, Operation

from indexes.folder.verify import verify
from retriever.index import Index

pytestmark = pytest.mark.usefixtures("hash_encoder")

MOMENTS = 200
# Each writes a segment or rows of its own, so that what an index holds tells how far it came.
RUN = [SWEPT[kind] for kind in ("add", "rebuild", "delete", "compact")] + [
    Operation("delete", gone=tuple(f"d{i}" for i in range(60))),
    Operation("recreate", {"d1": ("onlyd1v3 word1", 3), "d2": ("onlyd2v3 word2", 3)}),
]
AFTERWARDS = Operation("add", {"d999": ("onlyd999v9 word9", 9)})


def states() -> list[Contents]:
    """What the index may hold, in order; operations that change no document leave none."""
    found = [before()]
    for operation in RUN:
        found += [state for state in operation.steps(found[-1]) if state != found[-1]]
    return found


def perform(folder: Path) -> None:
    for operation in RUN:
        operation.perform(folder)


@pytest.mark.soak
def test_killed_at_random_moments(hash_encoder: None, tmp_path: Path) -> None:
    chance = random.Random(11)
    template, allowed = tmp_path / "template" / "index", states()
    make(template)
    # Imported here once, libraries take no time in the processes that are killed.
    shutil.copytree(template.parent, tmp_path / "first")
    perform(tmp_path / "first" / "index")
    shutil.copytree(template.parent, tmp_path / "whole")
    began = time.monotonic()
    assert in_child(lambda: perform(tmp_path / "whole" / "index")) == (0, None)
    whole = time.monotonic() - began
    met = []
    for number in range(MOMENTS):
        folder = tmp_path / str(number) / "index"
        shutil.copytree(template.parent, folder.parent)
        in_child(lambda at=folder: perform(at), chance.uniform(0, whole))
        assert verify(folder) == []
        with Index.open(folder) as index:
            held = contents(index)
            met.append(allowed.index(held))
        AFTERWARDS.perform(folder)
        with Index.open(folder) as index:
            assert contents(index) == {**held, **AFTERWARDS.put}
        shutil.rmtree(folder.parent)
    # They were met in every operation that changes documents, and most of them not at the end.
    assert set(met) == set(range(len(allowed)))
    assert met.count(len(allowed) - 1) < MOMENTS / 2
