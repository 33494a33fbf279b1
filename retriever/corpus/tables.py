"""Tables that a program holds, of pandas, polars or Arrow: a document per row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from retriever.corpus.documents import Document
from retriever.corpus.fields import TEXT_NAMES, Assembler, Fields, detected, find_columns, listed
from retriever.corpus.identity import content_id
from retriever.corpus.parquet import batch_records
from retriever.errors import MissingExtraError, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 512
_ARROW = "__arrow_c_stream__"
# How pandas names an index without a name among the columns.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


def is_table(given: object) -> bool:
    """Whether iterating over an object gives its columns or blocks rather than its rows."""
    kind = type(given)
    names = ("columns", "schema") if hasattr(kind, _ARROW) else ("columns",)
    found = [getattr(kind, name, None) for name in names]
    return any(one is not None and not callable(one) for one in found)


def table_documents(table: Any) -> Iterator[Document]:
    """The rows of a table, converted as those of a Parquet file; some are in memory at a time.

    Args:
        table: with the columns ``text``, and if it has them ``id`` and ``title``. Every other
            column is metadata; null cells of it are skipped.

    Raises:
        TypeError: the table has no Arrow interface.
        MissingExtraError: pyarrow is not installed.
        SourceError: there is no column of texts, or a column or a cell cannot be read.
    """
    name = type(table).__name__
    if not hasattr(type(table), _ARROW):
        raise TypeError(
            f"documents: expected a table with the Arrow interface, as those of pandas 2.2, polars "
            f"and pyarrow have, found a {name} without; give its rows as mappings"
        )
    try:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_stream(table)
    except ImportError as error:
        raise MissingExtraError(
            f'{name}: reading a table needs pyarrow: pip install "layer-retriever[parquet]"; or '
            "give its rows as mappings"
        ) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        found = " ".join(str(error).split())
        raise SourceError(f"{name}: has no Arrow form: {found}; convert that column") from error
    names = [one for one in reader.schema.names if not _UNNAMED_INDEX.fullmatch(one)]
    if detected(TEXT_NAMES, names, Fields()) is None:
        raise SourceError(
            f"{name}: no column of texts (looked for {listed(TEXT_NAMES)}); the columns are "
            f"{listed(names)}: rename the one that holds the texts to 'text'"
        )
    return _documents(reader, names, name)


def _documents(reader: pa.RecordBatchReader, names: list[str], name: str) -> Iterator[Document]:
    columns = find_columns(names, Fields(), name)
    assembler = Assembler(Fields())
    before = 0
    for batch in reader:
        for start in range(0, batch.num_rows, _ROWS):
            rows = batch.select(names).slice(start, _ROWS)
            for record in batch_records(name, before, rows, columns):
                id_, text, title, metadata = assembler.split(record)
                yield Document(
                    content_id(title, text) if id_ is None else id_, text, title, metadata
                )
            before += rows.num_rows
