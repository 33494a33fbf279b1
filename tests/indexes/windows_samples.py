"""Windows on another system: a module `msvcrt`, and files that cannot be removed while open."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from types import SimpleNamespace

from indexes import platforms


class FakeMsvcrt:
    """Locks of byte ranges as `msvcrt.locking` takes them: at the position, never twice.

    Attributes:
        calls: mode, position and length of each call.
    """

    LK_UNLCK, LK_LOCK, LK_NBLCK = range(3)

    def __init__(self):
        self._locked_ranges = {}
        self.calls = []

    def locking(self, descriptor, mode, size):
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        self.calls.append((mode, start, size))
        status = os.fstat(descriptor)
        place = (status.st_dev, status.st_ino, start, size)
        if mode == self.LK_UNLCK:
            if self._locked_ranges.get(place) != descriptor:
                raise PermissionError(errno.EACCES, "Permission denied")
            del self._locked_ranges[place]
            return
        assert mode == self.LK_NBLCK, "waiting would take ten seconds"
        if any(_overlap(place, other) for other in self._locked_ranges):
            raise PermissionError(errno.EACCES, "Permission denied")
        self._locked_ranges[place] = descriptor


def _overlap(first, second):
    *first_file, first_start, first_size = first
    *second_file, second_start, second_size = second
    is_before = first_start + first_size <= second_start
    is_after = second_start + second_size <= first_start
    return first_file == second_file and not is_before and not is_after


def pretend_windows(monkeypatch):
    """Let `indexes.platforms` take its branches for Windows; return the module of locks."""
    msvcrt = FakeMsvcrt()
    monkeypatch.setattr(platforms, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setitem(__import__("sys").modules, "msvcrt", msvcrt)
    return msvcrt


def sharing_violation(path):
    """Return the error of Windows for a file that another program has open."""
    error = PermissionError(errno.EACCES, "The process cannot access the file", str(path))
    error.winerror = 32
    return error


@contextmanager
def open_elsewhere(monkeypatch, *names):
    """Refuse to remove files with these names, as if a program had them open."""
    unlink = os.unlink

    def refuse(path, **options):
        if os.path.basename(path) in names:
            raise sharing_violation(path)
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        yield
