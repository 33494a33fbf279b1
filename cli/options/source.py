"""What documents are read from, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.declaring import Decorator, complete_path, option, settings

if TYPE_CHECKING:
    from retriever.documents import Fields
    from retriever.documents.reader import CorpusReader

sources_argument = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_path
)

id_field_option = option(
    "--id-field",
    metavar="NAME",
    help="Field that holds the id.",
    shown_default="id or _id; generated from the content if there is none",
    section="Input",
)
text_field_option = option(
    "--text-field",
    metavar="NAME",
    help="Field that holds the text.",
    shown_default="text, contents, passage or sentence, in any case",
    section="Input",
)
title_field_option = option(
    "--title-field",
    metavar="NAME",
    help="Field that holds the title.",
    shown_default="title",
    section="Input",
)
types_option = option(
    "--types",
    metavar="NAME=TYPE,...",
    multiple=True,
    help="Types of CSV and TSV columns that become metadata: string, number, boolean or date.",
    shown_default="what all cells of the first 1,000 rows are",
    section="Input",
)
sql_option = option(
    "--sql",
    metavar="QUERY",
    help="Read the rows of this query; each input is then a SQLite database.",
    section="Input",
)
on_error_option = option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    help="At a malformed record, or a file that cannot be opened: stop, or count and skip it.",
    section="Input",
)


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """Which field holds what, and types of columns; what is not given is detected."""

    id_field: str | None
    text_field: str | None
    title_field: str | None
    types: tuple[str, ...] = ()

    def fields(self) -> Fields:
        """The names, for a reader.

        Raises:
            ConfigError: one field is named twice, or a type is unknown.
            UsageError: a type is malformed.
        """
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

    sql: str | None = None
    on_error: Literal["fail", "skip"] = "fail"

    def reader(
        self, sources: Sequence[str], *, on_empty: Literal["skip", "yield"] = "skip"
    ) -> CorpusReader:
        """A reader of the sources.

        Raises:
            ConfigError: one field is named twice.
            SourceError: a source does not exist.
        """
        from retriever.documents.reader import CorpusReader

        return CorpusReader(
            sources, self.fields(), on_error=self.on_error, on_empty=on_empty, sql=self.sql
        )


_FIELDS: tuple[Decorator, ...] = (id_field_option, text_field_option, title_field_option)
_READING: tuple[Decorator, ...] = (sql_option, on_error_option)
source_options = settings("source", SourceOptions, (*_FIELDS, *_READING))
# Of commands that keep metadata.
field_options = settings("names", FieldOptions, (*_FIELDS, types_option))
document_options = settings("source", SourceOptions, (*_FIELDS, types_option, *_READING))


def corpus_texts(reader: CorpusReader) -> Iterator[str]:
    """The text of each document as it is encoded: title, space, text."""
    from retriever.documents.passages import passage_text

    for document in reader:
        yield passage_text(document, None)
