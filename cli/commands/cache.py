"""`retriever cache`: the indexes that `query --in` made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    help="Remove all these indexes. The next `query --in` makes its index again.",
    section="Index",
)
@json_option
def cache_command(clear: bool, as_json: bool) -> None:
    """List the indexes that `query --in` made.

    They are in `$RETRIEVER_CACHE/folders`, else in `$XDG_CACHE_HOME/retriever/folders` or
    `~/.cache/retriever/folders`.
    """
    from retriever.files import folder_cache

    cache = folder_cache()
    indexes = [_describe(path) for path in sorted(cache.glob("*.index"))]
    remaining = list(indexes)
    if clear:
        remaining = [facts for facts in indexes if not _remove(facts)]
    if as_json:
        for facts in indexes:
            click.echo(json.dumps(facts, ensure_ascii=False))
    elif clear:
        removed = [facts for facts in indexes if facts not in remaining]
        say(f"{cache}: {_total(removed)} removed", err=False)
    else:
        if indexes:
            for line in table(
                ["source", "documents", "size", "index"], _rows(indexes), left=(0, 3)
            ):
                say(line, err=False)
        say(f"{cache}: {_total(indexes)}", err=False)
    if clear and remaining:
        click.get_current_context().exit(2)


def _rows(indexes: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the cells of the table of indexes."""
    return [
        [
            ", ".join(facts["sources"]) or facts["problem"] or "-",
            f"{facts['documents']:,}",
            human_bytes(facts["bytes"]),
            facts["index"],
        ]
        for facts in indexes
    ]


def _total(indexes: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of indexes and their size, in words."""
    size = human_bytes(sum(facts["bytes"] for facts in indexes))
    return f"1 index, {size}" if len(indexes) == 1 else f"{len(indexes):,} indexes, {size}"


def _remove(facts: dict[str, Any]) -> bool:
    """Remove an index, and record that in `facts`; report one that cannot be removed."""
    from retriever.errors import RetrieverError
    from retriever.files import remove_index

    try:
        remove_index(Path(facts["index"]))
    except RetrieverError as error:
        facts["removed"] = False
        say(f"retriever: {error}")
        return False
    facts["removed"] = True
    return True


def _describe(path: Path) -> dict[str, Any]:
    """Return the sources, documents and bytes of an index, or the problem of opening it."""
    from retriever.errors import RetrieverError
    from retriever.index import Index

    facts: dict[str, Any] = {
        "index": str(path),
        "sources": [],
        "documents": 0,
        "bytes": _size(path),
        "problem": None,
    }
    try:
        with Index.open(path) as index:
            facts["sources"] = index.sources
            facts["documents"] = len(index)
    except RetrieverError as error:
        facts["problem"] = str(error)
    return facts


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder, while a writer may remove some of them."""
    size = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += 0 if file.is_dir() else file.lstat().st_size
    return size
