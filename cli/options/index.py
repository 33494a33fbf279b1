"""Which index a command works on, and how its texts are analyzed and its vectors searched."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import click

from cli.options.declaring import RARE, F, Section, complete_path, option, settings

if TYPE_CHECKING:
    from retriever import Store, StructureSettings
    from retriever.documents.analyzer import AnalyzerSettings


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


@dataclass(frozen=True, slots=True)
class AnalyzerOptions:
    """Options of the analyzer; None for those that are not given."""

    language: str | None
    stemming: bool | None
    stop_words: bool | None

    def settings(self, base: AnalyzerSettings | None = None) -> AnalyzerSettings | None:
        """The given settings, the rest as in `base`; None if none is given.

        Raises:
            ConfigError: the language is unknown, or has no stemmer or stop words.
        """
        from retriever.documents.analyzer import AnalyzerSettings

        asked = {name: value for name, value in asdict(self).items() if value is not None}
        if not asked:
            return None
        return AnalyzerSettings.from_json({**(base or AnalyzerSettings()).to_json(), **asked})


def analyzer_options(default: str) -> Callable[[F], Callable[..., Any]]:
    """--language, --stemming and --stop-words: the command takes `analyzer: AnalyzerOptions`.

    Args:
        default: what the help says happens without an option; {} stands for the default of a new
            index.
    """
    return settings(
        "analyzer",
        AnalyzerOptions,
        [
            option(
                "--language",
                metavar="NAME",
                help="Language of the texts, or none.",
                shown_default=default.format("english"),
                section="BM25",
            ),
            option(
                "--stemming/--no-stemming",
                default=None,
                help="Reduce words to their stems.",
                shown_default=default.format("yes"),
                section="BM25",
            ),
            option(
                "--stop-words/--no-stop-words",
                default=None,
                help="Drop stop words such as `the` and `of`.",
                shown_default=default.format("yes"),
                section="BM25",
            ),
        ],
    )


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def byte_size(text: str) -> int:
    """A size such as 500MB or 2.5GB (powers of 1,000), or a number of bytes, at least 1."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)", text.strip().upper())
    if found is None or found[2] not in _UNITS:
        raise click.BadParameter(f"expected a size such as 500MB or 2GB, found {text!r}")
    size = int(float(found[1]) * _UNITS[found[2]])
    if size < 1:
        raise click.BadParameter(f"expected 1 byte or more, found {text!r}")
    return size


def _name(text: str) -> str:
    if not text.strip():
        raise click.BadParameter("expected a name or a FAISS factory string, found nothing")
    return text


@dataclass(frozen=True, slots=True)
class StructureOptions:
    """Options of the search structure; None for those that are not given."""

    index_type: str | None
    memory: int | None

    def settings(self, base: StructureSettings | None = None) -> StructureSettings | None:
        """The given settings, the rest as in `base`; `base` itself if none is given."""
        if self.index_type is None and self.memory is None:
            return base
        from retriever import StructureSettings

        base = base or StructureSettings()
        return StructureSettings(
            self.index_type or base.index_type, self.memory or base.memory_bytes
        )


def structure_options(default: str, section: Section = RARE) -> Callable[[F], Callable[..., Any]]:
    """--index-type and --memory: the command takes `structure: StructureOptions`.

    Args:
        default: what the help says is the index type without the option.
        section: of the help page.
    """
    return settings(
        "structure",
        StructureOptions,
        [
            option(
                "--index-type",
                type=_name,
                metavar="TYPE",
                help="Search structure of large segments: auto, flat, hnsw, ivf, ivf-sq8, ivf-pq "
                "or a FAISS factory string.",
                shown_default=default,
                section=section,
            ),
            option(
                "--memory",
                type=byte_size,
                metavar="SIZE",
                help="Memory limit for the structure that auto chooses, such as 2GB.",
                shown_default="no limit",
                section=section,
            ),
        ],
    )
