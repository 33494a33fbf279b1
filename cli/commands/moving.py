"""Commands that move an index or its content: `export`, `import` and `snapshot`."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from cli.commands.index import merge_note
from cli.options import (
    Command,
    EncoderOptions,
    Location,
    Settings,
    complete_path,
    encoder_options,
    index_option,
    json_option,
    option,
    quiet_option,
)
from cli.output.text import counted, say, tell
from cli.source_options import (
    FIELDS,
    NO_COMPACT,
    FieldOptions,
    IndexOptions,
    field_options,
    index_options,
)
from retriever.settings import setting


@click.command("export", cls=Command)
@click.argument("out", type=click.Path(path_type=Path, allow_dash=True))
@index_option
@option(
    "--vectors",
    is_flag=True,
    help="Write the vectors of the passages into the JSONL too.",
    section="Output",
)
@Settings(
    "names",
    FieldOptions,
    options=[
        option(
            f"--{role}-field",
            metavar="NAME",
            help=f"Name of the JSONL field for the {role}.",
            show_default=role,
            section="Output",
        )
        for role in ("id", "text", "title")
    ],
    leave_out=FIELDS.split(),
)
@quiet_option
@json_option
def export_command(
    out: Path, folder: Location, vectors: bool, names: FieldOptions, quiet: bool, as_json: bool
) -> None:
    """Write documents to OUT.jsonl, or vectors to OUT.npy.

    With - for OUT, JSONL goes to standard output. `retriever index` reads the JSONL back; if it
    was written with --vectors, `retriever import` does so without encoding. All content belongs to
    one commit and is ordered by id. A file appears complete or not at all.
    """
    from cli.output.progress import Stages
    from retriever.documents import Fields
    from retriever.errors import ConfigError
    from retriever.index import Index, export_jsonl, export_npy

    to_stdout = str(out) == "-"
    if to_stdout and as_json:
        raise click.UsageError("--json goes with a file, not with -")
    if not to_stdout and out.suffix not in (".jsonl", ".npy"):
        raise ConfigError(
            f"{out}: expected a file name that ends in .jsonl or .npy, or - for JSONL to standard "
            f"output, found {out.suffix or 'no ending'!r}; choose another"
        )
    fields = names.fields()
    if out.suffix == ".npy" and fields != Fields():
        raise click.UsageError("--id-field, --text-field and --title-field are for JSONL")
    if to_stdout and isinstance(sys.stdout, io.TextIOWrapper):
        # JSON is UTF-8 in any locale.
        sys.stdout.reconfigure(encoding="utf-8")
    with Index.open(folder) as index:
        total = index.info()["documents"]
    with Stages(quiet=quiet) as stage:
        done = stage("documents", total)
        if out.suffix == ".npy":
            written = export_npy(folder, out, progress=done)
        else:
            output = sys.stdout if to_stdout else out
            written = export_jsonl(folder, output, vectors=vectors, names=fields, progress=done)
    if to_stdout:
        return
    facts = {**asdict(written), "files": [str(path) for path in written.files]}
    beside = ", ".join(map(str, written.files[1:]))
    summary = (
        f"{out}: {counted(written.documents, 'document')}, "
        f"{counted(written.passages, 'passage')}" + (f"; beside it {beside}" if beside else "")
    )
    tell(summary, facts, as_json=as_json, quiet=quiet)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Where vectors are."""

    vectors: Path | None = setting(
        None,
        "NumPy file (.npy) or FAISS index of the vectors, one for each document of SOURCE, in its "
        "order.",
        section="Input",
    )
    vector_field: str = setting("vector", "Field that holds the vector of the whole document.")
    no_compact: bool = NO_COMPACT


@click.command("import", cls=Command)
@click.argument("source", shell_complete=complete_path)
@index_option
@Settings("given", ImportOptions, "vectors no_compact")
@field_options
@encoder_options("the one that an export or a folder of shards names")
@index_options("language", "index_type stemming stop_words memory")
@quiet_option
@json_option
def import_command(
    source: str,
    folder: Location,
    given: ImportOptions,
    names: FieldOptions,
    encoder: EncoderOptions,
    asked: IndexOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Add documents with existing vectors; nothing is encoded.

    SOURCE is JSONL that `retriever export --vectors` wrote, JSONL with one vector in each record, a
    folder of `retriever encode --shards`, chroma:DIR or lancedb:DIR (with /NAME of one of several
    collections or tables), or any corpus together with --vectors. With --model, name the encoder
    that made the vectors, unless an export or shards name it. The index is created if needed.
    """
    from cli.output.progress import Stages
    from retriever.index import import_documents

    parts = asked.parts()
    with Stages(quiet=quiet) as stage:
        report = import_documents(
            folder,
            source,
            **encoder.keywords(),
            vectors=given.vectors,
            fields=names.fields(),
            vector_field=given.vector_field,
            analyzer=parts.analyzer,
            structures=parts.structures,
            progress=stage("documents", None),
            compact=not given.no_compact,
        )
    if report.scaled:
        scaled = counted(report.scaled, "vector")
        say(f"note: {scaled} scaled to length 1, as the encoder's own are")
    summary = (
        f"{folder}: {report.added:,} added, {report.updated:,} updated, "
        f"{report.unchanged:,} unchanged"
        + (f", {report.empty:,} empty" if report.empty else "")
        + f"; {counted(report.passages, 'vector')} stored"
        + merge_note(report)
    )
    tell(summary, asdict(report), as_json=as_json, quiet=quiet)


@click.command("snapshot", cls=Command)
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@index_option
@quiet_option
@json_option
def snapshot_command(target: Path, folder: Location, quiet: bool, as_json: bool) -> None:
    """Copy an index into the new folder DIR, and verify the copy.

    Other programs can read and write the index meanwhile. On the same disk the two share the files
    that never change, so that a copy takes little more room than the documents; on another disk
    all files are copied.
    """
    from cli.output.progress import Stages
    from retriever import snapshot_index

    source = folder if isinstance(folder, Path) else folder.folder
    if source is None:
        raise click.UsageError(
            f"{folder}: expected an index folder, found another store; back it up with its own "
            "tools, or copy its documents with `retriever export`"
        )
    with Stages(quiet=quiet) as stage:
        made = snapshot_index(source, target, stage)
    summary = (
        f"{target}: {counted(made.documents, 'document')} in "
        f"{counted(made.segments, 'segment')}, generation {made.generation}; "
        f"{counted(made.linked, 'file')} shared, {made.copied} copied; sound"
    )
    tell(summary, {"folder": str(target), **made._asdict()}, as_json=as_json, quiet=quiet)
