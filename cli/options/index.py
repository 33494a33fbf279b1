"""Which index a command works on, and which of its documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cli.options.completion import complete_path
from cli.options.declaring import F, option

# Defaults in help pages of commands that have an index; the second for those that can create one.
OWN = "the index's own"
OWN_OR = "the index's own; {} for a new one"

index_option = option(
    "-i",
    "--index",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    default=".retriever",
    envvar="RETRIEVER_INDEX",
    show_envvar=True,
    help="Index folder.",
    section="Index",
)


indexes_argument = click.argument(
    "indexes", nargs=-1, metavar="[[NAME=]FOLDER]...", shell_complete=complete_path
)


def named_indexes(given: tuple[str, ...]) -> dict[str, Path]:
    """The folders of `indexes_argument` by name; without any, that of $RETRIEVER_INDEX.

    Raises:
        click.UsageError: two have the same name.
    """
    folders: dict[str, Path] = {}
    for one in given or (os.environ.get("RETRIEVER_INDEX", ".retriever"),):
        name, equals, rest = one.partition("=")
        folder = Path(rest if equals and not Path(one).exists() else one)
        if folder == Path(one):
            name = folder.absolute().name.removesuffix(".index").lstrip(".") or "index"
        if name in folders:
            raise click.UsageError(f"two indexes are called {name!r}: give one as NAME=FOLDER")
        folders[name] = folder
    return folders


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
