"""A report as a folder of files; each text file is written whole or not at all.

::

    report.md       tables, and how they were made
    report.tex      the same tables for LaTeX
    report.json     the result for programs
    figures/        PNG and SVG, if matplotlib is installed

and the files of the experiment, such as CSV tables of single questions and TREC runs.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from eval.reports.figure_files import FORMATS, new_figure, save_figure
from eval.reports.latex import latex_lines
from eval.reports.markdown import markdown_lines
from eval.reports.model import Report
from eval.reports.text import text_lines
from retriever.errors import MissingExtraError, SourceError, StorageError
from retriever.files import write_lines

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 100


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


def read_report(folder: Path) -> dict[str, Any]:
    """The content of a report's `report.json`.

    Raises:
        SourceError: there is none, or it cannot be read; names the file.
    """
    file = folder / "report.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{file}: cannot be read ({error}); name the folder of a report"
        ) from error
    if not isinstance(found, dict):
        raise SourceError(f"{file}: expected a report, found something else; remove the folder")
    return found


def write_report(folder: Path, report: Report) -> list[Path]:
    """Write a report; files of the same names are replaced, others in the folder stay.

    Returns:
        The files, report.md last. Without matplotlib there are no figures, and report.md says so.

    Raises:
        StorageError: the folder or a file in it cannot be written.
    """
    check_report_folder(folder)
    _make_folder(folder)
    data = json.dumps(report.to_json(), indent=1, allow_nan=False)
    texts: dict[str, Iterable[str]] = {
        "report.json": [f"{data}\n"],
        "report.tex": (f"{line}\n" for line in latex_lines(report)),
    }
    written = []
    for name, lines in texts.items():
        written.append(_write(folder / name, lines))
    for name, make in report.files.items():
        _make_folder((folder / name).parent)
        written.append(_write(folder / name, make()))
    remarks = []
    try:
        new_figure(1, 1)
    except MissingExtraError as error:
        remarks.append(f"No figures were drawn: {error}")
    else:
        _make_folder(folder / "figures")
        written += _draw(folder / "figures", report)
    names = [path.relative_to(folder).as_posix() for path in written]
    lines = (f"{line}\n" for line in markdown_lines(report, names, remarks))
    return [*written, _write(folder / "report.md", lines)]


class ReportedResult(ABC):
    """A result that a report describes."""

    __slots__ = ()

    @abstractmethod
    def report(self) -> Report:
        """The result for a reader."""

    def text(self) -> str:
        """The brief part of the report for a terminal."""
        return "\n".join(text_lines(self.report()))

    def to_json(self) -> dict[str, object]:
        """The content of report.json."""
        return self.report().to_json()

    def write(self, folder: Path) -> list[Path]:
        """Write the report to a folder; see `write_report`."""
        return write_report(folder, self.report())


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a CSV file with a header."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for row in (columns, *rows):
        writer.writerow(row)
    yield text.getvalue()


class FileNames:
    """Names of files for things with any names: no two the same, even where case is ignored."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def claim(self, name: str, endings: Sequence[str]) -> list[str]:
        """A name for each ending, with the same safe beginning.

        Args:
            name: of the thing.
            endings: of its files.
        """
        stem = _UNSAFE.sub("-", name)[:_LONGEST_NAME].strip("-.") or "unnamed"
        for number in count(1):
            numbered = stem if number == 1 else f"{stem}-{number}"
            names = [f"{numbered}{ending}" for ending in endings]
            if self._taken.isdisjoint(one.lower() for one in names):
                break
        self._taken.update(one.lower() for one in names)
        return names


def _draw(folder: Path, report: Report) -> Iterator[Path]:
    for name, draw in report.figures.items():
        figure = draw()
        for ending in FORMATS:
            path = folder / f"{name}{ending}"
            save_figure(figure, path)
            yield path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot make the folder ({error.strerror}); choose a writable one"
        ) from error


def _write(path: Path, lines: Iterable[str]) -> Path:
    write_lines(path, lines, "the report")
    return path
