"""`retriever import`: documents with ready vectors into an index."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cli.options.analyzer import analyzer_options, analyzer_settings
from cli.options.shared import (
    field_options,
    index_option,
    index_type_option,
    json_option,
    memory_option,
    model_options,
    quiet_option,
)


@click.command("import")
@click.argument("source")
@index_option
@click.option(
    "--vectors",
    type=click.Path(path_type=Path),
    help="A .npy file with a row for each document of SOURCE, in its order.",
)
@click.option(
    "--vector-field",
    default="vector",
    show_default=True,
    help="The field that holds one vector for the whole document.",
)
@field_options
@model_options
@analyzer_options
@index_type_option
@memory_option
@quiet_option
@json_option
def command(
    source: str,
    folder: Path,
    vectors: Path | None,
    vector_field: str,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    language: str | None,
    stemming: bool | None,
    stop_words: bool | None,
    index_type: str | None,
    memory: int | None,
    quiet: bool,
    as_json: bool,
    **encoder_options: Any,
) -> None:
    """Add the documents of SOURCE with their ready vectors; nothing is encoded.

    SOURCE is JSONL as `retriever export --vectors` writes it, or with one vector in each record,
    or any corpus with --vectors beside it. The encoder that made the vectors is named with
    --model, unless the file says so that an export puts beside them. The index is made if there
    is none.
    """
    from cli.options.encoder import model_choice
    from cli.output.progress import counting
    from indexes.vectors.choice import StructureSettings
    from retriever.corpus import Fields
    from retriever.indexing.imports import import_documents

    choice = model_choice(encoder_options)
    structures = None
    if index_type is not None or memory is not None:
        structures = StructureSettings(index_type or "auto", memory)
    with counting("documents", None, quiet=quiet) as done:
        report = import_documents(
            folder,
            source,
            choice.encoder,
            device=choice.device,
            download=choice.download,
            vectors=vectors,
            fields=Fields(id_field, text_field, title_field),
            vector_field=vector_field,
            analyzer=analyzer_settings(language, stemming, stop_words),
            structures=structures,
            progress=done,
        )
    if report.scaled:
        click.echo(
            f"note: {report.scaled:,} vectors were brought to length 1, as the encoder's own are",
            err=True,
        )
    if as_json:
        click.echo(json.dumps(asdict(report)))
    elif not quiet:
        click.echo(
            f"{folder}: {report.added:,} added, {report.updated:,} updated, "
            f"{report.unchanged:,} unchanged; {report.passages:,} vectors stored"
        )
