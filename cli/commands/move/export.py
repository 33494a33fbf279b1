"""`retriever export`: the content of an index, for other programs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click

from cli.options.declaring import Command, option, settings
from cli.options.index import Location, index_option
from cli.options.output import json_option, quiet_option
from cli.options.source import FieldOptions
from cli.output.progress import counted
from cli.output.results import say


@click.command("export", cls=Command)
@click.argument("out", type=click.Path(path_type=Path, allow_dash=True))
@index_option
@option(
    "--vectors",
    is_flag=True,
    help="Write the vectors of the passages into the JSONL too.",
    section="Output",
)
@settings(
    "names",
    FieldOptions,
    [
        option(
            f"--{role}-field",
            metavar="NAME",
            help=f"Name of the JSONL field for the {role}.",
            shown_default=role,
            section="Output",
        )
        for role in ("id", "text", "title")
    ],
)
@quiet_option
@json_option
def command(
    out: Path, folder: Location, vectors: bool, names: FieldOptions, quiet: bool, as_json: bool
) -> None:
    """Write documents to OUT.jsonl, or vectors to OUT.npy.

    With - for OUT, JSONL goes to standard output. `retriever index` reads the JSONL back; if it
    was written with --vectors, `retriever import` does so without encoding. All content belongs to
    one commit and is ordered by id. A file appears complete or not at all.
    """
    from cli.output.progress import counting
    from retriever.documents import Fields
    from retriever.errors import ConfigError
    from retriever.index import Index
    from retriever.indexing.export import export_jsonl, export_npy

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
    with counting("documents", total, quiet=quiet) as done:
        if out.suffix == ".npy":
            written = export_npy(folder, out, progress=done)
        else:
            output = sys.stdout if to_stdout else out
            written = export_jsonl(folder, output, vectors=vectors, names=fields, progress=done)
    if to_stdout:
        return
    if as_json:
        facts = {
            "documents": written.documents,
            "passages": written.passages,
            "files": [str(path) for path in written.files],
        }
        click.echo(json.dumps(facts, ensure_ascii=False))
    elif not quiet:
        beside = ", ".join(map(str, written.files[1:]))
        say(
            f"{out}: {counted(written.documents, 'document')}, "
            f"{counted(written.passages, 'passage')}" + (f"; beside it {beside}" if beside else ""),
            err=False,
        )
