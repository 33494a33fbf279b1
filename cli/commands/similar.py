"""`retriever similar`: the documents that are most like one of the index."""

from __future__ import annotations

import json
import shutil

import click

from cli.commands.query import MAX_WIDTH, RankingOptions, is_styled, ranking_options
from cli.index_access import in_option, open_index
from cli.options import (
    Command,
    Location,
    index_option,
    json_option,
    marking_filter_errors,
    option,
    where_option,
)
from cli.output.text import say


@click.command("similar", cls=Command)
@click.argument("place", metavar="ID")
@in_option
@index_option
@ranking_options("k mode", leave_out=("recall",))
@where_option
@option("--full", is_flag=True, help="Print whole passages instead of excerpts.", section="Output")
@json_option
def similar_command(
    place: str,
    sources: tuple[str, ...],
    folder: Location,
    ranking: RankingOptions,
    where: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """Find documents that are similar to a document of the index.

    ID is the id of a document or a place that `retriever query` prints, such as `notes.md:120-141`.
    The passage that begins there is the query. Its stored vector is used; nothing is encoded.
    """
    from cli.output.hits import hit_text
    from retriever.documents import find_part

    with open_index(folder, sources) as index, marking_filter_errors(where):
        part = find_part(place, index.get)
        hits = index.more_like(part.document.id, ranking.settings(), start=part.start, where=where)
    cells = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
    styled = is_styled()
    for hit in hits:
        if as_json:
            click.echo(json.dumps(hit.to_json(), ensure_ascii=False))
        else:
            text = hit_text(hit, (), cells=cells, styled=styled, full=full)
            click.echo(text, color=styled)
    if not hits:
        say("no hits: no other document of the index is similar")
