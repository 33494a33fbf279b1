"""`retriever inspect words`: words whose hidden states vary least and most."""

from __future__ import annotations

from dataclasses import dataclass

import click

from cli.commands.inspect.layers import ReadOptions, show_inspection
from cli.options import MINILM, Command, EncoderOptions, Settings, encoder_options
from cli.output.results import ResultOptions, result_options
from cli.source_options import SourceOptions, source_options, sources_argument
from retriever.settings import setting


@dataclass(frozen=True)
class WordOptions(ReadOptions):
    """Choice of the words to show."""

    min_count: int = setting(5, "Minimum number of occurrences of a word.", low=1)
    top: int = setting(20, "Maximum number of words in each group.", low=1)


@click.command("words", cls=Command)
@sources_argument
@source_options
@Settings("settings", WordOptions)
@encoder_options(MINILM)
@result_options("the report")
def words_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    settings: WordOptions,
    encoder: EncoderOptions,
    results: ResultOptions,
) -> None:
    """Show which words change most and least between layers.

    The groups are the words of SOURCE... whose adjacent-layer cosines vary least, moderately and
    most. Words are in lower case. The vector of a word is the mean over its tokens. Its variance is
    the mean over its occurrences (SBERT-WK, Table I).
    """
    from eval import inspect_words

    show_inspection(inspect_words, source.reader(sources), encoder, results, settings)
