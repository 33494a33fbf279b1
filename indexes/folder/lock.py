"""The writer lock, and recovery from a replacement of a folder that a crash interrupted.

The system drops the lock when the process dies. A forked child does not inherit it.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexes import platforms
from indexes.errors import IndexLockedError, NotAnIndexError
from indexes.files import (
    LOCK_FILE,
    abandoned,
    aside_of,
    lockless,
    storage_errors,
)
from indexes.folder.connection import (
    DATABASE_FILE,
    OWN_FILES,
    foreign_files,
    refuse_links,
)
from indexes.platforms import NO_LOCKS, WriterLock, fsync_path, release_to_move

_POLL_SECONDS = 0.02


@contextmanager
def writer_lock(
    folder: Path, timeout: float = 0.0, what: str = "the index"
) -> Iterator[WriterLock]:
    """Hold the exclusive right to write to a folder, which messages call `what`."""
    # Imported here, since readers do not need it.
    from filelock import Timeout

    refuse_links(folder, *OWN_FILES)
    path = folder / LOCK_FILE
    deadline = time.monotonic() + timeout
    while True:
        identity_before = _identity(folder)
        lock = platforms.file_lock(path)
        with storage_errors(folder):
            remaining_seconds = max(0.0, deadline - time.monotonic())
            try:
                lock.acquire(timeout=remaining_seconds, poll_interval=_POLL_SECONDS)
            except Timeout:
                raise IndexLockedError(
                    f"{folder}: another writer holds {what}: {_describe_holder(path)}; "
                    "wait until it has finished"
                ) from None
            except (OSError, NotImplementedError) as error:
                # NotImplementedError: the system has no such locks.
                if getattr(error, "errno", errno.ENOSYS) not in NO_LOCKS:
                    raise
                _remove_unused(folder)
                raise lockless(folder) from error
        if _identity(folder) == identity_before:
            break
        # The folder was replaced meanwhile: this is the lock of the old folder.
        lock.release()
    facts = {
        "pid": os.getpid(),
        "host": platform.node(),
        "command": " ".join(sys.argv[:2]),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    try:
        with storage_errors(folder):
            path.write_text(json.dumps(facts), encoding="utf-8")
        yield lock
    finally:
        # Emptied, since the command may name erased content.
        with suppress(OSError):
            os.truncate(path, 0)
        lock.release()


def _remove_unused(folder: Path) -> None:
    """Remove a folder that was made for an index and holds only the lock file."""
    with suppress(OSError):
        if os.listdir(folder) == [LOCK_FILE]:
            os.unlink(folder / LOCK_FILE)
            os.rmdir(folder)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _describe_holder(path: Path) -> str:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        process = f"process {facts['pid']} on {facts['host']} ({facts['command']})"
        return f"{process} since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has just started"


def new_folder(current: Path) -> Path:
    """Return the folder of the new index that is to replace `current`."""
    return current.with_name(f".{current.name}.retriever-new")


def recover_replacement(current: Path) -> None:
    """Finish or undo a `replace_folder` that a crash interrupted; do nothing otherwise."""
    # The root of a disk has no name.
    if not current.name or not (aside := aside_of(current)).is_dir():
        return
    if not current.exists():
        if (aside / DATABASE_FILE).exists():
            # The replacing process holds the lock of the folder that it moved aside.
            with writer_lock(aside) as lock:
                if not current.exists():
                    release_to_move(lock)
                    platforms.move_folder(aside, current)
                    fsync_path(current.parent)
    # The user's own folder may have this name.
    elif not foreign_files(aside):
        with writer_lock(aside) as lock:
            release_to_move(lock)
            shutil.rmtree(aside, ignore_errors=True)


def remains(current: Path) -> dict[Path, str]:
    """Return files that interrupted commands left beside an index, each with its remedy."""
    remedies = {}
    if current.name:
        old = aside_of(current)
        new = new_folder(current)
        # A writer may remove it meanwhile, so its existence is checked again.
        if current.exists() and old.is_dir() and not foreign_files(old) and old.is_dir():
            remedies[old] = "left by a replacement; `retriever compact` removes it"
        if (new / DATABASE_FILE).exists():
            remedies[new] = (
                "an unfinished --recreate or reindex; run that command again to resume it, or "
                "remove the folder"
            )
        for path in abandoned(current.parent):
            remedies[path] = "left by an interrupted command; run that command again, or remove it"
    return remedies


def remove_index(folder: Path) -> None:
    """Remove an index folder with its content.

    Raises:
        NotAnIndexError: it is a link, or holds other files than those of an index.
        IndexLockedError: a process is writing to it.
    """
    is_own = (folder / DATABASE_FILE).is_file() and not foreign_files(folder)
    if folder.is_symlink() or not is_own:
        raise NotAnIndexError(f"{folder}: expected an index folder; nothing was removed")
    with writer_lock(folder) as lock, storage_errors(folder):
        release_to_move(lock)
        shutil.rmtree(folder)
