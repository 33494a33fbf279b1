"""What documents are read from, and how an index analyzes and searches them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from cli.options import F, complete_path, option, settings
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever import StructureSettings
    from retriever.documents import Fields
    from retriever.documents.analyzer import AnalyzerSettings
    from retriever.documents.reader import CorpusReader

OnLong = Literal["split", "truncate", "error"]
Context = Literal["title", "headings", "none"]


sources_argument = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_path
)
on_long_option = option(
    "--on-long",
    type=click.Choice(["split", "truncate", "error"]),
    metavar="HOW",
    help="A text beyond the window: split, truncate or error.",
    shown_default="split",
    section="Index",
)
CONTEXT = "headings"


def passage_keywords(
    on_long: OnLong | None, context: Context | None, overlap: int | None = None
) -> dict[str, Any]:
    """The settings that are given, as `Index.create` takes them; ``error`` is none of an index."""
    given = {"on_long": on_long, "context": context, "overlap": overlap}
    return {name: value for name, value in given.items() if value not in (None, "error")}


@dataclass(frozen=True, slots=True)
class DivisionOptions:
    """How long texts are divided; None for what is not given."""

    overlap: int | None = setting(
        None,
        "Maximum number of word pieces that neighboring passages share.",
        low=0,
        shown="48",
        section="Index",
    )


# The command takes `division: DivisionOptions`.
division_options = settings("division", DivisionOptions)


def context_option(shown: str) -> Callable[[F], F]:
    """What goes before the text of each passage; `shown` is the default in the help."""
    return option(
        "--context",
        "passage_context",
        type=click.Choice(get_args(Context)),
        help="What the encoder and BM25 read before a passage: its title, that and the headings "
        "above it, or none.",
        shown_default=shown,
        section="Index",
    )


compact_option = option(
    "--no-compact", is_flag=True, help="Do not merge segments at the end.", section="Index"
)
types_option = option(
    "--types",
    metavar="NAME=TYPE",
    multiple=True,
    help="Types of CSV and TSV columns: string, number, boolean or date.",
    shown_default="by the first 1,000 rows",
    section="Input",
)


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """Which field holds what, and types of columns; what is not given is detected."""

    id_field: str | None = setting(
        None, "Field that holds the id.", shown="id, _id or generated", section="Input"
    )
    text_field: str | None = setting(
        None,
        "Field that holds the text.",
        shown="text, contents, passage or sentence",
        section="Input",
    )
    title_field: str | None = setting(
        None, "Field that holds the title.", shown="title", section="Input"
    )
    types: tuple[str, ...] = ()

    def fields(self) -> Fields:
        """The names, for a reader."""
        from retriever.documents import Fields

        types: dict[str, Any] = {}
        for given in self.types:
            # A name may hold a comma.
            found = re.findall(r"(.+?)=(\w+)(?:,|\Z)", given)
            known = len(types)
            types.update(found)
            if ",".join(map("=".join, found)) != given or len(types) != known + len(found):
                raise click.UsageError(
                    f"--types: expected NAME=TYPE once for each column, with commas between, such "
                    f"as zip=string,born=date, found {given!r}"
                )
        return Fields(self.id_field, self.text_field, self.title_field, types)


@dataclass(frozen=True, slots=True)
class SourceOptions(FieldOptions):
    """How sources are read."""

    sql: str | None = setting(
        None, "Read the rows of this query of SQLite databases.", section="Input"
    )
    on_error: Literal["fail", "skip-files", "skip"] = setting(
        "skip-files",
        "At a malformed record or file: stop, or count and skip it; skip-files skips unreadable "
        "files of folders alone.",
        section="Input",
    )
    encoding: str | None = setting(
        None,
        "Encoding of text files.",
        shown="UTF-8, or as their first bytes say",
        section="Input",
    )
    delimiter: str | None = setting(
        None, "Character between the cells of CSV.", shown="comma", section="Input"
    )
    no_header: bool = setting(
        False, "CSV begins with a row of data; its columns are 1, 2, ...", section="Input"
    )

    def reader(
        self,
        sources: Sequence[str],
        *,
        on_empty: Literal["skip", "yield"] = "skip",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> CorpusReader:
        """What reads the sources; a document without text is skipped, or yielded."""
        from retriever.documents.reader import CorpusReader
        from retriever.documents.sources import TextForm

        delimiter = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        return CorpusReader(
            sources,
            self.fields(),
            on_error=self.on_error,
            on_empty=on_empty,
            sql=self.sql,
            form=TextForm(self.encoding, delimiter, not self.no_header),
            include=include,
            exclude=exclude,
        )


_NAMES = "id_field text_field title_field"
# Of commands that read texts alone.
source_options = settings("source", SourceOptions)
field_options = settings("names", FieldOptions, _NAMES, options=[types_option])
document_options = settings(
    "source",
    SourceOptions,
    f"{_NAMES} sql on_error",
    options=[types_option],
    metavars={"sql": "QUERY", "on_error": "HOW"},
)


def corpus_texts(reader: CorpusReader) -> Iterator[str]:
    """The text of each document as it is encoded: title, space, text."""
    from retriever.documents.passages import passage_text

    for document in reader:
        yield passage_text(document, None)


@dataclass(frozen=True, slots=True)
class AnalyzerOptions:
    """Options of the analyzer; None for those that are not given."""

    language: str | None = setting(
        None,
        "Language of the texts, none, or auto for that of each text.",
        shown="auto",
        section="BM25",
    )
    stemming: bool | None = setting(
        None, "Reduce words to their stems.", shown="yes", section="BM25"
    )
    stop_words: bool | None = setting(
        None, "Drop stop words such as `the` and `of`.", shown="yes", section="BM25"
    )

    def settings(self, base: AnalyzerSettings | None = None) -> AnalyzerSettings | None:
        """The given settings, the rest as in `base`; None if none is given."""
        from retriever.documents.analyzer import AnalyzerSettings

        asked = {name: value for name, value in asdict(self).items() if value is not None}
        if not asked:
            return None
        return replace(base or AnalyzerSettings(), **asked)


# The command takes `analyzer: AnalyzerOptions`.
analyzer_options = settings("analyzer", AnalyzerOptions, "language")

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def byte_size(text: str) -> int:
    """A size such as 500MB or 2.5GB (powers of 1,000), or a number of bytes, at least 1."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)", text.strip().upper())
    if found is None or found[2] not in _UNITS:
        raise click.UsageError(f"memory: expected a size such as 500MB or 2GB, found {text!r}")
    size = int(float(found[1]) * _UNITS[found[2]])
    if size < 1:
        raise click.UsageError(f"memory: expected 1 byte or more, found {text!r}")
    return size


@dataclass(frozen=True, slots=True)
class StructureOptions:
    """Options of the search structure; None for those that are not given."""

    index_type: str | None = setting(
        None,
        "Search structure: auto, flat, hnsw, ivf, ivf-sq8, ivf-pq or a FAISS factory string.",
        shown="auto",
        section="Index",
    )
    memory: str | None = setting(
        None,
        "Memory limit for the structure that auto chooses, such as 2GB.",
        shown="no limit",
        section="Index",
    )

    def settings(self, base: StructureSettings | None = None) -> StructureSettings | None:
        """The given settings, the rest as in `base`; `base` itself if none is given."""
        memory = None if self.memory is None else byte_size(self.memory)
        if self.index_type is None and memory is None:
            return base
        if self.index_type is not None and not self.index_type.strip():
            raise click.UsageError(
                "--index-type: expected a name or a FAISS factory string, found nothing"
            )
        from retriever import StructureSettings

        base = base or StructureSettings()
        return StructureSettings(self.index_type or base.index_type, memory or base.memory_bytes)


# The command takes `structure: StructureOptions`.
structure_options = settings(
    "structure", StructureOptions, "index_type", metavars={"index_type": "TYPE"}
)
