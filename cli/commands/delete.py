"""`retriever delete`: take documents out of an index."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options.shared import index_option, json_option


@click.command("delete")
@click.argument("ids", nargs=-1, metavar="ID...")
@click.option("--where", help="Delete the documents that match this filter instead.")
@index_option
@json_option
def command(ids: tuple[str, ...], where: str | None, folder: Path, as_json: bool) -> None:
    """Delete documents by ID, or by a filter such as 'year < 2000'.

    They are gone from every answer at once. An id that the index does not hold is named on stderr
    and makes the exit code 2; the others are deleted all the same.
    """
    from cli.options.filters import pointing
    from retriever.index import Index

    if bool(ids) == (where is not None):
        raise click.UsageError("give either ids or --where")
    with Index.open(folder) as index, pointing(where):
        missing = sorted({id_ for id_ in ids if id_ not in index})
        deleted = index.delete(ids) if where is None else index.delete_where(where)
    if as_json:
        click.echo(json.dumps({"deleted": deleted, "missing": missing}, ensure_ascii=False))
    else:
        click.echo(f"{folder}: {deleted:,} documents deleted")
    if missing:
        names = ", ".join(map(repr, missing[:10])) + (", ..." if len(missing) > 10 else "")
        click.echo(f"retriever: {folder}: the index holds no document {names}", err=True)
        click.get_current_context().exit(2)
