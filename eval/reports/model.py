"""The report of any evaluation: tables, facts and remarks as text, and its data for programs.

An experiment describes its result as a `Report`; `eval.reports.files.write_report` writes it as
Markdown, LaTeX, JSON, CSV and figures, and `eval.reports.text.text_lines` renders it for a
terminal.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text in columns.

    Attributes:
        columns: their names.
        rows: each with one cell per column.
        title: caption; may be empty.
        left: numbers of the columns that are aligned to the left; the others are aligned to the
            right.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    left: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report.

    Attributes:
        heading: empty for the first section.
        facts: name to text.
        tables: one or several.
        remarks: what a reader of the tables must know, one sentence each.
        brief: whether the part is shown on the terminal too.
    """

    heading: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()
    brief: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that is said about the result of an evaluation.

    Attributes:
        name: of the experiment, such as "qa"; letters and hyphens.
        title: heading.
        sections: in order.
        data: the result as JSON values, finite numbers only.
        command: reproduces the result; may be empty.
        environment: name to version of what influences the result.
        files: path below the report's folder to the lines of a further text file, with their ends.
        figures: name to what draws a figure.
    """

    name: str
    title: str
    sections: tuple[Section, ...]
    data: Mapping[str, object]
    command: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Callable[[], Iterable[str]]] = field(default_factory=dict)
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The content of report.json."""
        return {
            "command": self.command,
            "environment": dict(self.environment),
            **self.data,
        }


def environment(device: str | None) -> dict[str, str]:
    """Name to version of what influences the result of an evaluation.

    Args:
        device: as asked for.
    """
    packages = (
        "layer-retriever",
        "torch",
        "transformers",
        "faiss-cpu",
        "numpy",
        "scikit-learn",
        "scipy",
    )
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return {**found, "device": device or "default"}
