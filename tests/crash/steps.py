"""The steps by which an operation changes the disk, as moments to die or to fail at."""

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from functools import partial

from tests.crash.forked import in_child

Step = Callable[[str, str], None]

_CHANGES = {
    *("os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"),
    "shutil.copyfile",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# What comes between them is one step for the disk.
_STATEMENTS = ("BEGIN", "COMMIT", "VACUUM", "PRAGMA wal_checkpoint")


def watch(step):
    """Call `step` before each change of the disk, for the rest of this process.

    It gets the kind and the subject of the change: ``open`` for writing, ``fsync``, names created,
    renamed and removed with their paths, and ``sql`` with the statements that begin or end a
    transaction. If `step` raises, the change fails with that error, except for SQLite's.
    """

    def hook(event, arguments):
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str) and flags & _WRITING and not path.startswith("/dev"):
                step("open", path)
        elif event in _CHANGES:
            step(event, str(arguments[0]))

    def opened(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_trace_callback(statement)
        return connection

    def statement(text):
        if text.startswith(_STATEMENTS):
            step("sql", text)

    def flush(descriptor):
        step("fsync", str(descriptor))
        fsync(descriptor)

    connect, sqlite3.connect = sqlite3.connect, opened
    fsync, os.fsync = os.fsync, flush
    sys.addaudithook(hook)


def told_of_steps(perform):
    """The steps of an operation, in words."""
    seen = []
    watch(lambda kind, subject: seen.append(f"{kind} {subject}"))
    perform()
    return seen


def killed_before_step(perform, number):
    """Kill this process before the step with that number, counted from 0, or at the end."""
    met = 0

    def step(kind, subject):
        nonlocal met
        met += 1
        if met > number:
            os.kill(os.getpid(), signal.SIGKILL)

    watch(step)
    perform()
    os.kill(os.getpid(), signal.SIGKILL)


def killed_copies(template, place, perform, every=1):
    """Copies of a folder: as `perform` leaves it, then as it does if killed before each step.

    Only `every` so many steps are taken, and the last.
    """
    whole = shutil.copytree(template, place / "whole")
    status, told = in_child(lambda: told_of_steps(lambda: perform(whole)))
    assert (status, len(told) > 20) == (0, True), told
    yield whole
    for number in [*range(0, len(told), every), len(told)]:
        folder = shutil.copytree(template, place / f"killed{number}")
        status, said = in_child(partial(killed_before_step, partial(perform, folder), number))
        assert status == -signal.SIGKILL, said
        yield folder
        shutil.rmtree(folder)
