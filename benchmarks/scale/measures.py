"""Measurements that a process makes of itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Seconds that a call takes, and what it returns."""
    started = time.perf_counter()
    found = call()
    return time.perf_counter() - started, found


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p95 in milliseconds."""
    p50, p95 = 1000 * np.percentile(seconds, [50, 95])
    return {"p50": float(p50), "p95": float(p95)}


def memory() -> dict[str, int]:
    """Bytes of this process: its own (`anonymous`), with mapped files (`resident`), the `peak`."""
    names = {"VmHWM": "peak", "VmRSS": "resident", "RssAnon": "anonymous"}
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in names:
            found[names[name]] = 1024 * int(value.split()[0])
    return found


class PeakMemory:
    """Peak of the private memory of this process during the block, in `bytes`.

    Sampled ten times a second. The system's own peak would include mapped files, whose memory it
    can reclaim.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            self.bytes = max(self.bytes, memory()["anonymous"])


def size_of(folder: Path) -> int:
    """Bytes of every file below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
