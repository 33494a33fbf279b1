"""`retriever encode`: vectors for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from cli.options.shared import field_options, model_options, on_error_option, quiet_option


@click.command("encode")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="The .npy file to write; the ids go beside it, into the same name with .ids.jsonl.",
)
@field_options
@model_options
@click.option(
    "--on-long",
    type=click.Choice(["truncate", "error"]),
    default="truncate",
    show_default=True,
    help="What to do with a text longer than the window.",
)
@click.option(
    "--as-queries", is_flag=True, help="The texts are queries: the query prompt goes before them."
)
@on_error_option
@quiet_option
def command(
    sources: tuple[str, ...],
    output: Path,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_long: Literal["truncate", "error"],
    as_queries: bool,
    on_error: Literal["fail", "skip"],
    quiet: bool,
    **encoder_options: Any,
) -> None:
    """Encode the documents of SOURCE... into one float32 row each, in input order.

    The title, if there is one, is encoded before the text. The ids file holds one JSON string a
    line, in the order of the rows.
    """
    from cli.options.encoder import model_choice
    from cli.output.progress import EncodingProgress, warn_reader
    from retriever.corpus import CorpusReader, Fields
    from retriever.indexing.encode import check_output, encode_to_file

    reader = CorpusReader(sources, Fields(id_field, text_field, title_field), on_error=on_error)
    check_output(output)
    encoder = model_choice(encoder_options).load()
    with EncodingProgress(reader, quiet=quiet) as progress:
        written = encode_to_file(
            reader, encoder, output, on_long=on_long, progress=progress, queries=as_queries
        )
    warn_reader(reader, lambda line: click.echo(line, err=True))
    if written.truncated:
        click.echo(
            f"warning: the end of {written.truncated:,} texts was cut off: they are longer than "
            f"the window of {encoder.spec.max_length} word pieces",
            err=True,
        )
    if not quiet:
        click.echo(
            f"{output}: {written.rows:,} vectors of {encoder.spec.dimensions} dimensions; "
            f"ids in {written.ids_file}"
        )
