"""`retriever cache`: the indexes that `query --in` made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cli.options import Command, json_option, option
from cli.output.text import human_bytes, say
from retriever.terminal import table


@click.command("cache", cls=Command)
@option(
    "--clear",
    is_flag=True,
    help="Remove them all; the next `query --in` makes its index again.",
    section="Index",
)
@json_option
def cache_command(clear: bool, as_json: bool) -> None:
    """List the indexes that `query --in` made.

    They are in `$RETRIEVER_CACHE/folders`, else in `$XDG_CACHE_HOME/retriever/folders` or
    `~/.cache/retriever/folders`.
    """
    from retriever.files import folder_cache, remove_index

    cache = folder_cache()
    indexes = [_described(path) for path in sorted(cache.glob("*.index"))] if cache.exists() else []
    if clear:
        for facts in indexes:
            remove_index(Path(facts["index"]))
    if as_json:
        for facts in indexes:
            click.echo(json.dumps(facts, ensure_ascii=False))
        return
    size = human_bytes(sum(facts["bytes"] for facts in indexes))
    if clear:
        say(f"{cache}: {_indexes(len(indexes))} removed, {size}", err=False)
        return
    if indexes:
        rows = [
            [
                ", ".join(facts["sources"]) or facts["problem"] or "-",
                f"{facts['documents']:,}",
                human_bytes(facts["bytes"]),
                facts["index"],
            ]
            for facts in indexes
        ]
        for line in table(["source", "documents", "size", "index"], rows, left=(0, 3)):
            say(line, err=False)
    say(f"{cache}: {_indexes(len(indexes))}, {size}", err=False)


def _indexes(number: int) -> str:
    return "1 index" if number == 1 else f"{number:,} indexes"


def _described(path: Path) -> dict[str, Any]:
    """Return the sources, documents and bytes of one index, or why it cannot be opened."""
    from retriever.errors import RetrieverError
    from retriever.index import Index

    facts: dict[str, Any] = {
        "index": str(path),
        "sources": [],
        "documents": 0,
        "bytes": sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir()),
        "problem": None,
    }
    try:
        with Index.open(path) as index:
            facts["sources"] = index.sources
            facts["documents"] = len(index)
    except RetrieverError as error:
        facts["problem"] = str(error)
    return facts
