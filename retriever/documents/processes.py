"""Processes that read dear or dangerous kinds of files, beside the encoder.

A process takes the bytes of a file and answers with what is in them, as a line of JSON. One that
takes too long, crashes or wants too much memory costs that file and no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from retriever.documents.kinds import Parsed, PassedOverError
from retriever.documents.outline import Mark
from retriever.errors import SourceError

# For one file.
SECONDS = 120.0
_MOST = 4
_MEMORY = 4 << 30
_KINDS = "retriever.documents.kinds"
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from retriever.documents.processes import serve; serve()"
)


class ReadingProcesses:
    """Reads files in processes, which are started when they are needed."""

    def __init__(self) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._threads = ThreadPoolExecutor(min(_MOST, cores or 1))
        self._idle: list[_Process] = []
        self._all: list[_Process] = []

    def read(self, reader: str, content: bytes) -> Future[Parsed]:
        """Begin to read bytes by `module:function` of `kinds`; the result may be SourceError."""
        return self._threads.submit(self._read, reader, content)

    def _read(self, reader: str, content: bytes) -> Parsed:
        # Both operations on the list are atomic.
        try:
            process = self._idle.pop()
        except IndexError:
            process = _Process()
            self._all.append(process)
        answer = process.ask(reader, content, SECONDS)
        self._idle.append(process)
        return answer

    def close(self) -> None:
        """End all processes; what they were reading is lost."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._all:
            process.end()
        self._threads.shutdown()
        for process in self._all:
            process.end()


class _Process:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, reader: str, content: bytes, seconds: float) -> Parsed:
        process = self._process or self._started()
        started = time.monotonic()
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        line = b""
        try:
            stdin.write(f"{reader} {len(content)}\n".encode())
            stdin.write(content)
            stdin.flush()
            line = stdout.readline()
        except (OSError, ValueError):
            # It ended before it had read all.
            pass
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            code = self.end()
            if time.monotonic() - started >= seconds:
                raise SourceError(f"not read within {seconds:,.0f} s; split or convert it")
            raise SourceError(f"the process that read it ended ({_how(code)}); the file is damaged")
        return _answer(json.loads(line))

    def _started(self) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[2])
        # -P: no module of the working folder takes the place of another.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-c", _START, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self._process

    def end(self) -> int:
        """Kill and forget the process."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        for pipe in (process.stdin, process.stdout):
            # What was not written yet is of no use.
            with contextlib.suppress(OSError, ValueError):
                cast(Any, pipe).close()
        return process.wait()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _answer(answer: dict[str, Any]) -> Parsed:
    if "fault" in answer:
        raise SourceError(answer["fault"])
    if "passed_over" in answer:
        raise PassedOverError(answer["passed_over"])
    text, title, metadata, outline = answer["parsed"]
    return Parsed(text, title, metadata, tuple(Mark(*one) for one in outline))


def reader_of(name: str) -> Callable[[Any], Parsed]:
    """The function of `module:function`."""
    module, _, function = name.partition(":")
    return cast("Callable[[Any], Parsed]", getattr(import_module(f"{_KINDS}.{module}"), function))


def serve() -> None:
    """Answer what stands on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print is no answer.
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    while header := requests.readline():
        reader, size = header.split()
        answer = _read(reader.decode(), requests.read(int(size)))
        line = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
        answers.write(line + b"\n")
        answers.flush()


def _read(reader: str, content: bytes) -> dict[str, Any]:
    try:
        return {"parsed": reader_of(reader)(content)}
    except PassedOverError as error:
        return {"passed_over": str(error)}
    except SourceError as error:
        return {"fault": str(error)}
    except MemoryError:
        return {"fault": f"needs more than {_MEMORY >> 30} GiB of memory; split or convert it"}
    except Exception as error:
        found = " ".join(f"{type(error).__name__} {error}".split())
        return {"fault": f"a damaged file: {found:.200}"}
