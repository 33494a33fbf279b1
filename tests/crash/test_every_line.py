"""Killed or interrupted before any line of the storage layer, an index is intact and usable."""

import os
import shutil
import signal
import sys

import pytest
import workload
from answers import check_answers, contents
from forked import in_child
from workload import Operation

import indexes.bm25.postings
import indexes.files
import indexes.filters.columns
import indexes.folder.connection
import indexes.folder.documents
import indexes.folder.lock
import indexes.folder.segment
import indexes.folder.writer
import retriever.index.add
import retriever.index.recreation
from indexes.folder.connection import is_index
from indexes.folder.lock import recover_replacement
from indexes.folder.verify import verify
from retriever.index import Index

pytestmark = pytest.mark.usefixtures("hash_encoder")

DOCUMENTS = {f"d{i}": (f"onlyd{i}v1 word{i} word{i + 1}", 1) for i in range(4)}
CHANGED = {f"d{i}": (f"onlyd{i}v2 word{i} word{i + 2}", 2) for i in (1, 3, 5)}
SWEPT = {
    "create": ({}, Operation("add", DOCUMENTS)),
    "add": (DOCUMENTS, Operation("add", CHANGED)),
    "waiting": (DOCUMENTS, Operation("add", CHANGED)),
    "delete": (DOCUMENTS, Operation("delete", gone=("d0", "d2"))),
    "merge": (DOCUMENTS, Operation("delete", gone=("d0", "d1", "d2"))),
    "compact": (DOCUMENTS, Operation("compact")),
    "recreate": (DOCUMENTS, Operation("recreate", CHANGED)),
}
# Modules and not names of files: one that is moved fails here.
STORAGE = tuple(
    str(module.__file__)
    for module in (
        *(indexes.files, indexes.bm25.postings, indexes.filters.columns),
        *(indexes.folder.connection, indexes.folder.documents, indexes.folder.lock),
        *(indexes.folder.segment, indexes.folder.writer, retriever.index.recreation),
    )
)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def press_ctrl_c():
    raise KeyboardInterrupt


def traced(operation, folder, at, action, files=STORAGE):
    """Perform an operation in a forked process, with `action` before a line of these files.

    Returns:
        The exit status, and the number of lines that it ran, or -1 if Ctrl-C ended it.
    """
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines += 1
            if lines == at:
                action()
        return trace

    def perform():
        sys.settrace(trace)
        try:
            operation.perform(folder)
        except KeyboardInterrupt:
            return -1
        finally:
            sys.settrace(None)
        return lines

    return in_child(perform)


@pytest.mark.parametrize(
    ("kind", "exchange"),
    [
        ("add", True),
        *(
            pytest.param(kind, exchange, marks=pytest.mark.soak)
            for kind, exchange in [
                *((kind, True) for kind in SWEPT if kind != "add"),
                ("recreate", False),
            ]
        ),
    ],
)
def test_killed_at_every_so_many_lines_of_the_storage_layer(tmp_path, monkeypatch, kind, exchange):
    if not exchange:
        monkeypatch.setattr(indexes.files, "_exchange", lambda new, current: False)
    if kind != "waiting":
        monkeypatch.setattr(indexes.folder.writer, "PENDING_LIMIT", 0)
    before, operation = SWEPT[kind]
    after = operation.steps(before)[-1]
    template = tmp_path / "template"
    template.mkdir()
    if before:
        # Two segments, one with a deleted passage.
        first = dict(list(before.items())[:1])
        for operation_before in (
            Operation("add", first),
            Operation("add", {**before, "d9": ("gone", 1)}),
            Operation("delete", gone=("d9",)),
        ):
            operation_before.perform(template / "index")
    shutil.copytree(template, tmp_path / "whole")
    status, lines = traced(operation, tmp_path / "whole" / "index", -1, kill)
    assert status == 0
    assert lines > 100
    seen = []
    # Line by line at the end, where commits become visible and folders change places.
    last = 40 if kind == "recreate" else 15
    for dies_at in [*range(1, lines - last, lines // 12), *range(lines - last, lines)]:
        place = tmp_path / str(dies_at)
        shutil.copytree(template, place)
        folder = place / "index"
        assert traced(operation, folder, dies_at, kill)[0] == -signal.SIGKILL
        if not exchange:
            recover_replacement(folder)
        if is_index(folder):
            assert verify(folder) == []
            with Index.open(folder) as index:
                held = contents(index)
            assert held in ([before, after] if before else [{}, after])
            seen.append(held)
        else:
            assert not before
        operation.perform(folder)
        assert verify(folder) == []
        with Index.open(folder) as index:
            assert contents(index) == after
            check_answers(index, after, {**before, **after})
        assert [path.name for path in place.iterdir()] == ["index"]
        shutil.rmtree(place)
    # Both sides of the moment of commit were met.
    assert before in seen
    assert after in seen


@pytest.mark.soak
def test_interrupted_at_every_so_many_lines(tmp_path):
    """Ctrl-C keeps what was encoded; it never tears a commit."""
    files = (str(retriever.index.add.__file__), *STORAGE)
    changes = {f"d{i}": (f"onlyd{i}v2 word{i}", 2) for i in range(2 * workload.GROUP)}
    operation = Operation("stream", changes)
    # Of a window whose vectors are there, some documents may not have theirs yet.
    written = list(changes.items())
    states_ = [{**DOCUMENTS, **dict(written[:n])} for n in range(len(written) + 1)]
    template = tmp_path / "template"
    Operation("add", DOCUMENTS).perform(template)
    shutil.copytree(template, tmp_path / "whole")
    status, lines = traced(operation, tmp_path / "whole", -1, press_ctrl_c, files)
    assert status == 0
    seen = []
    for at in range(1, lines, lines // 50):
        folder = tmp_path / str(at)
        shutil.copytree(template, folder)
        assert traced(operation, folder, at, press_ctrl_c, files) == (0, -1), at
        assert verify(folder) == [], at
        with Index.open(folder) as index:
            held = contents(index)
            assert held in states_, at
            seen.append(states_.index(held))
            check_answers(index, held, {})
        operation.perform(folder)
        with Index.open(folder) as index:
            assert contents(index) == states_[-1]
        shutil.rmtree(folder)
    # What is encoded is kept, even where the commit itself was interrupted.
    assert seen == sorted(seen)
    assert {0, workload.GROUP, len(written)} <= set(seen)
