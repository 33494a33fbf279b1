"""`retriever delete`: delete documents of an index."""

from __future__ import annotations

import click

from cli.options import (
    Command,
    Location,
    index_option,
    json_option,
    marking_filter_errors,
    option,
    where_option,
)
from cli.output.progress import Stages
from cli.output.text import counted, say, tell


@click.command("delete", cls=Command)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@index_option
@where_option
@option(
    "--erase",
    is_flag=True,
    help="Rewrite the index, so that no file contains a byte of deleted documents.",
    section="Index",
)
@json_option
def delete_command(
    ids: tuple[str, ...], folder: Location, where: str | None, erase: bool, as_json: bool
) -> None:
    """Delete documents by id or by filter.

    Deleted documents disappear from all answers at once. If the index lacks an id, the command
    deletes the other documents, and names that id on standard error. Then the exit code is 2.
    """
    from retriever.index import Index

    if bool(ids) == (where is not None):
        raise click.UsageError("give either ids or --where")
    with Stages() as stage, Index.open(folder) as index, marking_filter_errors(where):
        missing = sorted({id_ for id_ in ids if id_ not in index})
        if where is None:
            deleted = index.delete(ids, erase=erase, stage=stage)
        else:
            deleted = index.delete_where(where, erase=erase, stage=stage)
    summary = f"{folder}: {counted(deleted, 'document')} {'erased' if erase else 'deleted'}"
    tell(summary, {"deleted": deleted, "missing": missing}, as_json=as_json)
    if missing:
        names = ", ".join(map(repr, missing[:10])) + (", ..." if len(missing) > 10 else "")
        note = "; if it was deleted before, its bytes are erased now" if erase else ""
        say(f"retriever: {folder}: the index holds no document {names}{note}")
        click.get_current_context().exit(2)
