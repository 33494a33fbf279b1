"""Reports of experiments: for a terminal, and as a folder of files.

A folder holds report.md, report.tex with the same tables, report.json for programs, figures/ if
matplotlib is installed, and the files of the experiment. Each is written whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.figures import FORMATS, new_figure, save_figure
from retriever import terminal
from retriever.errors import MissingExtraError, SourceError, StorageError
from retriever.files import write_lines
from retriever.terminal import on_one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PACKAGES = "layer-retriever torch transformers faiss-cpu numpy scikit-learn scipy"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 100

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$&!])")
_LATEX = str.maketrans(
    {character: rf"\{character}" for character in "{}&%$#_"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {'"': r"{\char34}", "`": r"{\char96}", "±": r"$\pm$", "×": r"$\times$"}
)
# Two of these characters in a row would become a dash or another quotation mark.
_LIGATURE = re.compile(r"([-',])(?=\1)")

Files = Mapping[str, Callable[[], Iterable[str]]]
"""Path below a report's folder to the lines of a text file, with their ends."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text in columns; the columns at the positions `left` are aligned to the left."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    left: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report, with remarks of one sentence each; terminals show only `brief` parts."""

    heading: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()
    brief: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """The report on the result of an evaluation.

    Attributes:
        name: name of the experiment, such as "qa"; letters and hyphens.
        title: heading.
        sections: sections in order.
        data: the result as JSON values; numbers are finite.
        command: the command that reproduces the result; may be empty.
        environment: name to version of software that influences the result.
        files: path below the report's folder to the lines of a further text file, with their ends.
        figures: name to a function that draws the figure.
    """

    name: str
    title: str
    sections: tuple[Section, ...]
    data: Mapping[str, object]
    command: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the content of report.json."""
        return {"command": self.command, "environment": dict(self.environment), **self.data}


class ReportedResult(ABC):
    """A result that a report describes."""

    __slots__ = ()

    @abstractmethod
    def report(self) -> Report:
        """Return the report."""

    def text(self) -> str:
        """Return the brief part of the report for a terminal."""
        return "\n".join(text_lines(self.report()))

    def to_json(self) -> dict[str, object]:
        """Return the content of report.json."""
        return self.report().to_json()

    def write(self, folder: Path) -> list[Path]:
        """Write the report to a folder; see `write_report`."""
        return write_report(folder, self.report())


def environment(device: str | None) -> dict[str, str]:
    """Return name to version of software that influences results on a device."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _PACKAGES.split():
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {**versions, "device": device or "default"}


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
    """Return the content of `report.json`; SourceError if it is missing or damaged."""
    file = folder / "report.json"
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        message = f"{file}: cannot be read ({error}); name the folder of a report"
        raise SourceError(message) from error


def write_report(folder: Path, report: Report) -> list[Path]:
    """Write a report and return its files; files of the same names are replaced, others stay."""
    check_report_folder(folder)
    data = json.dumps(report.to_json(), indent=1, allow_nan=False)
    paths = [
        _write(folder / "report.json", [data]),
        _write(folder / "report.tex", latex_lines(report)),
        *(_write(folder / name, lines(), end="") for name, lines in report.files.items()),
    ]
    figures = folder / "figures"
    remarks = list[str]()
    try:
        new_figure(1, 1)
    except MissingExtraError as error:
        remarks.append(f"No figures were drawn: {error}")
    else:
        if report.figures:
            _make_folder(figures)
        for name, draw in report.figures.items():
            figure = draw()
            for ending in FORMATS:
                save_figure(figure, figures / f"{name}{ending}")
                paths.append(figures / f"{name}{ending}")
    names = [path.relative_to(folder).as_posix() for path in paths]
    return [*paths, _write(folder / "report.md", markdown_lines(report, names, remarks))]


def _write(path: Path, lines: Iterable[str], end: str = "\n") -> Path:
    _make_folder(path.parent)
    write_lines(path, (f"{line}{end}" for line in lines), "the report")
    return path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot make the folder ({error.strerror}); choose a writable one"
        ) from error


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a CSV file with a header."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([columns, *rows])
    yield text.getvalue()


class FileNames:
    """Unique file names for arbitrary names, also on file systems that ignore case."""

    def __init__(self) -> None:
        self._claimed: set[str] = set()

    def claim(self, name: str, endings: Sequence[str]) -> list[str]:
        """Return a file name for each ending, with one safe stem made from `name`."""
        stem = _UNSAFE.sub("-", name)[:_LONGEST_NAME].strip("-.") or "unnamed"
        for number in count(1):
            numbered = stem if number == 1 else f"{stem}-{number}"
            names = [f"{numbered}{ending}" for ending in endings]
            if self._claimed.isdisjoint(candidate.lower() for candidate in names):
                break
        self._claimed.update(claimed.lower() for claimed in names)
        return names


def text_lines(report: Report) -> Iterator[str]:
    """Yield the title and the brief sections for a terminal: facts, aligned tables and remarks."""
    yield on_one_line(report.title)
    for section in report.sections:
        if not section.brief:
            continue
        for name, text in section.facts.items():
            yield on_one_line(f"  {name}: {text}")
        for table in section.tables:
            yield ""
            if table.title:
                yield on_one_line(table.title)
            yield from table_lines(table)
        if section.remarks:
            yield ""
            yield from map(on_one_line, section.remarks)


def markdown_lines(report: Report, files: Sequence[str], remarks: Sequence[str]) -> Iterator[str]:
    """Yield the lines of report.md, with links to files below its folder, and further remarks."""
    yield f"# {in_markdown(report.title)}"
    yield ""
    # Indented, so that nothing in it can end the block.
    yield from (f"    {on_one_line(line)}" for line in report.command.splitlines())
    for section in report.sections:
        if section.heading:
            yield ""
            yield f"## {in_markdown(section.heading)}"
        yield from _markdown_facts(section.facts)
        for table in section.tables:
            yield from markdown_table(table)
        yield from _markdown_list(section.remarks)
    yield from _markdown_list(remarks)
    if report.environment:
        yield ""
        yield "## Environment"
        yield from _markdown_facts(report.environment)
    if files:
        yield ""
        yield "## Files"
        yield ""
    for file in files:
        is_image = file.startswith("figures/") and file.endswith(".png")
        yield f"- {'!' if is_image else ''}[{in_markdown(file)}]({file})"


def _markdown_facts(facts: Mapping[str, str]) -> Iterator[str]:
    if facts:
        yield from markdown_table(Table(("", ""), tuple(facts.items()), left=(0, 1)))


def _markdown_list(remarks: Sequence[str]) -> Iterator[str]:
    if remarks:
        yield ""
        yield from (f"- {in_markdown(remark)}" for remark in remarks)


def latex_lines(report: Report) -> Iterator[str]:
    r"""Yield the lines of report.tex, for \input: every table, which may break across pages."""
    yield r"% needs \usepackage{booktabs,longtable}"
    yield from (f"% {on_one_line(line)}" for line in report.command.splitlines())
    tables = [(section.heading, table) for section in report.sections for table in section.tables]
    for number, (heading, table) in enumerate(tables, 1):
        sides = "".join(
            "l" if column in table.left else "r" for column in range(len(table.columns))
        )
        caption = in_latex(table.title or heading)
        yield rf"\begin{{longtable}}{{{sides}}}"
        yield rf"\caption{{{caption}}}\label{{tab:{report.name}-{number}}}\\"
        # Cells in braces: an opening bracket would be an argument of the line end before it.
        rows = [[f"{{{in_latex(cell)}}}" for cell in row] for row in (table.columns, *table.rows)]
        header, *lines = [rf"{' & '.join(row)} \\" for row in rows]
        yield from (r"\toprule", header, r"\midrule", r"\endhead", *lines, r"\bottomrule")
        yield r"\end{longtable}"


def table_lines(table: Table) -> list[str]:
    """Return the lines of a table, aligned by the cells of a terminal."""
    return terminal.table(table.columns, table.rows, left=table.left)


def in_markdown(text: str) -> str:
    """Return the text on one line, with nothing that Markdown interprets."""
    return _MARKDOWN.sub(r"\\\1", on_one_line(text))


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table with an empty line before it."""
    yield ""
    if table.title:
        yield f"**{in_markdown(table.title)}**"
        yield ""
    marks = ["---" if column in table.left else "---:" for column in range(len(table.columns))]
    for cells in (table.columns, *table.rows):
        yield f"| {' | '.join(map(in_markdown, cells))} |"
        if cells is table.columns:
            yield f"| {' | '.join(marks)} |"


def in_latex(text: str) -> str:
    """Return the text on one line, without commands, ligatures and comments."""
    return _LIGATURE.sub(r"\1{}", on_one_line(text).translate(_LATEX))
