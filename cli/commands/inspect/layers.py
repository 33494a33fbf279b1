"""`retriever inspect layers`: how similar the hidden states are from layer to layer."""

from __future__ import annotations

from pathlib import Path

import click

from cli.commands.inspect.texts import checked_text, limit_option
from cli.options.declaring import Command, complete_path, option
from cli.options.encoder import MINILM, STATES, EncoderOptions, encoder_options
from cli.options.evaluation import plot_option, report_option
from cli.options.output import json_option, quiet_option
from cli.options.source import SourceOptions, corpus_texts, source_options


@click.command("layers", cls=Command)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=complete_path)
@option("--text", metavar="TEXT", help="Text to read instead of SOURCE.", section="Input")
@limit_option
@source_options
@encoder_options(MINILM, only=STATES)
@report_option("the report and its figure")
@plot_option
@json_option
@quiet_option
def command(
    sources: tuple[str, ...],
    text: str | None,
    limit: int,
    source: SourceOptions,
    encoder: EncoderOptions,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show the mean cosine between every two hidden states of a word piece.

    Reads the documents of SOURCE... or one --text, and shows the mean and spread of each offset
    diagonal too (SBERT-WK, Fig. 1). Hidden state 0 is the embedding output.
    """
    from cli.output.progress import Stages, warn_reader
    from cli.output.results import command_line, draw, report, say
    from eval import Loading, inspect_layers

    if bool(sources) == (text is not None):
        raise click.UsageError("give either SOURCE... or --text TEXT")
    given = [] if text is None else [checked_text(text, "--text")]
    reader = source.reader(sources) if sources else None
    choice = encoder.choice()
    with Stages(quiet=quiet) as progress:
        result = inspect_layers(
            corpus_texts(reader) if reader else given,
            choice.encoder,
            limit=limit,
            loading=Loading(choice.device, choice.download),
            progress=progress,
            notify=say,
            command=command_line(),
        )
    if reader:
        warn_reader(reader, say)
    draw(result, plot)
    report(result, output, as_json=as_json)
