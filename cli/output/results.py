"""Results of evaluations and trainings: printed, drawn and written as reports."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import Decorator, Settings, json_option, option, quiet_option
from cli.output.text import say
from retriever.terminal import without_controls

if TYPE_CHECKING:
    from cli.output.progress import Stages


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """Where a result goes, and what is printed."""

    plot: Path | None = None
    report: Path | None = None
    as_json: bool = False
    quiet: bool = False

    def stages(self) -> Stages:
        """The progress of the command."""
        from cli.output.progress import Stages

        return Stages(quiet=self.quiet)

    def notify(self, line: str) -> None:
        """Print a line to stderr; if quiet, only notes and warnings."""
        if not self.quiet or line.startswith(("note: ", "warning: ")):
            say(line)

    def show(self, result: Any) -> None:
        """Draw the figure, if a file is given, and print the result; if quiet, only JSON."""
        if self.plot is not None:
            from eval import save_figure

            save_figure(result.figure(), self.plot)
        if self.as_json:
            click.echo(json.dumps(result.to_json(), allow_nan=False))
        elif not self.quiet:
            click.echo(without_controls(result.text()))

    def write(self, result: Any) -> None:
        """Write the report, if a folder is given; draw, and print the result, also if quiet."""
        if self.report is not None:
            names = [path.relative_to(self.report) for path in result.write(self.report)]
            files = sorted(name.name for name in names if len(name.parts) == 1)
            folders = Counter(name.parts[0] for name in names if len(name.parts) > 1)
            counts = [f"{count} {folder}" for folder, count in sorted(folders.items())]
            say(f"{self.report}: {', '.join([*files, *counts])}")
        replace(self, quiet=False).show(result)


def _check_target(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a figure or a report that cannot be written, before any work is done for it."""
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


def result_options(report: str = "", *, plot: bool = False, quiet: bool = True) -> Decorator:
    """--json and more: the command takes `shown: ResultOptions`.

    `report` is what the help says that --output writes; `plot` and `quiet` are whether there are
    options of these names.
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
    options += [json_option, quiet_option] if quiet else [json_option]
    return Settings("shown", ResultOptions, options=options)


def command_line() -> str:
    """The command that runs."""
    return shlex.join(["retriever", *sys.argv[1:]])
