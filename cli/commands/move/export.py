"""`retriever export`: what an index holds, for other programs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click

from cli.options.shared import index_option, json_option, quiet_option


@click.command("export")
@click.argument("out", type=click.Path(path_type=Path, allow_dash=True))
@index_option
@click.option("--vectors", is_flag=True, help="The vectors of the passages too; for .npy always.")
@click.option("--id-field", help="The field to write the id into. [default: id]")
@click.option("--text-field", help="The field to write the text into. [default: text]")
@click.option("--title-field", help="The field to write the title into. [default: title]")
@quiet_option
@json_option
def command(
    out: Path,
    folder: Path,
    vectors: bool,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write the documents of an index into OUT.jsonl, its vectors into OUT.npy, or JSONL into `-`.

    `retriever index` reads the JSONL back, and with --vectors `retriever import` does, which
    encodes nothing. All of it belongs to one commit, in the order of ids. Files appear complete
    or not at all.
    """
    from cli.output.progress import counting
    from retriever.corpus import Fields
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
    names = Fields(id_field, text_field, title_field)
    if out.suffix == ".npy" and names != Fields():
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
            written = export_jsonl(folder, output, vectors=vectors, names=names, progress=done)
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
        click.echo(
            f"{out}: {written.documents:,} documents, {written.passages:,} passages"
            + (f"; beside it {beside}" if beside else "")
        )
