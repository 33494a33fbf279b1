"""Killed before any step that changes the disk, or interrupted anywhere, an index is usable.

Merging and rebuilding build FAISS structures here.
"""

import shutil
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import indexes.files
import indexes.platforms
import retriever.index.indexing.indexer
from indexes.folder.connection import is_index
from indexes.folder.lock import recover_replacement
from indexes.folder.verify import verify
from retriever.index import Index
from tests.crash import workload
from tests.crash.forked import in_child
from tests.crash.steps import kill_before_step, record_steps
from tests.crash.workload import (
    OLD,
    SWEPT,
    YOUNG,
    Operation,
    before,
    check_answers,
    contents,
    short,
)

pytestmark = pytest.mark.usefixtures("crash_encoder")

# The first starts without an index.
KILLED = {"create": Operation("add", YOUNG), **SWEPT}


def check(folder, allowed, other, *, is_new):
    """Assert that the index is sound, holds an allowed state and finds its documents.

    Returns its documents, then the number of segments with the index type, or None if it is new.
    """
    if is_new and {} in allowed and not is_index(folder):
        return {}, None
    assert verify(folder) == []
    with Index.open(folder) as index:
        documents = contents(index)
        assert documents in allowed
        if documents:
            sample = {id_: documents[id_] for id_ in sorted(documents)[::50]}
            dead = [
                text for id_, (text, _) in other.items() if documents.get(id_, ("",))[0] != text
            ]
            check_answers(index, sample, dead)
        facts = index.info()
    index_type = facts["structures"]["index_type"]
    # What is said of the structures and what they are changes in one step.
    kinds = {segment["structure"] for segment in facts["segments"]}
    assert kinds <= {index_type, "flat"}
    assert is_new or index_type in kinds
    return documents, None if is_new else (len(facts["segments"]), index_type)


# At every commit, and before every step or so many of them.
@pytest.mark.parametrize(
    ("kind", "exchange", "every"),
    [
        *(("small", True, 1), ("create", True, 4), ("delete", True, 2)),
        *(
            pytest.param(kind, True, 1, marks=pytest.mark.soak)
            for kind in KILLED
            if kind != "small"
        ),
        pytest.param("recreate", False, 1, marks=pytest.mark.soak),
    ],
)
def test_operation_killed_before_each_step_leaves_a_sound_index(
    template, tmp_path, monkeypatch, kind, exchange, every
):
    if not exchange:
        monkeypatch.setattr(indexes.platforms, "exchange", lambda new, current: False)
    operation, is_new = KILLED[kind], kind in ("create", "recreate")
    documents = {} if kind == "create" else before()
    allowed = operation.steps(documents)
    everything = {**OLD, **YOUNG, **operation.put}

    def copied(name):
        folder = tmp_path / str(name) / "index"
        folder.parent.mkdir()
        if documents:
            shutil.copytree(template, folder)
        return folder

    whole = copied("whole")
    status, step_names = in_child(partial(record_steps, partial(operation.perform, whole)))
    assert status == 0, step_names
    kinds = Counter(step.split()[0] for step in step_names)
    assert kinds["sql"] > 2, step_names
    assert kind in ("small", "delete", "where") or kinds["fsync"] > 8, step_names
    final = check(whole, allowed[-1:], everything, is_new=is_new)
    seen = []
    for number in range(len(step_names) + 1):
        if (
            number % every
            and "sql COMMIT" not in (*step_names, "sql COMMIT")[number - 1 : number + 1]
        ):
            continue
        folder = copied(number)
        perform = partial(operation.perform, folder)
        status, error = in_child(partial(kill_before_step, perform, number))
        assert status == -signal.SIGKILL, error
        recover_replacement(folder)
        seen.append(check(folder, allowed, everything, is_new=is_new))
        if len(seen) % 3 == 1 or number == len(step_names):
            assert in_child(perform) == (0, None)
            ended = check(folder, allowed[-1:], everything, is_new=is_new)
            # A merge that was interrupted is done by the run that follows. What that run adds
            # itself may be too little for one.
            if seen[-1][0] == final[0] or ended[1] is None:
                assert ended == final
            assert ended[0] == final[0]
            assert ended[1] is None or ended[1] in (final[1], (final[1][0] + 1, final[1][1]))
            with Index.open(folder) as index:
                live = {f"{segment['segment']:06d}" for segment in index.info()["segments"]}
            assert {path.name for path in (folder / "segments").iterdir()} == live
            assert [path.name for path in folder.parent.iterdir()] == ["index"]
        shutil.rmtree(folder.parent)
    # Both sides of each moment of commit were met: a merge at the end of an addition has its own.
    assert seen[0] == (
        (documents, None) if is_new else check(template, allowed, everything, is_new=False)
    )
    assert seen[-1] == final
    assert len({str(state) for state in seen}) == {"add": 3, "stream": 6}.get(kind, 2)


def interrupt(operation, folder, at):
    """Perform an operation in a forked process, with Ctrl-C before a line that handles an index.

    Returns the exit status, and the number of lines that it ran, or -1 if Ctrl-C ended it.
    """
    indexing = Path(retriever.index.indexing.indexer.__file__).parent
    modules = ("indexing.py", "commit_buffer.py", "encoding_queue.py", "document_changes.py")
    own_files = [str(indexing / name) for name in modules]
    storage = (str(Path(indexes.files.__file__).parent), *own_files)
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if not frame.f_code.co_filename.startswith(storage):
            return None
        if event == "line":
            lines += 1
            if lines == at:
                raise KeyboardInterrupt
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


@pytest.mark.soak
def test_ctrl_c_at_any_line_keeps_whole_commits(tmp_path):
    """Ctrl-C keeps encoded documents and never tears a commit."""
    old = short(range(4))
    operation = Operation("stream", short(range(2 * workload.GROUP), 2))
    # Of a window whose vectors are there, some documents may not have theirs yet.
    written = list(operation.put.items())
    states = [{**old, **dict(written[:n])} for n in range(len(written) + 1)]
    template = tmp_path / "template"
    Operation("add", old).perform(template)
    shutil.copytree(template, tmp_path / "whole")
    status, lines = interrupt(operation, tmp_path / "whole", -1)
    assert status == 0
    seen = []
    for at in range(1, lines, lines // 50):
        folder = tmp_path / str(at)
        shutil.copytree(template, folder)
        assert interrupt(operation, folder, at) == (0, -1), at
        assert verify(folder) == [], at
        with Index.open(folder) as index:
            documents = contents(index)
            assert documents in states, at
            seen.append(states.index(documents))
            check_answers(index, documents, [])
        operation.perform(folder)
        with Index.open(folder) as index:
            assert contents(index) == states[-1]
        shutil.rmtree(folder)
    # What is encoded is kept, even where the commit itself was interrupted.
    assert seen == sorted(seen)
    assert {0, workload.GROUP, len(written)} <= set(seen)
