"""What the commands that evaluate encoders on sentences share: options, encoders, output."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.qa import cache_folder, cache_option
from cli.options.shared import Command, json_option, quiet_option, resampling_options
from cli.output.safe_text import on_one_line
from cli.output.tables import table

if TYPE_CHECKING:
    from eval.reports.sentence_tables import ReportTable
    from eval.sentences.result import SentenceResult
    from eval.vectors.encoders import LayerEncoders, Loading
    from retriever.encoders.settings import Pooling

POOLINGS = ("mean", "max", "cls", "sep")


def sentence_options(command: Command) -> Command:
    """DATASET..., the encoders, --by-layer, and what becomes of the result."""
    options: list[Callable[[Command], Command]] = [
        click.argument(
            "datasets",
            nargs=-1,
            required=True,
            metavar="DATASET...",
            type=click.Path(path_type=Path),
        ),
        click.option(
            "-e",
            "--encoder",
            "encoders",
            multiple=True,
            metavar="MODEL[::SETTING...]",
            help="An encoder's text form, such as all-MiniLM-L6-v2::lc:0,6; without a model "
            "(::lc:0,6) it is of --model. May be repeated. static=sif and static=usif are fitted "
            "on each set's texts. [default: --model]",
        ),
        click.option(
            "--encoders",
            "lists",
            multiple=True,
            type=click.Choice(["paper"]),
            help="A list of encoders over --model: paper is last, cls, max, last4, all layers, "
            "top-bottom, both SBERT-WK, lc:0,-1, SIF, uSIF, p-mean and average.",
        ),
        click.option("--model", help="Of --encoders. [default: all-MiniLM-L6-v2]"),
        click.option("--device", help="cpu, cuda, ... [default: a GPU if there is one]"),
        click.option(
            "--download", is_flag=True, help="Fetch a model that is not in the local hub cache."
        ),
        click.option(
            "--by-layer",
            is_flag=True,
            help="Score every hidden state of each encoder's model instead, as a table and a heat "
            "map.",
        ),
        click.option(
            "--poolings",
            default=",".join(POOLINGS),
            show_default=True,
            help="For --by-layer: how word pieces become one, several with commas.",
        ),
        click.option("--baseline", help="The encoder to compare with. [default: the first]"),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            help="A folder for the report (Markdown, LaTeX, JSON, CSV) and figures.",
        ),
        resampling_options,
        cache_option,
        json_option,
        quiet_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def encoder_names(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The encoders that `sentence_options` name; --model alone where none is named.

    Raises:
        ConfigError: a setting is unknown, or an encoder is given twice.
    """
    from eval.vectors.encoders import named_encoders
    from retriever.encoders.models import DEFAULT_MODEL

    model = options["model"] or DEFAULT_MODEL
    asked = options["encoders"] or (() if options["lists"] else (model,))
    return named_encoders(asked, options["lists"], model)


def baseline_name(options: Mapping[str, Any], names: Sequence[str]) -> str:
    """The encoder that others are compared with; without a model it is of --model.

    Raises:
        ConfigError: it is none of these.
    """
    from eval.sentences.result import check_baseline
    from retriever.encoders.models import DEFAULT_MODEL

    asked = options["baseline"]
    if asked is not None and asked.startswith("::"):
        asked = f"{options['model'] or DEFAULT_MODEL}{asked}"
    return check_baseline(asked, names)


def fitted_remark(names: Sequence[str], texts: str) -> list[str]:
    """What is said of encoders that are fitted on each set; nothing where there are none."""
    from eval.vectors.encoders import is_fitted

    fitted = [name for name in names if is_fitted(name)]
    return [f"fitted on each set, on {texts}: {', '.join(fitted)}"] if fitted else []


def loading(options: Mapping[str, Any]) -> Loading:
    """Where encoders and vectors are."""
    from eval.vectors.encoders import Loading

    return Loading(options["device"], options["download"], cache_folder(options["cache"]))


def layer_encoders(options: Mapping[str, Any], names: Sequence[str]) -> LayerEncoders:
    """Every hidden state of the models that are named, for --by-layer.

    Raises:
        UsageError: a pooling is unknown or named twice, or --baseline is given.
    """
    from eval.vectors.encoders import LayerEncoders

    if options["baseline"] is not None:
        raise click.UsageError("--baseline compares encoders: leave it out with --by-layer")
    asked: list[Pooling] = [one.strip() for one in options["poolings"].split(",")]
    if len(set(asked)) < len(asked) or not set(asked) <= set(POOLINGS):
        raise click.UsageError(
            f"--poolings: expected some of {', '.join(POOLINGS)}, each once, found "
            f"{options['poolings']!r}"
        )
    return LayerEncoders(names, asked, loading(options))


def check_output(options: Mapping[str, Any]) -> None:
    """Refuse a folder that the report cannot be written to; raises StorageError."""
    from eval.reports.files import check_report_folder

    if options["output"] is not None:
        check_report_folder(options["output"])


def check_names(names: Sequence[str]) -> None:
    """Refuse sets of one name, which a table could not tell apart."""
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(
                f"two DATASETs are called {name}: name each once, or rename a folder"
            )


def command_line() -> str:
    """What was typed."""
    return shlex.join(["retriever", *sys.argv[1:]])


def show(result: SentenceResult, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Write the report where one is asked for, and print the result."""
    from eval.reports.sentence_report import sentence_json, write_sentence_report

    output = options["output"]
    if output is not None:
        write_sentence_report(output, result)
    if as_json:
        click.echo(json.dumps(sentence_json(result), allow_nan=False))
    else:
        click.echo("\n".join(_lines(result)))
    if output is not None:
        click.echo(f"{output}: report.md, report.tex, report.json, examples, figures", err=True)


def _lines(result: SentenceResult) -> Iterator[str]:
    from eval.reports.sentence_tables import grid_tables, overview, remarks_on

    yield on_one_line(result.title)
    for name, text in result.settings.items():
        yield on_one_line(f"  {name}: {text}")
    for of in result.sets:
        facts = "; ".join(f"{name} {text}" for name, text in of.facts.items())
        yield on_one_line(f"  {of.name}: {facts}")
    for one in (*overview(result), *grid_tables(result)):
        yield ""
        yield on_one_line(one.title)
        header, *rows = _aligned(one)
        yield from table(header, rows)
    yield ""
    yield from map(on_one_line, remarks_on(result))


def _aligned(one: ReportTable) -> list[list[str]]:
    """Header and rows with a place for the mark, so that numbers stay below each other."""
    marked = [any(cell.endswith("*") for cell in column) for column in zip(*one.rows, strict=True)]
    return [
        [
            f"{cell} " if mark and not cell.endswith("*") else cell
            for cell, mark in zip(row, marked, strict=True)
        ]
        for row in (one.header, *one.rows)
    ]
