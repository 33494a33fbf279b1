"""Recognition of the text of scanned pages by a program of the user.

The command is in the environment variable `RETRIEVER_OCR`, which `--ocr` sets for one run. It is
never read from an index or a file of settings. Its words are divided as a shell divides them, and
run without a shell. The program gets a page as a gray PNG on standard input, or as a file whose
path stands in place of ``{}``, and prints the text.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from indexes.platforms import can_limit_programs, kill_session, program_limits
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

VARIABLE = "RETRIEVER_OCR"
# Seconds for one page.
SECONDS = 60.0
# Maximum number of pages of one file that are recognized.
MOST_PAGES = 2000
# Dots per inch of a picture, the points in an inch of a PDF, and the most pixels of a picture.
_RESOLUTION = 300
_POINTS = 72
_MOST_PIXELS = 40_000_000
# Maximum size in bytes of the text of a page, and of what the program writes to files.
_MOST_BYTES = 1 << 20
_MOST_WRITTEN = 1 << 26
_PLACEHOLDER = "{}"

# Called before each page; a process that reads files tells that it is alive.
report_progress: Callable[[], None] = lambda: None  # noqa: E731


class RecognitionError(Exception):
    """The program did not recognize a page."""


def ocr_command() -> list[str]:
    """Return the words of the command; empty if none is set.

    Raises:
        ConfigError: the words cannot be divided, there is no such program, or the system is
            Windows.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--ocr: expected a command, found {text!r} ({error})") from error
    if words and not can_limit_programs():
        raise ConfigError(
            "--ocr: Windows can limit neither the time nor the files of a program and of what it "
            "starts; run retriever in WSL, on Linux or on macOS"
        )
    if words and shutil.which(words[0]) is None:
        raise ConfigError(
            f"--ocr: there is no program {words[0]!r}; install it, as with `apt install "
            "tesseract-ocr`, or give its path"
        )
    return words


def recognize_page(page: PdfPage, command: list[str]) -> str:
    """Return the text of a page; RecognitionError if the program fails or takes too long."""
    report_progress()
    with tempfile.TemporaryDirectory(prefix="retriever-ocr-") as folder:
        picture = Path(folder, "page.png")
        picture.write_bytes(_draw_page(page))
        words = [word.replace(_PLACEHOLDER, str(picture)) for word in command]
        return _run_program(words, picture, Path(folder))


def _run_program(words: list[str], picture: Path, folder: Path) -> str:
    """Run the program in a folder of its own, and return what it prints."""
    output = folder / "output"
    errors = folder / "errors"
    with picture.open("rb") as stdin, output.open("wb") as stdout, errors.open("wb") as stderr:
        try:
            process = subprocess.Popen(  # noqa: S603
                words,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=folder,
                # The process that reads files has one thread.
                **program_limits(_MOST_WRITTEN),
            )
        except OSError as error:
            raise RecognitionError(f"{words[0]}: {error.strerror}") from error
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise RecognitionError(f"{words[0]}: longer than {SECONDS:.0f} s") from None
        finally:
            # With all that it has started.
            kill_session(process)
    if code:
        last = errors.read_bytes()[-500:].decode("utf-8", "replace").strip().splitlines()
        reason = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise RecognitionError(": ".join([words[0], reason, *last[-1:]]))
    with output.open("rb") as text:
        content = text.read(_MOST_BYTES)
    return content.decode("utf-8", "replace").replace("\0", "").replace("\f", "\n").strip()


def _draw_page(page: PdfPage) -> bytes:
    """Return a page as a gray PNG."""
    width, height = page.get_size()
    pixels = max(width * height, 1.0) * (_RESOLUTION / _POINTS) ** 2
    scale = _RESOLUTION / _POINTS * min(1.0, (_MOST_PIXELS / pixels) ** 0.5)
    bitmap = page.render(scale=scale, grayscale=True)
    rows = bytes(bitmap.buffer)
    lines = b"".join(
        b"\0" + rows[at : at + bitmap.width]
        for at in range(0, bitmap.stride * bitmap.height, bitmap.stride)
    )
    header = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, 0, 0, 0, 0)
    bitmap.close()
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _png_chunk(kind, content)
        for kind, content in (
            (b"IHDR", header),
            (b"IDAT", zlib.compress(lines, 1)),
            (b"IEND", b""),
        )
    )


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
