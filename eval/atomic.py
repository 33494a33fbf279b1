"""Text files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from retriever.errors import StorageError


def write_lines(path: Path, lines: Iterable[str], what: str) -> None:
    """Write lines, which have their line ends, in place of the file if there is one.

    A byte of a file name that is not UTF-8 is written as an escape.

    Args:
        path: the file.
        lines: taken one by one; if they raise, no file is left behind.
        what: the content, for the message, such as "the run".

    Raises:
        StorageError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.writelines(lines)
        temporary.replace(path)
    except OSError as error:
        message = f"{path}: cannot write {what} ({error.strerror}); choose a writable folder"
        raise StorageError(message) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
