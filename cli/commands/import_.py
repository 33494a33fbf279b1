"""`retriever import`: add documents with existing vectors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from cli.index_options import IndexOptions, index_options
from cli.options import (
    Command,
    EncoderOptions,
    Location,
    Settings,
    complete_path,
    encoder_options,
    index_option,
    json_option,
    quiet_option,
)
from cli.output.text import counted, merge_note, say, tell
from cli.source_options import NO_COMPACT, FieldOptions, field_options
from retriever.settings import setting


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Source of the vectors."""

    vectors: Path | None = setting(
        None,
        "NumPy file (.npy) or FAISS index with one vector for each document of SOURCE, in the "
        "same order.",
        section="Input",
    )
    vector_field: str = setting("vector", "Field with the vector of the whole document.")
    no_compact: bool = NO_COMPACT


@click.command("import", cls=Command)
@click.argument("source", shell_complete=complete_path)
@index_option
@Settings("vector_options", ImportOptions, "vectors no_compact")
@field_options
@encoder_options("the one that an export or a folder of shards names")
@index_options("language", "index_type stemming stop_words memory")
@quiet_option
@json_option
def import_command(
    source: str,
    folder: Location,
    vector_options: ImportOptions,
    names: FieldOptions,
    encoder: EncoderOptions,
    index_settings: IndexOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add documents with existing vectors, without encoding them.

    SOURCE is JSONL of `retriever export --vectors`, or JSONL with one vector in each record. It can
    also be a folder of `retriever encode --shards`, chroma:DIR, lancedb:DIR, or any corpus together
    with --vectors. After DIR, /NAME chooses one of several collections or tables. --model names the
    encoder that made the vectors; exports and shards name it themselves. The index is created if
    needed.
    """
    from cli.output.progress import Stages
    from retriever.index import import_documents

    parts = index_settings.parts()
    with Stages(quiet=quiet) as stage:
        report = import_documents(
            folder,
            source,
            **encoder.keywords(),
            vectors=vector_options.vectors,
            fields=names.fields(),
            vector_field=vector_options.vector_field,
            analyzer=parts.analyzer,
            structures=parts.structures,
            progress=stage("documents", None),
            compact=not vector_options.no_compact,
        )
    if report.scaled:
        scaled = counted(report.scaled, "vector")
        say(f"note: {scaled} scaled to length 1, like the encoder's vectors")
    summary = (
        f"{folder}: {report.added:,} added, {report.updated:,} updated, "
        f"{report.unchanged:,} unchanged"
        + (f", {report.empty:,} empty" if report.empty else "")
        + f"; {counted(report.passages, 'vector')} stored"
        + merge_note(report)
    )
    tell(summary, asdict(report), as_json=as_json, quiet=quiet)
