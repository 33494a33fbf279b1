"""Processes that read slow or untrusted kinds of files, beside the encoder.

A process takes the bytes of a file and answers with its content, as a line of JSON. If it takes too
long, crashes or needs too much memory, only that file is lost.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from binascii import a2b_base64, b2a_base64
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

from indexes.platforms import limit_memory, usable_cores
from retriever.documents import ocr
from retriever.documents.data_blocks import without_data_blocks
from retriever.documents.decoding import byte_losses, record_texts
from retriever.documents.kinds import Attachment, Parsed, PassedOverError
from retriever.documents.losses import Loss
from retriever.documents.outline import Mark
from retriever.errors import SourceError

# Time limit for one file.
SECONDS = 120.0
_MOST_PROCESSES = 4
# Bytes of address space of a process.
_MEMORY_LIMIT = 4 << 30
_KINDS = "retriever.documents.kinds"
# A process sends this line before each page that a program recognizes; the time begins anew.
_PROGRESS = b"+\n"
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from retriever.documents.processes import serve; serve()"
)


class ReadingProcesses:
    """Processes that read files, started when they are needed."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(min(_MOST_PROCESSES, usable_cores()))
        # Threads share both; their operations are atomic.
        self._idle: list[subprocess.Popen[bytes]] = []
        self._all: set[subprocess.Popen[bytes]] = set()

    def read(self, reader: str, content: bytes, encoding: str | None = None) -> Future[Parsed]:
        """Begin to read bytes with `module:function` of `kinds`; the result may be SourceError.

        The function gets an `encoding` that the user named as its second argument.
        """
        return self._threads.submit(self._read, reader, content, encoding)

    def close(self) -> None:
        """End all processes; what they were reading is lost."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._all):
            process.kill()
        self._threads.shutdown()
        for process in list(self._all):
            self._end_process(process)

    def _read(self, reader: str, content: bytes, encoding: str | None) -> Parsed:
        header = f"{reader} {len(content)} {codecs.lookup(encoding).name if encoding else ''}\n"
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._start_process()
        started = time.monotonic()
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        line = b""
        # The process may end before it has read all bytes.
        with contextlib.suppress(OSError):
            cast(Any, process.stdin).writelines([header.encode(), content])
            cast(Any, process.stdin).flush()
            line = cast(Any, process.stdout).readline()
            while line == _PROGRESS:
                timer.cancel()
                started = time.monotonic()
                timer = threading.Timer(SECONDS, process.kill)
                timer.start()
                line = cast(Any, process.stdout).readline()
        timer.cancel()
        if line.endswith(b"\n"):
            self._idle.append(process)
            values, passed_over, fault = json.loads(line)
            if fault is not None:
                raise (PassedOverError if passed_over else SourceError)(fault)
            text, title, metadata, marks, losses, encoding, files = values
            outline = tuple(Mark(*mark) for mark in marks)
            losses = tuple(Loss(*loss) for loss in losses)
            attachments = tuple(Attachment(name, a2b_base64(data)) for name, data in files)
            return Parsed(text, title, metadata, outline, losses, encoding, attachments)
        code = self._end_process(process)
        if time.monotonic() - started >= SECONDS:
            raise SourceError(f"not read within {SECONDS:,.0f} s; split or convert it")
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise SourceError(f"the process that read it ended ({cause}); the file is damaged")

    def _start_process(self) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[2])
        # -P: no module of the working folder shadows another.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-c", _START, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._all.add(process)
        return process

    def _end_process(self, process: subprocess.Popen[bytes]) -> int:
        self._all.discard(process)
        process.kill()
        for pipe in (process.stdin, process.stdout):
            # Bytes that were not written yet are lost.
            with contextlib.suppress(OSError):
                cast(Any, pipe).close()
        return process.wait()


def parse_file(reader: str, content: bytes | str, *arguments: str) -> Parsed:
    """Return the content of a file by `module:function`; any other error becomes a SourceError.

    The function gets the content and further arguments, such as the encoding of a page.
    """
    module, _, function = reader.partition(":")
    try:
        with record_texts() as texts:
            read = getattr(import_module(f"{_KINDS}.{module}"), function)
            result: Parsed = read(content, *arguments)
        encoding = next((text.encoding for text in texts if text.is_detected), result.encoding)
        result = result._replace(losses=result.losses + byte_losses(texts), encoding=encoding)
        return without_data_blocks(result)
    except (SourceError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())
        raise SourceError(f"a damaged file: {reason:.200}") from error


def serve() -> None:
    """Answer the requests on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory(_MEMORY_LIMIT)
    answers = os.fdopen(os.dup(1), "wb")
    # Standard output is for answers; libraries that print write to standard error.
    os.dup2(2, 1)
    ocr.report_progress = partial(_send, answers, _PROGRESS)
    requests = sys.stdin.buffer
    while header := requests.readline():
        reader, size, *encodings = header.decode().split()
        content = requests.read(int(size))
        answer: tuple[Parsed | None, bool, str | None]
        try:
            answer = parse_file(reader, content, *encodings), False, None
        except SourceError as error:
            answer = None, isinstance(error, PassedOverError), str(error)
        except MemoryError:
            fault = f"needs more than {_MEMORY_LIMIT >> 30} GiB of memory; split or convert it"
            answer = None, False, fault
        text = json.dumps(answer, ensure_ascii=False, default=_encode_bytes)
        answers.write(text.encode("utf-8", "replace") + b"\n")
        answers.flush()


def _send(answers: BinaryIO, line: bytes) -> None:
    """Write a line at once."""
    answers.write(line)
    answers.flush()


def _encode_bytes(content: object) -> str:
    """Return the bytes of an attachment as base64."""
    if not isinstance(content, bytes):
        raise TypeError(f"expected bytes, found {type(content).__name__}")
    return b2a_base64(content, newline=False).decode()
