"""`retriever export`: write the documents or vectors of an index to a file."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict
from pathlib import Path

import click

from cli.options import Command, Location, Settings, index_option, json_option, option, quiet_option
from cli.output.text import counted, tell
from cli.source_options import FIELDS, FieldOptions


@click.command("export", cls=Command)
@click.argument("out", type=click.Path(path_type=Path, allow_dash=True))
@index_option
@option(
    "--vectors",
    is_flag=True,
    help="Add the vectors of the passages to the JSONL.",
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

    With - for OUT, JSONL goes to standard output. `retriever index` reads this JSONL. After
    --vectors, `retriever import` reads it without encoding. The file is a snapshot of one commit,
    sorted by id. It appears complete or not at all.
    """
    from cli.output.progress import Stages
    from retriever.documents import Fields
    from retriever.errors import ConfigError
    from retriever.index import Index, export_jsonl, export_npy

    to_stdout = str(out) == "-"
    if to_stdout and as_json:
        raise click.UsageError("--json: OUT is standard output; name a file, or leave --json out")
    if not to_stdout and out.suffix not in (".jsonl", ".npy"):
        raise ConfigError(
            f"{out}: expected a file name that ends in .jsonl or .npy, or - for JSONL to standard "
            f"output, found {out.suffix or 'no ending'!r}; choose another"
        )
    fields = names.fields()
    if out.suffix == ".npy" and fields != Fields():
        raise click.UsageError(
            "--id-field, --text-field and --title-field apply only to JSONL; leave them out"
        )
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
