"""`retriever index`: put documents into an index."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import click

from cli.options.analyzer import analyzer_options, analyzer_settings
from cli.options.indexing import index_documents, on_long_option
from cli.options.shared import (
    field_options,
    index_option,
    index_type_option,
    json_option,
    memory_option,
    model_options,
    on_error_option,
    quiet_option,
)


@click.command("index")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@index_option
@field_options
@model_options
@on_long_option
@analyzer_options
@index_type_option
@memory_option
@on_error_option
@click.option("--recreate", is_flag=True, help="Start over; the old index serves until then.")
@quiet_option
@json_option
def command(
    sources: tuple[str, ...],
    folder: Path,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_long: Literal["split", "truncate", "error"] | None,
    language: str | None,
    stemming: bool | None,
    stop_words: bool | None,
    index_type: str | None,
    memory: int | None,
    on_error: Literal["fail", "skip"],
    recreate: bool,
    quiet: bool,
    as_json: bool,
    **encoder_options: Any,
) -> None:
    """Add the documents of SOURCE... to an index, which is made if there is none.

    A SOURCE is a .jsonl, .csv, .tsv, .parquet or .txt file (a passage a line), gzipped or not, a
    folder of .txt and .md files, or - for standard input. Documents whose id the index holds are
    replaced; unchanged ones cost no encoding. An interrupted run goes on where it was when it is
    started again.
    """
    from cli.options.encoder import model_choice
    from indexes.vectors.choice import StructureSettings
    from retriever.corpus import CorpusReader, Fields
    from retriever.index import Index
    from retriever.indexing.passages import PassageSettings
    from retriever.indexing.recreation import recreated

    reader = CorpusReader(sources, Fields(id_field, text_field, title_field), on_error=on_error)
    choice = model_choice(encoder_options)
    analyzer = analyzer_settings(language, stemming, stop_words)
    passages = None
    if on_long is not None and on_long != "error":
        passages = PassageSettings(on_long=on_long)
    structures = None
    if index_type is not None or memory is not None:
        structures = StructureSettings(index_type or "auto", memory)
    make: Callable[..., AbstractContextManager[Index]] = recreated if recreate else Index.create
    index_documents(
        lambda: make(
            folder,
            choice.encoder,
            device=choice.device,
            download=choice.download,
            analyzer=analyzer,
            passages=passages,
            structures=structures,
        ),
        folder,
        reader,
        on_long=on_long,
        prune=recreate,
        quiet=quiet,
        as_json=as_json,
    )
