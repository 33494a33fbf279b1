"""`retriever add`: add documents to an existing index."""

from __future__ import annotations

import click

from cli.commands.index import OnLong, compact_option, index_documents, on_long_option
from cli.options.declaring import Command
from cli.options.encoder import device_option, download_option
from cli.options.index import Location, index_option
from cli.options.output import json_option, quiet_option
from cli.options.source import SourceOptions, document_options, sources_argument


@click.command("add", cls=Command)
@sources_argument
@index_option
@document_options
@on_long_option
@device_option
@download_option
@compact_option
@quiet_option
@json_option
def command(
    sources: tuple[str, ...],
    folder: Location,
    source: SourceOptions,
    on_long: OnLong | None,
    device: str | None,
    download: bool,
    no_compact: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add documents to an existing index.

    As `retriever index`, but an index that does not exist is an error. Encoder, analyzer and search
    structure are the index's own.
    """
    from retriever.index import Index

    index_documents(
        lambda: Index.open(folder, device=device, download=download),
        folder,
        source.reader(sources, on_empty="yield"),
        on_long=on_long,
        prune=False,
        compact=not no_compact,
        quiet=quiet,
        as_json=as_json,
    )
