"""What commands print: messages, and results of evaluations, which are also written as reports."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from cli.output.text import say
from retriever.terminal import without_controls

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


class Result(Protocol):
    """The result of an evaluation."""

    def text(self) -> str:
        """For a terminal."""
        ...

    def to_json(self) -> dict[str, object]:
        """For programs."""
        ...


class ReportedResult(Result, Protocol):
    """A result with a report."""

    def write(self, folder: Path) -> list[Path]:
        """Write the report; the files."""
        ...


class DrawnResult(Protocol):
    """A result with a figure."""

    def figure(self) -> Figure:
        """Draw it."""
        ...


def draw(result: DrawnResult, path: Path | None) -> None:
    """Draw the figure of a result into a file, if one is given."""
    if path is not None:
        from eval import save_figure

        save_figure(result.figure(), path)


def show(result: Result, *, as_json: bool, quiet: bool = False) -> None:
    """Print a result; nothing if quiet, except JSON."""
    if quiet and not as_json:
        return
    if as_json:
        click.echo(json.dumps(result.to_json(), allow_nan=False))
    else:
        click.echo(without_controls(result.text()))


def report(result: ReportedResult, output: Path | None, *, as_json: bool) -> None:
    """Write the report of a result, if a folder is given, and print the result."""
    if output is not None:
        names = [path.relative_to(output) for path in result.write(output)]
        say(f"{output}: {', '.join(_summary(names))}")
    show(result, as_json=as_json)


def command_line() -> str:
    """The command that runs."""
    return shlex.join(["retriever", *sys.argv[1:]])


def saying(*, quiet: bool) -> Callable[[str], None]:
    """What prints a line to stderr; if quiet, only notes and warnings."""
    return _say_notes if quiet else say


def _say_notes(line: str) -> None:
    if line.startswith(("note: ", "warning: ")):
        say(line)


def _summary(names: list[Path]) -> list[str]:
    """The files of a report, and its folders with the number of files in each."""
    folders: dict[str, int] = {}
    files = []
    for name in names:
        if len(name.parts) > 1:
            folders[name.parts[0]] = folders.get(name.parts[0], 0) + 1
        else:
            files.append(name.name)
    return [*sorted(files), *(f"{count} {folder}" for folder, count in sorted(folders.items()))]
