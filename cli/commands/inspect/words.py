"""`retriever inspect words`: which words change unevenly from layer to layer."""

from __future__ import annotations

from pathlib import Path

import click

from cli.commands.inspect.texts import limit_option
from cli.options.declaring import Command, option
from cli.options.encoder import MINILM, STATES, EncoderOptions, encoder_options
from cli.options.evaluation import plot_option, report_option
from cli.options.output import json_option, quiet_option
from cli.options.source import SourceOptions, corpus_texts, source_options, sources_argument


@click.command("words", cls=Command)
@sources_argument
@limit_option
@source_options
@option(
    "--min-count",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="Minimum number of occurrences of a word.",
    section="Output",
)
@option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="Maximum number of words to show in each group.",
    section="Output",
)
@encoder_options(MINILM, only=STATES)
@report_option("the report and its figure")
@plot_option
@json_option
@quiet_option
def command(
    sources: tuple[str, ...],
    limit: int,
    source: SourceOptions,
    min_count: int,
    top: int,
    encoder: EncoderOptions,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show the words of SOURCE... whose adjacent-layer cosines vary least, moderately and most.

    Words are in lower case. The vector of a word is the mean over its pieces, its variance the mean
    over its occurrences (SBERT-WK, Table I).
    """
    from cli.output.progress import Stages, warn_reader
    from cli.output.results import command_line, draw, report, say
    from eval import Loading, inspect_words

    reader = source.reader(sources)
    choice = encoder.choice()
    with Stages(quiet=quiet) as progress:
        result = inspect_words(
            corpus_texts(reader),
            choice.encoder,
            min_count=min_count,
            top=top,
            limit=limit,
            loading=Loading(choice.device, choice.download),
            progress=progress,
            notify=say,
            command=command_line(),
        )
    warn_reader(reader, say)
    draw(result, plot)
    report(result, output, as_json=as_json)
