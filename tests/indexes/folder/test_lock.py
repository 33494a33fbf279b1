"""One writer at a time, and a lock that no dead process keeps."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from index_samples import SETTINGS, commit, document, make_index, texts

from indexes.errors import IndexLockedError
from indexes.folder.lock import LOCK_FILE, writer_lock
from indexes.folder.writer import FolderWriter

HOLD = """
import sys, time
from pathlib import Path
from indexes.folder.lock import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held_elsewhere(folder):
    """Another process holds the lock of `folder`."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_held_by_another_process_is_refused_with_its_pid_until_it_dies(tmp_path):
    folder = make_index(tmp_path / "index", [document("a", "apple")])
    with held_elsewhere(folder) as process:
        holder = f"process {process.pid} on {socket.gethostname()}"
        for writer in (writer_lock(folder), FolderWriter(folder), FolderWriter(folder, SETTINGS)):
            with pytest.raises(IndexLockedError, match=rf"^{folder}: .*{holder} .* since "), writer:
                pass
        assert texts(folder) == {"a": "apple"}
        process.send_signal(signal.SIGKILL)
        process.wait()
        with writer_lock(folder):
            assert str(os.getpid()) in (folder / LOCK_FILE).read_text()


def test_two_writers_of_one_process_exclude_each_other(tmp_path):
    folder = make_index(tmp_path / "index", [document("a", "apple")])
    with FolderWriter(folder) as first:
        with pytest.raises(IndexLockedError, match=f"process {os.getpid()}"), FolderWriter(folder):
            pass
        commit(first, document("b", "banana"))
    with pytest.raises(ZeroDivisionError), FolderWriter(folder):
        raise ZeroDivisionError
    with FolderWriter(folder) as second:
        commit(second, document("c", "cherry"))
    assert set(texts(folder)) == {"a", "b", "c"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff\xfe"])
def test_a_holder_that_has_not_signed_yet_is_named_as_such(tmp_path, content):
    with writer_lock(tmp_path):
        (tmp_path / LOCK_FILE).write_bytes(content)
        with (
            pytest.raises(IndexLockedError, match="a process that has just started"),
            writer_lock(tmp_path),
        ):
            pass


def test_the_lock_of_a_folder_replaced_meanwhile_is_not_taken_for_its_own(tmp_path, monkeypatch):
    folder, other = tmp_path / "index", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    opened, swaps = os.open, []

    def open_then_replace(*arguments, **options):
        descriptor = opened(*arguments, **options)
        if not swaps:
            swaps.append(folder.rename(tmp_path / "old"))
            other.rename(folder)
        return descriptor

    monkeypatch.setattr(os, "open", open_then_replace)
    with writer_lock(folder):
        monkeypatch.undo()
        with pytest.raises(IndexLockedError), writer_lock(folder):
            pass
        with writer_lock(tmp_path / "old"):
            pass
