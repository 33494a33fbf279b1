"""`retriever reproduce`: print or run the commands of the tables and figures of papers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from cli.options import MINILM, Command, complete_model, option
from cli.output.text import say


@click.command("reproduce", cls=Command)
@click.argument("paper", required=False)
@click.argument("table", required=False)
@option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="RETRIEVER_DATA",
    metavar="FOLDER",
    help="Folder of the data sets; each data set has its own folder.",
    show_default="$RETRIEVER_DATA",
    section="Input",
)
@option(
    "--model",
    metavar="MODEL",
    shell_complete=complete_model,
    help="Encoder; see `retriever index`.",
    show_default=MINILM,
    section="Encoder",
)
@option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Run the commands and write their reports below this folder. Without it, commands are "
    "only printed.",
    section="Output",
)
def reproduce_command(
    paper: str | None, table: str | None, data: Path | None, model: str | None, output: Path | None
) -> None:
    """Print or run the commands of the papers' tables.

    The published figures come first. PAPER is sbert-wk (Wang and Kuo 2020), bert-lc (Hosseini et
    al. 2023), ma (Ma et al. 2019) or unsup (Takahashi and Bollegala 2022). Without --output, the
    command lists the tables, such as table-3. Benchmarks of the repository reproduce tables of
    times. Existing reports are kept, so an interrupted run resumes. Use a separate --output folder
    for each model.
    """
    from cli.output.results import ResultOptions
    from eval import experiments
    from eval.papers import reproduce

    if output is not None and data is None:
        raise click.UsageError(
            "--data: expected the folder of the data sets, found none; give --data, or set "
            "RETRIEVER_DATA"
        )
    for experiment in experiments(paper, table):
        names = ", ".join((experiment.name, *experiment.also))
        say(f"{experiment.paper} {names}: {experiment.title}")
        for line in experiment.published:
            say(f"  {line}")
        if output is None or data is None:
            place = data or Path("$RETRIEVER_DATA")
            folder = output or Path("OUTPUT")
            for step in experiment.steps(place, model or MINILM, folder):
                say(" ".join(["retriever", *map(_quote, step.arguments)]), err=False)
            continue
        code = reproduce(
            experiment,
            data,
            model or MINILM,
            output,
            run=_run,
            show=lambda result, folder: ResultOptions(report=folder).show(result),
            notify=say,
        )
        if code:
            raise click.exceptions.Exit(code)


def _run(arguments: list[str]) -> int:
    from cli.main import run

    # A report names the command that made it.
    sys.argv[1:] = arguments
    return run(arguments)


def _quote(argument: str) -> str:
    """Quote an argument for a shell, which still replaces `$RETRIEVER_DATA`."""
    return argument if argument.startswith("$") else shlex.quote(argument)
