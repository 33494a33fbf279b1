"""Options of what documents are read from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options import Settings, complete_path, option
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever.documents import CorpusReader, Fields

sources_argument = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_path
)
NO_COMPACT: Any = setting(False, "Do not merge segments at the end.", section="Index")
types_option = option(
    "--types",
    metavar="NAME=TYPE",
    multiple=True,
    help="Type of a CSV or TSV column: string, number, boolean or date; repeatable.",
    show_default="by the first 1,000 rows",
    section="Input",
)


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """Names of fields and types of columns; those that are not given are detected."""

    id_field: str | None = setting(
        None, "Field with the id.", default_text="id, _id or generated", section="Input"
    )
    text_field: str | None = setting(
        None,
        "Field with the text.",
        default_text="text, contents, passage or sentence",
        section="Input",
    )
    title_field: str | None = setting(
        None, "Field with the title.", default_text="title", section="Input"
    )
    types: tuple[str, ...] = ()

    def fields(self) -> Fields:
        """Return the names and types for a reader."""
        from retriever.documents import Fields

        types: dict[str, Any] = {}
        for text in self.types:
            # A name may hold a comma.
            pairs = re.findall(r"(.+?)=(\w+)(?:,|\Z)", text)
            expected_number = len(types) + len(pairs)
            types.update(pairs)
            if ",".join(map("=".join, pairs)) != text or len(types) != expected_number:
                raise click.UsageError(
                    f"--types: expected NAME=TYPE once for each column, with commas between, such "
                    f"as zip=string,born=date, found {text!r}"
                )
        return Fields(self.id_field, self.text_field, self.title_field, types)


@dataclass(frozen=True, slots=True)
class SourceOptions(FieldOptions):
    """Form of the sources, and the treatment of malformed records."""

    sql: str | None = setting(
        None, "Read the rows of this query from a SQLite database.", section="Input"
    )
    on_error: Literal["fail", "skip-files", "skip"] = setting(
        "skip-files",
        "What to do with a malformed record or an unreadable file: stop, or count and skip it. "
        "skip-files skips only files in folders.",
        section="Input",
    )
    encoding: str | None = setting(
        None,
        "Encoding of text files.",
        default_text="UTF-8, or as their first bytes say",
        section="Input",
    )
    delimiter: str | None = setting(
        None, "Character between the cells of a CSV file.", default_text="comma", section="Input"
    )
    no_header: bool = setting(
        False, "CSV files have no header row; the columns are named 1, 2, ...", section="Input"
    )

    def reader(
        self,
        sources: Sequence[str],
        *,
        on_empty: Literal["skip", "yield"] = "skip",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        as_kinds: Sequence[str] = (),
        archives: bool = False,
    ) -> CorpusReader:
        """Return the reader of the sources, which skips or yields documents without text."""
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
            as_kinds=as_kinds,
            archives=archives,
        )


FIELDS = "id_field text_field title_field"
# For commands that read texts alone.
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
    """Yield the text of each document as it is encoded: title, space, text."""
    from retriever.documents import passage_text

    for document in reader:
        yield passage_text(document, None)
