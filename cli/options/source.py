"""What documents are read from, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from cli.options.declaring import Decorator, complete_path, option, settings

if TYPE_CHECKING:
    from retriever.corpus import CorpusReader, Fields

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
    shown_default="text, contents, passage or sentence",
    section="Input",
)
title_field_option = option(
    "--title-field",
    metavar="NAME",
    help="Field that holds the title.",
    shown_default="title",
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
    help="At a malformed record: stop, or count and skip it.",
    section="Input",
)


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """Which field holds what; None is detected."""

    id_field: str | None
    text_field: str | None
    title_field: str | None

    def fields(self) -> Fields:
        """The names, for a reader.

        Raises:
            ConfigError: one field is named twice.
        """
        from retriever.corpus import Fields

        return Fields(self.id_field, self.text_field, self.title_field)


@dataclass(frozen=True, slots=True)
class SourceOptions(FieldOptions):
    """How sources are read."""

    sql: str | None
    on_error: Literal["fail", "skip"]

    def reader(self, sources: Sequence[str]) -> CorpusReader:
        """A reader of the sources.

        Raises:
            ConfigError: one field is named twice.
            SourceError: a source does not exist.
        """
        from retriever.corpus import CorpusReader

        return CorpusReader(sources, self.fields(), on_error=self.on_error, sql=self.sql)


_FIELDS: tuple[Decorator, ...] = (id_field_option, text_field_option, title_field_option)
field_options = settings("names", FieldOptions, _FIELDS)
source_options = settings("source", SourceOptions, (*_FIELDS, sql_option, on_error_option))


def corpus_texts(reader: CorpusReader) -> Iterator[str]:
    """The text of each document as it is encoded: title, space, text."""
    from retriever.indexing.add import passage_text

    for document in reader:
        yield passage_text(document, None)
