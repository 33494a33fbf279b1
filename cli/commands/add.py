"""`retriever add`: put documents into an index that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cli.options.indexing import index_documents, on_long_option
from cli.options.shared import (
    device_option,
    download_option,
    field_options,
    index_option,
    json_option,
    on_error_option,
    quiet_option,
)


@click.command("add")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@index_option
@field_options
@on_long_option
@on_error_option
@device_option
@download_option
@quiet_option
@json_option
def command(
    sources: tuple[str, ...],
    folder: Path,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_long: Literal["split", "truncate", "error"] | None,
    on_error: Literal["fail", "skip"],
    device: str | None,
    download: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add the documents of SOURCE... to an index that exists, as `retriever index` does.

    Where there is no index, nothing is made. Encoder, analyser and all else are the index's own.
    """
    from retriever.corpus import CorpusReader, Fields
    from retriever.index import Index

    reader = CorpusReader(sources, Fields(id_field, text_field, title_field), on_error=on_error)
    index_documents(
        lambda: Index.open(folder, device=device, download=download),
        folder,
        reader,
        on_long=on_long,
        prune=False,
        quiet=quiet,
        as_json=as_json,
    )
