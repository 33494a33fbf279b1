"""Options that `retriever serve` and `retriever mcp` share."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import Decorator, EncoderOptions, complete_path, option

if TYPE_CHECKING:
    from retriever.index import Index


def host_option(effect: str) -> Decorator:
    """Return --host, the address to `effect` on."""
    return option(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help=f"Address to {effect} on. If other machines can reach it, give --token too.",
        section="Service",
    )


token_option = option(
    "--token",
    default="",
    metavar="SECRET",
    envvar="RETRIEVER_TOKEN",
    show_envvar=True,
    help="Require this bearer token from every client. Use the environment variable: other users "
    "of this machine can see command lines.",
    section="Service",
)


indexes_argument = click.argument(
    "indexes", nargs=-1, metavar="[[NAME=]INDEX]...", shell_complete=complete_path
)


def open_indexes(
    stack: ExitStack,
    indexes: tuple[str, ...],
    query_map: Path | None,
    synonyms: Path | None,
    encoder: EncoderOptions,
    **keywords: Any,
) -> dict[str, Index]:
    """Open the indexes that a command names; return them by name. The stack closes them.

    Without any, it opens the index that $RETRIEVER_INDEX names, else .retriever.
    """
    from retriever import Index, load_query_map, load_synonyms, open_store

    synonym_groups = None if synonyms is None else load_synonyms(synonyms)
    by_name: dict[str, Index] = {}
    for argument in indexes or (os.environ.get("RETRIEVER_INDEX", ".retriever"),):
        name, equals, location = argument.partition("=")
        if not equals or "://" in name or Path(argument).exists():
            name = ""
            location = argument
        store = open_store(location)
        name = name or store.name
        if name in by_name:
            raise click.UsageError(
                f"two indexes have the name {name!r}; give them different names with NAME=INDEX"
            )
        index = stack.enter_context(Index.open(store, **encoder.keywords(), **keywords))
        if query_map is not None:
            index.query_map = load_query_map(query_map)
        index.synonyms = synonym_groups
        by_name[name] = index
    return by_name


def url_host(host: str) -> str:
    """Return a host as URLs write it."""
    return f"[{host}]" if ":" in host else host
