"""`retriever import`: documents with existing vectors into an index."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import click

from cli.commands.index import compact_option, merge_note
from cli.options.analyzer import AnalyzerOptions, analyzer_options
from cli.options.declaring import Command, complete_path, option
from cli.options.encoder import EncoderOptions, encoder_options
from cli.options.index import OWN_OR, Location, index_option
from cli.options.output import json_option, quiet_option
from cli.options.source import FieldOptions, field_options
from cli.options.structure import StructureOptions, structure_options
from cli.output.progress import counted
from cli.output.results import say


class ShardNumbers(click.ParamType[range]):
    """``0-3`` or ``7``."""

    name = "range"

    def convert(
        self, value: str | range, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """The numbers."""
        if isinstance(value, range):
            return value
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            self.fail(f"expected FIRST-LAST such as 0-3, found {value!r}", param, ctx)
        return range(int(found[1]), int(found[2] or found[1]) + 1)


@click.command("import", cls=Command)
@click.argument("source", shell_complete=complete_path)
@index_option
@option(
    "--vectors",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="NumPy file (.npy) or FAISS index of the vectors, one for each document of SOURCE, in its "
    "order.",
    section="Input",
)
@option(
    "--vector-field",
    metavar="NAME",
    default="vector",
    help="Field that holds the vector of the whole document.",
    section="Input",
)
@option(
    "--shards",
    type=ShardNumbers(),
    metavar="FIRST-LAST",
    help="Which shards of a folder to import, counted from 0, such as 0-3 or 7.",
    shown_default="all",
    section="Input",
)
@field_options
@encoder_options("the one that an export or a folder of shards names")
@analyzer_options(OWN_OR)
@structure_options(OWN_OR.format("auto"))
@compact_option
@quiet_option
@json_option
def command(
    source: str,
    folder: Location,
    vectors: Path | None,
    vector_field: str,
    shards: range | None,
    names: FieldOptions,
    encoder: EncoderOptions,
    analyzer: AnalyzerOptions,
    structure: StructureOptions,
    no_compact: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add documents with existing vectors; nothing is encoded.

    SOURCE is JSONL that `retriever export --vectors` wrote, JSONL with one vector in each record, a
    folder of `retriever encode --shards`, chroma:DIR or lancedb:DIR (with /NAME of one of several
    collections or tables), or any corpus together with --vectors. With --model, name the encoder
    that made the vectors, unless an export or shards name it. The index is created if needed.
    """
    from cli.output.progress import counting
    from retriever.indexing.imports import import_documents

    choice = encoder.choice()
    with counting("documents", None, quiet=quiet) as done:
        report = import_documents(
            folder,
            source,
            choice.encoder,
            device=choice.device,
            download=choice.download,
            vectors=vectors,
            fields=names.fields(),
            vector_field=vector_field,
            analyzer=analyzer.settings(),
            structures=structure.settings(),
            progress=done,
            compact=not no_compact,
            shards=shards,
        )
    if report.scaled:
        scaled = counted(report.scaled, "vector")
        say(f"note: {scaled} scaled to length 1, as the encoder's own are")
    if as_json:
        click.echo(json.dumps(asdict(report)))
    elif not quiet:
        say(
            f"{folder}: {report.added:,} added, {report.updated:,} updated, "
            f"{report.unchanged:,} unchanged"
            + (f", {report.empty:,} empty" if report.empty else "")
            + f"; {counted(report.passages, 'vector')} stored"
            + merge_note(report),
            err=False,
        )
