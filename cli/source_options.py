"""What documents are read from, and how an index analyzes and searches them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options import Settings, complete_path, option
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever.documents import CorpusReader, Fields
    from retriever.index.opened import IndexSettings

sources_argument = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_path
)
NO_COMPACT: Any = setting(False, "Do not merge segments at the end.", section="Index")
types_option = option(
    "--types",
    metavar="NAME=TYPE",
    multiple=True,
    help="Types of CSV and TSV columns: string, number, boolean or date.",
    show_default="by the first 1,000 rows",
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
        from retriever.documents import CorpusReader, TextForm

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


FIELDS = "id_field text_field title_field"
# Of commands that read texts alone.
source_options = Settings("source", SourceOptions)
field_options = Settings("names", FieldOptions, FIELDS, options=[types_option])
document_options = Settings(
    "source",
    SourceOptions,
    f"{FIELDS} sql on_error",
    options=[types_option],
    metavars={"sql": "QUERY", "on_error": "HOW"},
)


def corpus_texts(reader: CorpusReader) -> Iterator[str]:
    """The text of each document as it is encoded: title, space, text."""
    from retriever.documents import passage_text

    for document in reader:
        yield passage_text(document, None)


@dataclass(frozen=True)
class IndexOptions:
    """Settings of an index; None for those that are not given."""

    on_long: Literal["split", "truncate", "error"] | None = setting(
        None,
        "A text beyond the encoder's window: split into passages, cut, or refused.",
        shown="split",
        section="Index",
    )
    context: Literal["title", "headings", "none"] | None = setting(
        None,
        "What the encoder and BM25 read before a passage: its title, that and the headings above "
        "it, or none.",
        shown="headings",
        section="Index",
    )
    overlap: int | None = setting(
        None,
        "Maximum number of word pieces that neighboring passages share.",
        low=0,
        shown="48",
    )
    language: str | None = setting(
        None,
        "Language of the texts, none, or auto for that of each text.",
        shown="auto",
        section="BM25",
    )
    stemming: bool | None = setting(None, "Reduce words to their stems.", shown="yes")
    stop_words: bool | None = setting(None, "Drop stop words such as `the` and `of`.", shown="yes")
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
    )

    def keywords(self) -> dict[str, Any]:
        """The settings that are given, as `Index.create` takes them."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if "memory" in given:
            given["memory_bytes"] = byte_size(given.pop("memory"))
        return given

    def parts(self) -> IndexSettings:
        """The settings that are given, as whole parts."""
        from retriever.index.opened import IndexSettings

        return IndexSettings.of(self.keywords())


def index_options(
    options: str, others: str, shown_defaults: Mapping[str, str] | None = None
) -> Settings:
    """The command takes `asked: IndexOptions`; `others` are keys of --set.

    `shown_defaults` are what the help says, in place of the defaults of a new index.
    """
    taken = {*options.split(), *others.split()}
    left_out = [one.name for one in fields(IndexOptions) if one.name not in taken]
    return Settings(
        "asked",
        IndexOptions,
        options,
        metavars={"on_long": "HOW", "index_type": "TYPE"},
        leave_out=left_out,
        shown_defaults=shown_defaults or {},
    )


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def byte_size(text: str) -> int:
    """A size such as 500MB or 2.5GB (powers of 1,000), or a number of bytes, at least 1."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)", text.strip().upper())
    size = int(float(found[1]) * _UNITS[found[2]]) if found and found[2] in _UNITS else 0
    if size < 1:
        raise click.UsageError(f"memory: expected a size such as 500MB or 2GB, found {text!r}")
    return size
