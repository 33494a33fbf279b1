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


def record_steps(perform):
    """Perform an operation and return the kind and subject of each of its steps."""
    step_names = []
    watch(lambda kind, subject: step_names.append(f"{kind} {subject}"))
    perform()
    return step_names


def kill_before_step(perform, number):
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


def yield_killed_copies(template, place, perform, every=1):
    """Yield copies of a folder: after `perform`, then after a kill before each step.

    Only every `every`-th step is killed, and the end of the operation.
    """
    whole = shutil.copytree(template, place / "whole")
    status, step_names = in_child(lambda: record_steps(lambda: perform(whole)))
    assert (status, len(step_names) > 20) == (0, True), step_names
    yield whole
    for number in [*range(0, len(step_names), every), len(step_names)]:
        folder = shutil.copytree(template, place / f"killed{number}")
        status, error = in_child(partial(kill_before_step, partial(perform, folder), number))
        assert status == -signal.SIGKILL, error
        yield folder
        shutil.rmtree(folder)
