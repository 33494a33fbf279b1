"""Files of a report: checked before the work, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from eval.reports.figure_files import new_figure
from retriever.errors import MissingExtraError, StorageError


def check_report_folder(folder: Path) -> None:
    """Refuse a folder that a report cannot be written to, before any work is done for it.

    Raises:
        StorageError: it is a file, its parent does not exist, or it cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder}: expected a folder for the report, found a file; rename it")
    parent = folder.resolve().parent
    if not parent.is_dir():
        raise StorageError(f"{folder}: expected its parent to exist; make the folder {parent}")
    if not os.access(folder if folder.exists() else parent, os.W_OK | os.X_OK):
        raise StorageError(f"{folder}: cannot write the report; choose a writable folder")


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, if they are not there.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot make the folder ({error.strerror}); choose a writable one"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all; a byte of a file name that is no UTF-8 as an escape.

    Raises:
        StorageError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        message = f"{path}: cannot write the report ({error.strerror}); choose a writable folder"
        raise StorageError(message) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def finish_report(
    folder: Path,
    written: Sequence[Path],
    draw: Callable[[Path], Sequence[Path]],
    markdown: Callable[[Sequence[str], Sequence[str]], Iterable[str]],
) -> list[Path]:
    """Draw the figures, and write report.md, which names all files of the report.

    Args:
        folder: of the report.
        written: the files of it that are there already.
        draw: draws into a folder that exists, and gives the files; called where matplotlib is
            installed.
        markdown: the lines of report.md, from the paths of the files below `folder` and the
            remarks on what was not drawn.

    Returns:
        All files, report.md last.

    Raises:
        StorageError: a file cannot be written.
    """
    files, remarks = list(written), []
    try:
        new_figure(1, 1)
    except MissingExtraError as error:
        remarks.append(f"No figures were drawn: {error}")
    else:
        make_folder(folder / "figures")
        files += draw(folder / "figures")
    names = [path.relative_to(folder).as_posix() for path in files]
    report = folder / "report.md"
    write_text(report, "\n".join(markdown(names, remarks)) + "\n")
    return [*files, report]
