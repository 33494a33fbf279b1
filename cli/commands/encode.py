"""`retriever encode`: write vectors of documents, or shards of an index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.index_options import IndexOptions, index_options
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Settings,
    encoder_options,
    option,
    quiet_option,
    refuse,
)
from cli.output.progress import EncodingProgress, ShardsProgress, warn_metadata, warn_reader
from cli.output.text import counted, say
from cli.source_options import SourceOptions, sources_argument, types_option
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever.documents import CorpusReader

_OUTPUT = option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write (.npy). The ids go into a .ids.jsonl file with the same name.",
    section="Output",
)


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """The vectors or shards to write, and the number of processes that make shards."""

    output: Path | None = None
    shards: Path | None = setting(
        None,
        "Folder for shards; `retriever import DIR` adds them to an index.",
        section="Output",
    )
    shard_size: int | None = setting(
        None,
        "Maximum number of documents per shard.",
        low=1,
        default_text="10000",
        section="Output",
    )
    as_queries: bool = setting(
        False,
        "Encode the texts as queries: with the query prompt instead of the passage prompt.",
        section="Input",
    )
    workers: int | None = setting(
        None,
        "Number of processes that make shards, each with an encoder and a share of the cores. "
        "With --ray, number of tasks.",
        low=1,
        default_text="1; with --ray one for each GPU, or for each node",
        section="Encoder",
    )
    ray: str | None = setting(
        None, "Make shards on a Ray cluster: auto, local or HOST:PORT.", section="Encoder"
    )


@click.command("encode", cls=Command)
@sources_argument
@Settings("source", SourceOptions, options=[types_option])
@index_options(
    "on_long",
    "context language stemming stop_words",
    {"on_long": "split with --shards, else truncate"},
)
@encoder_options(MINILM, "layers pooling dtype", dtype="auto")
@Settings(
    "target",
    EncodeOptions,
    "shards shard_size as_queries workers ray",
    options=[_OUTPUT],
    metavars={"shards": "DIR", "ray": "ADDRESS"},
)
@quiet_option
def encode_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    index_settings: IndexOptions,
    encoder: EncoderOptions,
    target: EncodeOptions,
    quiet: bool,
) -> None:
    """Encode documents into a NumPy file or into shards of an index.

    The NumPy file has one float32 row per document, in input order. The ids file has one JSON
    string per line, in the same order. A text beyond the window is cut. The title is encoded before
    the text.

    Shards contain all that an index needs; several processes or machines can make them. Run the
    same command again to resume an interrupted run. It checks and keeps finished shards. Settings
    that you leave out are then the settings of the folder.
    """
    if (target.output is None) == (target.shards is None):
        raise click.UsageError("expected either --output or --shards")
    reader = source.reader(sources)
    if target.output is not None:
        _encode_to_file(reader, target.output, index_settings, encoder, target, quiet=quiet)
    elif target.shards is not None:
        _encode_to_shards(reader, target.shards, index_settings, encoder, target, quiet=quiet)


def _encode_to_file(
    reader: CorpusReader,
    output: Path,
    index_settings: IndexOptions,
    encoder: EncoderOptions,
    target: EncodeOptions,
    *,
    quiet: bool,
) -> None:
    """Write the vectors of the documents into one NumPy file."""
    refuse("shard_size workers ray context language stemming stop_words types", "it needs --shards")
    if index_settings.on_long == "split":
        raise click.UsageError("--on-long split: a row is a document; use --shards")
    from retriever.encoders import ModelChoice
    from retriever.index import check_output, encode_to_file, ids_file_of

    check_output(output, ".npy")
    model = ModelChoice(encoder.model, encoder.device, encoder.download).load()
    with EncodingProgress(reader, quiet=quiet) as progress:
        rows, truncated = encode_to_file(
            reader,
            model,
            output,
            on_long=index_settings.on_long or "truncate",
            progress=progress,
            queries=target.as_queries,
        )
    warn_reader(reader)
    if truncated:
        say(
            f"warning: {counted(truncated, 'text')} truncated to the encoder's window of "
            f"{model.spec.max_length} tokens"
        )
    if not quiet:
        say(
            f"{output}: {counted(rows, 'vector')} of {model.spec.dimensions} dimensions; "
            f"ids in {ids_file_of(output)}",
            err=False,
        )


def _encode_to_shards(
    reader: CorpusReader,
    shards: Path,
    index_settings: IndexOptions,
    encoder: EncoderOptions,
    target: EncodeOptions,
    *,
    quiet: bool,
) -> None:
    """Write shards of an index into a folder, and report what was written."""
    from retriever import encode_shards

    if target.as_queries:
        raise click.UsageError("--as-queries: shards hold passages; use --output")
    try:
        with ShardsProgress(reader, quiet=quiet) as progress:
            report = encode_shards(
                reader,
                shards,
                **encoder.keywords(),
                analyzer=index_settings.analyzer(),
                on_long=index_settings.on_long,
                context=index_settings.context,
                shard_size=target.shard_size,
                workers=target.workers,
                ray=target.ray,
                progress=progress,
            )
    except KeyboardInterrupt:
        say(f"{shards}: finished shards are kept; run the same command again to resume")
        raise
    warn_reader(reader)
    warn_metadata(reader)
    for line in report.damaged:
        say(f"warning: {line.partition('; ')[0]}; made again")
    if report.truncated:
        say(f"warning: {counted(report.truncated, 'document')} truncated to the encoder's window")
    if not quiet:
        say(
            f"{shards}: {counted(report.shards, 'shard')}, {report.made:,} of them new; "
            f"{counted(report.documents, 'document')}, {counted(report.passages, 'passage')} of "
            f"{report.dimensions} dimensions"
            + (f" ({counted(report.split, 'document')} split)" if report.split else ""),
            err=False,
        )
