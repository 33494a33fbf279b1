"""`retriever encode`: vectors for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cli.options.declaring import Command, option
from cli.options.encoder import MINILM, EncoderOptions, encoder_options
from cli.options.output import quiet_option
from cli.options.source import SourceOptions, source_options, sources_argument
from cli.output.progress import counted


@click.command("encode", cls=Command)
@sources_argument
@option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="The .npy file to write; the ids go into a .ids.jsonl file of the same name beside it.",
    section="Output",
)
@source_options
@option(
    "--as-queries",
    is_flag=True,
    help="Encode the texts as queries, with the query prompt instead of the passage prompt.",
    section="Input",
)
@option(
    "--on-long",
    type=click.Choice(["truncate", "error"]),
    default="truncate",
    help="How to treat a text longer than the encoder's window: cut it, or stop.",
    section="Input",
)
@encoder_options(MINILM)
@quiet_option
def command(
    sources: tuple[str, ...],
    output: Path,
    source: SourceOptions,
    as_queries: bool,
    on_long: Literal["truncate", "error"],
    encoder: EncoderOptions,
    quiet: bool,
) -> None:
    """Write the vectors of documents to a NumPy file.

    The file has one float32 row per document, in input order. A title is encoded before its text.
    The ids file has one JSON string per line, in the order of the rows.
    """
    from cli.output.progress import EncodingProgress, warn_reader
    from retriever.indexing.encode import check_output, encode_to_file

    reader = source.reader(sources)
    check_output(output)
    loaded = encoder.choice().load()
    with EncodingProgress(reader, quiet=quiet) as progress:
        written = encode_to_file(
            reader, loaded, output, on_long=on_long, progress=progress, queries=as_queries
        )
    warn_reader(reader, lambda line: click.echo(line, err=True))
    if written.truncated:
        click.echo(
            f"warning: {counted(written.truncated, 'text')} truncated to the encoder's window of "
            f"{loaded.spec.max_length} word pieces",
            err=True,
        )
    if not quiet:
        click.echo(
            f"{output}: {counted(written.rows, 'vector')} of {loaded.spec.dimensions} dimensions; "
            f"ids in {written.ids_file}"
        )
