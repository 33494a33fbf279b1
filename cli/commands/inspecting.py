"""`retriever inspect`: hidden states, words, SBERT-WK weights, and keys of settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Settings,
    encoder_options,
    json_option,
    option,
    other_settings,
)
from cli.output.progress import Stages, warn_reader
from cli.output.results import ResultOptions, command_line, result_options
from cli.output.text import say
from cli.source_options import SourceOptions, corpus_texts, source_options, sources_argument
from retriever.settings import Setting, setting

if TYPE_CHECKING:
    from retriever.documents import CorpusReader


@dataclass(frozen=True)
class ReadOptions:
    """How much is read."""

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
    shown: ResultOptions,
) -> None:
    """Show the mean cosine between every two hidden states of a word piece.

    Reads the documents of SOURCE..., and shows the mean and spread of each offset diagonal too
    (SBERT-WK, Fig. 1). Hidden state 0 is the embedding output.
    """
    from eval import inspect_layers

    _inspect(inspect_layers, source.reader(sources), encoder, shown, read)


def _inspect(
    function: Callable[..., Any],
    reader: CorpusReader,
    encoder: EncoderOptions,
    shown: ResultOptions,
    settings: ReadOptions,
) -> None:
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
    shown.show(result)


@dataclass(frozen=True)
class WordOptions(ReadOptions):
    """Which words are shown."""

    min_count: int = setting(5, "Minimum number of occurrences of a word.", low=1)
    top: int = setting(20, "Maximum number of words to show in each group.", low=1)


@click.command("words", cls=Command)
@sources_argument
@source_options
@Settings("counted", WordOptions)
@encoder_options(MINILM)
@result_options("the report")
def words_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    counted: WordOptions,
    encoder: EncoderOptions,
    shown: ResultOptions,
) -> None:
    """Show the words of SOURCE... whose adjacent-layer cosines vary least, moderately and most.

    Words are in lower case. The vector of a word is the mean over its pieces, its variance the mean
    over its occurrences (SBERT-WK, Table I).
    """
    from eval import inspect_words

    _inspect(inspect_words, source.reader(sources), encoder, shown, counted)


@click.command("weights", cls=Command)
@click.argument("text")
@option(
    "--unit",
    type=click.Choice(["word", "piece"]),
    default="word",
    help="Show whole words or word pieces.",
    section="Output",
)
@encoder_options(MINILM)
@result_options(plot=True)
def weights_command(
    text: str,
    unit: Literal["word", "piece"],
    encoder: EncoderOptions,
    shown: ResultOptions,
) -> None:
    """Show the weight of each word of TEXT in its SBERT-WK vector; the weights sum to 1.

    Each word is followed by its weight. --json adds the weights of the layers in each word.
    """
    from eval import inspect_weights

    result = inspect_weights(text, encoder.model, unit=unit, loading=encoder.loading(), notify=say)
    shown.show(result)


@click.command("settings", cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@json_option
def settings_command(words: tuple[str, ...], as_json: bool) -> None:
    """List settings by their keys, with values, default, meaning and source.

    Without COMMAND, settings of encoders. They follow the model in --model, as in
    all-MiniLM-L6-v2::layers=0,6::pooling=cls. With COMMAND, such as `train encoder`, those that the
    command takes with --set.
    """
    from retriever.encoders import encoder_keys

    found = _of_command(words) if words else encoder_keys()
    if as_json:
        facts = [
            {
                "key": one.key,
                "values": one.expected,
                "default": one.shown,
                "meaning": one.description,
                "source": one.source,
            }
            for one in found
        ]
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    for one in found:
        shown = f"; default: {one.shown}" if one.shown else ""
        say(f"{one.key}: {one.expected}{shown}", err=False)
        source = f" ({one.source})" if one.source else ""
        say(f"    {one.description}{source}", err=False)


def _of_command(words: tuple[str, ...]) -> Iterable[Setting]:
    from cli.main import cli

    command: click.Command | None = cli
    context = click.Context(cli, info_name="retriever")
    for word in words:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
    if command is None or isinstance(command, click.Group):
        raise click.UsageError(f"expected a command, found {' '.join(words)!r}")
    declared = other_settings(command)
    if not declared:
        raise click.UsageError(f"`retriever {' '.join(words)}` takes no --set: see its --help")
    return declared.values()
