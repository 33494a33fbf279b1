"""`retriever delete`: delete documents from an index."""

from __future__ import annotations

import json

import click

from cli.options.declaring import Command
from cli.options.index import Location, index_option, pointing, where_option
from cli.options.output import json_option
from cli.output.progress import counted
from cli.output.results import say


@click.command("delete", cls=Command)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@index_option
@where_option("Delete the documents that match, such as 'year < 2000'.")
@json_option
def command(ids: tuple[str, ...], folder: Location, where: str | None, as_json: bool) -> None:
    """Delete documents by id or by filter.

    Deleted documents disappear from all answers at once. If the index does not hold one of the
    ids, the others are deleted, the id is named on stderr, and the exit code is 2.
    """
    from retriever.index import Index

    if bool(ids) == (where is not None):
        raise click.UsageError("give either ids or --where")
    with Index.open(folder) as index, pointing(where):
        missing = sorted({id_ for id_ in ids if id_ not in index})
        deleted = index.delete(ids) if where is None else index.delete_where(where)
    if as_json:
        click.echo(json.dumps({"deleted": deleted, "missing": missing}, ensure_ascii=False))
    else:
        say(f"{folder}: {counted(deleted, 'document')} deleted", err=False)
    if missing:
        names = ", ".join(map(repr, missing[:10])) + (", ..." if len(missing) > 10 else "")
        say(f"retriever: {folder}: the index holds no document {names}")
        click.get_current_context().exit(2)
