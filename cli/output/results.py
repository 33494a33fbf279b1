"""Results of evaluations and trainings: printed, drawn and written as reports."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.options import Decorator, Settings, json_option, option
from cli.output.text import say
from retriever.terminal import without_controls


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """Destinations of a result, and the form in which it is printed."""

    plot: Path | None = None
    report: Path | None = None
    as_json: bool = False

    def show(self, result: Any) -> None:
        """Print the result; write the report and draw the figure if they have a path."""
        if self.report is not None:
            names = [path.relative_to(self.report) for path in result.write(self.report)]
            files = sorted(name.name for name in names if len(name.parts) == 1)
            folders = Counter(name.parts[0] for name in names if len(name.parts) > 1)
            counts = [f"{count} {folder}" for folder, count in sorted(folders.items())]
            say(f"{self.report}: {', '.join([*files, *counts])}")
        if self.plot is not None:
            from eval import save_figure

            save_figure(result.figure(), self.plot)
        if self.as_json:
            click.echo(json.dumps(result.to_json(), allow_nan=False))
        else:
            click.echo(without_controls(result.text()))


def _check_target(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a figure or a report that cannot be written, before any other work."""
    if value is not None:
        from eval import check_figure, check_report_folder

        (check_figure if param.name == "plot" else check_report_folder)(value)
    return value


_PLOT = option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=_check_target,
    metavar="FILE",
    help="Draw a figure into this .png or .svg file.",
    section="Output",
)


def result_options(report: str = "", *, plot: bool = False) -> Settings:
    """Return --json and more; the command takes `results: ResultOptions`.

    `report` names the files of --output, which exists only with them. `plot` adds --plot.
    """
    options: list[Decorator] = [_PLOT] if plot else []
    if report:
        folder = option(
            "-o",
            "--output",
            "report",
            type=click.Path(path_type=Path),
            callback=_check_target,
            metavar="FOLDER",
            help=f"Write {report} to this folder.",
            section="Output",
        )
        options.append(folder)
    return Settings("results", ResultOptions, options=[*options, json_option])


def command_line() -> str:
    """Return the running command as a line for a shell."""
    return shlex.join(["retriever", *sys.argv[1:]])
