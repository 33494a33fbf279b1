"""The branches for Windows, on the system of the test, and names that Windows refuses."""

import ctypes
import multiprocessing
import os
import re
import signal
import stat
import struct
import sys
from contextlib import closing
from pathlib import PurePath

import pytest
from filelock import Timeout

from indexes import platforms
from indexes.errors import IndexLockedError, StorageError
from indexes.files import remove_abandoned, storage_errors, whole_files, whole_folder
from indexes.folder.lock import LOCK_FILE, remove_index, writer_lock
from indexes.folder.segment import SEGMENTS_FOLDER
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter
from indexes.platforms import ByteLock
from retriever.index import Index
from tests.crash import workload
from tests.crash.conftest import crash_encoder  # noqa: F401 (a fixture)
from tests.crash.forked import in_child
from tests.crash.steps import record_steps
from tests.indexes.index_samples import document, make_index, texts
from tests.indexes.windows_samples import open_elsewhere, pretend_windows, sharing_violation

REFUSED_CHARACTERS = re.compile(r'[<>:"\\|?*\x00-\x1f]')
REFUSED_NAMES = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
DENIED = sharing_violation("old")


@pytest.fixture
def msvcrt(monkeypatch):
    return pretend_windows(monkeypatch)


def test_byte_locks_of_one_file_exclude_each_other_until_released(tmp_path, msvcrt):
    path = tmp_path / "lock"
    path.write_text("holder")
    first, second = ByteLock(path), ByteLock(path)
    first.acquire(0, 0.01)
    with pytest.raises(Timeout):
        second.acquire(0.03, 0.01)
    ByteLock(tmp_path / "other").acquire(0, 0.01)
    first.release()
    first.release()
    second.acquire(0, 0.01)
    second.release()


def test_byte_lock_leaves_the_content_of_its_file_to_everybody(tmp_path, msvcrt):
    path = tmp_path / "lock"
    lock = ByteLock(path)
    lock.acquire(0, 0.01)
    path.write_text("process 1")
    lock.release()
    assert path.read_text() == "process 1"
    (locked, unlocked) = msvcrt.calls
    # A locked byte within the file would be closed to programs that read it.
    assert locked[1] == unlocked[1] > 2**20
    assert locked[1] < 2**31


def test_byte_lock_that_fails_leaves_no_file_open(tmp_path, msvcrt, monkeypatch):
    def refuse(*_):
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(msvcrt, "locking", refuse)
    descriptors = set(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="Bad file"):
        ByteLock(tmp_path / "lock").acquire(0, 0.01)
    assert set(os.listdir("/dev/fd")) == descriptors


def test_second_writer_on_windows_is_told_who_holds_the_index(tmp_path, msvcrt):
    folder = make_index(tmp_path / "index", [document("a", "apple")])
    with writer_lock(folder):
        assert str(os.getpid()) in (folder / LOCK_FILE).read_text()
        with pytest.raises(IndexLockedError, match=f"process {os.getpid()}"), writer_lock(folder):
            pytest.fail("two writers")
    with writer_lock(folder):
        pass


def test_workload_on_windows_gives_sound_indexes(tmp_path, crash_encoder, msvcrt):  # noqa: F811
    folder = tmp_path / "index"
    documents = {}
    for operation in (*workload.LIFE, *workload.SWEPT.values()):
        operation.perform(folder)
        documents = operation.steps(documents)[-1]
        assert verify(folder) == []
        with Index.open(folder) as index:
            assert workload.contents(index) == documents
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert msvcrt.calls
    remove_index(folder)
    assert not folder.exists()


def test_whole_files_and_folders_are_written_on_windows(tmp_path, msvcrt):
    with whole_files(tmp_path / "a") as (new,):
        new.write_text("a")
    (tmp_path / "folder").mkdir()
    with whole_folder(tmp_path / "folder", replace=False) as new:
        (new / "b").write_text("b")
    with whole_folder(tmp_path / "folder") as new:
        (new / "c").write_text("c")
    remove_abandoned(tmp_path / "a")
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert names == ["a", "folder", "folder/c"]


def test_windows_flushes_files_open_for_writing_and_no_folder(tmp_path, msvcrt, monkeypatch):
    flushed = []
    (tmp_path / "file").write_text("")

    def flush(descriptor):
        os.write(descriptor, b"x")
        flushed.append(os.fstat(descriptor).st_mode)

    monkeypatch.setattr(os, "fsync", flush)
    platforms.fsync_path(tmp_path)
    platforms.fsync_path(tmp_path / "file")
    assert list(map(stat.S_ISREG, flushed)) == [True]


def test_rename_of_an_open_file_is_repeated_until_it_is_closed(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("content")
    replace, failures = os.replace, [DENIED, DENIED]

    def refuse(source, target):
        if failures:
            raise failures.pop()
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    platforms.replace_file(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new").read_text() == "content"


def test_rename_of_a_file_that_stays_open_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(platforms, "_PATIENCE_SECONDS", 0.05)

    def refuse(*_):
        raise DENIED

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(StorageError, match="close the programs"), storage_errors(tmp_path):
        platforms.move_folder(tmp_path / "old", tmp_path / "new")


def test_rename_that_fails_for_another_reason_is_not_repeated(tmp_path):
    with pytest.raises(FileNotFoundError):
        platforms.replace_file(tmp_path / "none", tmp_path / "new")


def test_folder_takes_the_place_of_an_empty_folder_on_windows(tmp_path, msvcrt, monkeypatch):
    for name in ("old", "new", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "file").write_text("")
    rename = os.rename

    def refuse_existing(source, target):
        if target.exists():
            raise FileExistsError(17, "exists", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse_existing)
    platforms.move_folder(tmp_path / "old", tmp_path / "new")
    with pytest.raises(OSError, match="not empty"):
        platforms.move_folder(tmp_path / "new", tmp_path / "full")
    assert sorted(os.listdir(tmp_path)) == ["full", "new"]


def test_segment_that_a_reader_has_mapped_stays_until_the_next_writer(tmp_path, monkeypatch):
    folder = make_index(tmp_path / "index", [document("a", "apple")], [document("b", "pear")])
    old_names = sorted(os.listdir(folder / SEGMENTS_FOLDER))
    with open_elsewhere(monkeypatch, "vectors.npy"), FolderWriter(folder) as writer:
        writer.compact()
    names = sorted(os.listdir(folder / SEGMENTS_FOLDER))
    assert names[: len(old_names)] == old_names
    assert os.listdir(folder / SEGMENTS_FOLDER / old_names[0]) == ["vectors.npy"]
    assert texts(folder) == {"a": "apple", "b": "pear"}
    with FolderWriter(folder):
        pass
    assert sorted(os.listdir(folder / SEGMENTS_FOLDER)) == names[len(old_names) :]


def test_erasure_fails_while_a_program_has_a_deleted_document_mapped(tmp_path, monkeypatch):
    folder = make_index(tmp_path / "index", [document("a", "apple")], [document("b", "pear")])
    with FolderWriter(folder) as writer:
        writer.delete(["a"])
        with (
            open_elsewhere(monkeypatch, "vectors.npy"),
            pytest.raises(StorageError, match="bytes of deleted documents are still in the index"),
        ):
            writer.compact(erase=True)
        writer.compact(erase=True)
    assert texts(folder) == {"b": "pear"}


def test_limits_of_posix_are_absent_on_windows(tmp_path, msvcrt):
    assert platforms.open_file_limit() is None
    assert not platforms.can_limit_programs()
    assert not platforms.exchange(tmp_path / "a", tmp_path / "b")
    assert platforms.grants_locks(tmp_path / "none")
    platforms.limit_memory(1)
    with platforms.time_limit(1e-6), platforms.block_interrupts():
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with pytest.raises(OSError, match="Windows"):
        platforms.open_without_links(str(tmp_path), [], "file", lambda _: None)


def compute_forever():
    """A call that waits would miss a signal that comes just before it."""
    while True:
        pass


def test_time_limit_interrupts_the_main_thread():
    with pytest.raises(TimeoutError), platforms.time_limit(0.05):
        compute_forever()


@pytest.mark.skipif(sys.platform != "linux", reason="the call is made on Linux alone")
def test_signal_stack_that_a_library_replaces_is_given_back():
    def signal_stack(address=0):
        """The address of the stack for signals; sets another one first, if given."""
        stack = struct.pack("PiP", address, 0, 1 << 16) if address else None
        current = ctypes.create_string_buffer(struct.calcsize("PiP"))
        assert ctypes.CDLL(None).sigaltstack(stack, None) == 0
        assert ctypes.CDLL(None).sigaltstack(None, current) == 0
        return struct.unpack("PiP", current)[0]

    memory = ctypes.create_string_buffer(1 << 16)
    before = signal_stack()
    with platforms.keep_signal_stack():
        assert signal_stack(ctypes.addressof(memory)) == ctypes.addressof(memory)
    assert signal_stack() == before


def test_services_end_on_ctrl_c_and_on_a_polite_kill():
    assert set(platforms.ending_signals()) == {signal.SIGINT, signal.SIGTERM}


def read_in_process(folder, connection):
    with closing(FolderReader(folder)):
        connection.send(texts(folder))


def test_spawned_process_reads_an_index_that_its_parent_reads(tmp_path):
    """Windows starts every process like this."""
    folder = make_index(tmp_path / "index", [document("a", "apple")])
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    with closing(FolderReader(folder)):
        process = context.Process(target=read_in_process, args=(folder, send))
        process.start()
        send.close()
        assert receive.recv() == {"a": "apple"}
        process.join()
    assert process.exitcode == 0


def test_operations_on_an_index_make_no_name_that_windows_refuses(tmp_path, crash_encoder):  # noqa: F811
    def work():
        for operation in (*workload.LIFE, *workload.SWEPT.values()):
            operation.perform(tmp_path / "my.index")

    status, steps = in_child(lambda: record_steps(work))
    assert status == 0, steps
    paths = {
        PurePath(step.partition(" ")[2])
        for step in steps
        if step.startswith(("open ", "os.")) and step.partition(" ")[2].startswith(str(tmp_path))
    }
    paths |= set(tmp_path.rglob("*"))
    names = {name for path in paths for name in path.relative_to(tmp_path).parts}
    # Hidden folders and temporary names are among them.
    assert any(name.startswith(".") for name in names)
    assert len(names) > 20
    for name in names:
        assert not REFUSED_CHARACTERS.search(name), name
        assert not REFUSED_NAMES.fullmatch(name), name
        assert not name.endswith((" ", ".")), name
    folders = {path.parent for path in tmp_path.rglob("*")}
    for folder in folders:
        lower = [path.name.lower() for path in folder.iterdir()]
        assert len(set(lower)) == len(lower), folder
