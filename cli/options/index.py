"""Which index a command works on, and which of its documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Union

import click

from cli.options.declaring import F, complete_path, option

if TYPE_CHECKING:
    from retriever import Store

# Where an index is: a folder, or another store.
Location = Union[Path, "Store"]

# Defaults in help pages of commands that have an index; the second for those that can create one.
OWN = "the index's own"
OWN_OR = "the index's own; {} for a new one"


class IndexLocation(click.ParamType[Location]):
    """A folder, or the URL of another store, which is opened so that no password is printed."""

    name = "index"

    def convert(
        self, value: str | Location, param: click.Parameter | None, ctx: click.Context | None
    ) -> Location:
        """A path, or a store."""
        if not isinstance(value, str):
            return value
        if "://" not in value:
            return Path(value)
        # Imported only now, so that help pages stay fast.
        from retriever import open_store

        return open_store(value)


index_option = option(
    "-i",
    "--index",
    "folder",
    type=IndexLocation(),
    metavar="INDEX",
    default=".retriever",
    envvar="RETRIEVER_INDEX",
    show_envvar=True,
    shell_complete=complete_path,
    help="Index folder, or the URL of another store.",
    section="Index",
)


def index_folder(location: Location) -> Path:
    """The folder of an index, where a command works on its files.

    Raises:
        click.UsageError: the index is in another store.
    """
    if isinstance(location, Path):
        return location
    if location.folder is None:
        raise click.UsageError(
            f"{location}: expected an index folder, found another store; back it up with its own "
            "tools, or copy its documents with `retriever export`"
        )
    return location.folder


indexes_argument = click.argument(
    "indexes", nargs=-1, metavar="[[NAME=]INDEX]...", shell_complete=complete_path
)


def named_indexes(given: tuple[str, ...]) -> dict[str, Store]:
    """The indexes of `indexes_argument` by name; without any, that of $RETRIEVER_INDEX.

    Raises:
        click.UsageError: two have the same name.
        What `open_store` raises.
    """
    from retriever import open_store

    found: dict[str, Store] = {}
    for one in given or (os.environ.get("RETRIEVER_INDEX", ".retriever"),):
        name, equals, rest = one.partition("=")
        if not equals or "://" in name or Path(one).exists():
            name, rest = "", one
        store = open_store(rest)
        name = name or store.name
        if name in found:
            raise click.UsageError(f"two indexes are called {name!r}: give one as NAME=INDEX")
        found[name] = store
    return found


def where_option(effect: str) -> Callable[[F], F]:
    """--where: `effect` says what happens to the documents that match."""
    return option("--where", metavar="FILTER", help=effect, section="Search")


@contextmanager
def pointing(where: str | None) -> Iterator[None]:
    """If the filter `where` does not parse, print it with a caret below the faulty character."""
    try:
        yield
    except Exception as error:
        # Imported only now, so that help pages stay fast.
        from retriever import FilterError, point_at

        if isinstance(error, FilterError) and error.position is not None:
            click.echo(point_at(where or "", error.position), err=True)
        raise
