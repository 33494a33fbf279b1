"""`retriever reproduce`: the tables and figures of the papers, each by one command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from cli.options.declaring import Command, option
from cli.options.encoder import MINILM, model_option

# What a finished step leaves in its folder.
_FINISHED = ("report.json", "sentence_length.txt", "training.json", "static.json", "meta.json")


@click.command("reproduce", cls=Command)
@click.argument("paper", required=False)
@click.argument("table", required=False)
@option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="RETRIEVER_DATA",
    metavar="FOLDER",
    help="Folder that holds the data sets, each in a folder of its own.",
    shown_default="$RETRIEVER_DATA",
    section="Input",
)
@model_option(MINILM)
@option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Run the commands and write their reports below this folder; without it they are only "
    "printed.",
    section="Output",
)
def command(
    paper: str | None, table: str | None, data: Path | None, model: str | None, output: Path | None
) -> None:
    """Print or run the commands of the papers' tables.

    PAPER is sbert-wk (Wang and Kuo 2020), bert-lc (Hosseini et al. 2023), ma (Ma et al. 2019) or
    unsup (Takahashi and Bollegala 2022). TABLE is one of those that are printed without --output,
    such as table-3; tables of times are benchmarks of the repository. Existing reports are kept, so
    an interrupted run resumes; use one --output folder per model.
    """
    from cli.main import run
    from cli.output.results import say
    from eval import experiments

    for one in experiments(paper, table):
        say(f"{one.paper} {', '.join((one.name, *one.also))}: {one.title}")
        for folder, arguments in one.commands(
            data or Path("$RETRIEVER_DATA"), model or MINILM, output or Path("OUTPUT")
        ):
            if output is None:
                say(" ".join(["retriever", *map(_quoted, arguments)]), err=False)
                continue
            if data is None:
                raise click.UsageError(
                    "--data: expected the folder of the data sets, found none; name it, or set "
                    "RETRIEVER_DATA"
                )
            line = shlex.join(["retriever", *arguments])
            if any((folder / name).exists() for name in _FINISHED):
                _check_same(folder, line)
                say(f"{folder}: exists, skipped")
                continue
            folder.parent.mkdir(parents=True, exist_ok=True)
            say(line)
            sys.argv[1:] = arguments  # The report names the command that makes it.
            code = run(arguments)
            if code:
                raise click.exceptions.Exit(code)


def _quoted(argument: str) -> str:
    """The argument for a shell; `$RETRIEVER_DATA` is left for the shell to replace."""
    return argument if argument.startswith("$") else shlex.quote(argument)


def _check_same(folder: Path, line: str) -> None:
    """Refuse a report that another command made, such as one with another model."""
    from eval.reports import read_report

    report = folder / "report.json"
    if not report.exists():
        return
    made = read_report(folder).get("command")
    # The folder is this one, however its path was written.
    if str(made).rpartition(" --output ")[0] != line.rpartition(" --output ")[0]:
        raise click.UsageError(
            f"{report}: expected the report of `{line}`, found that of `{made}`; name another "
            "--output, or remove the folder"
        )
