"""`retriever inspect layers`: cosines between the hidden states of a word piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.options import MINILM, Command, EncoderOptions, Settings, encoder_options
from cli.output.progress import Stages, warn_reader
from cli.output.results import ResultOptions, command_line, result_options
from cli.output.text import say
from cli.source_options import SourceOptions, corpus_texts, source_options, sources_argument
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever.documents import CorpusReader


@dataclass(frozen=True)
class ReadOptions:
    """Amount of text to read."""

    limit: int = setting(1000, "Maximum number of texts to read.", low=1)


@click.command("layers", cls=Command)
@sources_argument
@Settings("read", ReadOptions)
@source_options
@encoder_options(MINILM)
@result_options("the report and its figure", plot=True)
def layers_command(
    sources: tuple[str, ...],
    read: ReadOptions,
    source: SourceOptions,
    encoder: EncoderOptions,
    results: ResultOptions,
) -> None:
    """Show the mean cosine between the hidden states of a token.

    The command reads the documents of SOURCE... and compares every two hidden states. It also shows
    the mean and spread of each offset diagonal (SBERT-WK, Fig. 1). Hidden state 0 is the embedding
    output.
    """
    from eval import inspect_layers

    show_inspection(inspect_layers, source.reader(sources), encoder, results, read)


def show_inspection(
    function: Callable[..., Any],
    reader: CorpusReader,
    encoder: EncoderOptions,
    results: ResultOptions,
    settings: ReadOptions,
) -> None:
    """Call an inspection of `eval` on the texts of `reader`, and show its result."""
    with Stages() as progress:
        result = function(
            corpus_texts(reader),
            encoder.model,
            loading=encoder.loading(),
            progress=progress,
            notify=say,
            command=command_line(),
            **asdict(settings),
        )
    warn_reader(reader)
    results.show(result)
