"""A table of LanceDB, read in batches through its own package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from retriever.documents import Assembler, Fields, content_id, find_columns
from retriever.documents.sources import SeenIds
from retriever.documents.tables import batch_records
from retriever.encoders.spec import EncoderSpec
from retriever.errors import SourceError, require_extra
from retriever.indexing.ready_documents import ReadyDocument
from retriever.indexing.ready_vectors import finite_rows, wrong_width
from retriever.indexing.stores.store import Metric, Store

_ROWS = 1024
_SUFFIX = ".lance"
_METRICS: dict[str, Metric] = {"cosine": "cosine", "dot": "ip", "l2": "l2"}


def open_lance(path: str, spec: EncoderSpec, fields: Fields, vector_field: str) -> Store:
    """Open a table for reading.

    Args:
        path: of the folder of a local database, and ``/NAME`` of the table if it has several.
        spec: of the encoder that made the vectors.
        fields: names of columns.
        vector_field: name of the column of vectors; the only one of that kind if there is none of
            that name.

    Raises:
        MissingExtraError: lancedb is not installed.
        SourceError: there is no such table, it cannot be read, or lacks a column.
    """
    require_extra("lancedb", "importing from LanceDB", "lancedb")
    import lancedb

    folder, name = _split(path)
    where = f"lancedb:{folder}/{name}"
    try:
        table = lancedb.connect(str(folder)).open_table(name)
        schema = table.schema
        column = _vector_column(schema, vector_field, where)
        metric = _metric(table, column)
    except (OSError, RuntimeError, ValueError) as error:
        raise SourceError(f"{where}: cannot be read ({' '.join(str(error).split())})") from error
    return Store(_documents(table, where, column, spec, fields), metric)


def _split(path: str) -> tuple[Path, str]:
    """The folder and the name of the table.

    Raises:
        SourceError: there is none, or several and no name.
    """
    folder = Path(path)
    if folder.with_name(folder.name + _SUFFIX).is_dir():
        return folder.parent, folder.name
    if folder.suffix == _SUFFIX and folder.is_dir():
        return folder.parent, folder.stem
    names = sorted(one.stem for one in folder.glob(f"*{_SUFFIX}") if one.is_dir())
    if len(names) == 1:
        return folder, names[0]
    if not names:
        raise SourceError(
            f"lancedb:{path}: expected the folder of a LanceDB database, with folders that end in "
            f"{_SUFFIX}, or such a folder and /NAME of a table; check the path"
        )
    raise SourceError(
        f"lancedb:{path}: expected one of the tables {', '.join(names)}; give lancedb:{path}/NAME"
    )


def _vector_column(schema: Any, wanted: str, where: str) -> str:
    from pyarrow import types

    found = [
        field.name
        for field in schema
        if types.is_fixed_size_list(field.type) and types.is_floating(field.type.value_type)
    ]
    if wanted in found:
        return wanted
    if len(found) == 1:
        return str(found[0])
    has = f"the vector columns {', '.join(found)}; name one with --vector-field"
    raise SourceError(
        f"{where}: expected a column {wanted!r} of vectors, found "
        + (has if found else "no vector column; name another table")
    )


def _metric(table: Any, column: str) -> Metric:
    """What the table ranks by: that of its vector index, else LanceDB's default."""
    for index in table.list_indices():
        if column in index.columns:
            stats = table.index_stats(index.name)
            if stats is not None and stats.distance_type in _METRICS:
                return _METRICS[stats.distance_type]
    return "l2"


def _documents(
    table: Any, where: str, column: str, spec: EncoderSpec, fields: Fields
) -> Iterator[ReadyDocument]:
    names = [name for name in table.schema.names if name != column]
    columns = find_columns(names, fields, where)
    assembler = Assembler(fields)
    number = 0
    with closing(SeenIds()) as seen:
        for batch in table.search().select([*names, column]).to_batches(_ROWS):
            vectors = batch.column(column)
            if vectors.type.list_size != spec.dimensions:
                raise SourceError(wrong_width(where, spec, vectors.type.list_size))
            if vectors.null_count:
                raise SourceError(f"{where}: a row has no vector; leave such rows out")
            rows = np.asarray(vectors.flatten(), np.float64).reshape(-1, spec.dimensions)
            records = list(batch_records(where, number, batch.select(names), columns))
            matrix = finite_rows(rows, [record.where for record in records])
            number += len(records)
            for record, row in zip(records, matrix, strict=True):
                document = assembler.split(record)
                id_ = document.id or content_id(document.title, document.text)
                earlier = seen.earlier(id_, str(record.number))
                if earlier is not None and not document.id:
                    continue
                if earlier is not None:
                    raise SourceError(
                        f"{record.where}: the id {id_!r} was given before, in row "
                        f"{earlier}; ids must be unique within a table"
                    )
                document = replace(document, id=id_)
                yield ReadyDocument(document, [(0, len(document.text))], row[np.newaxis])
    if number == 0:
        raise SourceError(f"{where}: holds no rows; check that it is the right one")
