"""Vectors on their way to the database and back, in the forms that pgvector reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.postgres.connection import Connection
from indexes.postgres.schema import Tables


def copy_passages(
    connection: Connection,
    tables: Tables,
    columns: Sequence[NDArray[Any]],
    vectors: NDArray[np.float32],
) -> None:
    """Store passages; `columns` are their ids, documents, starts, stops and numbers of terms."""
    dimensions = vectors.shape[1]
    kinds = (">i8", ">i8", ">i4", ">i4", ">i4")
    form: list[tuple[str, Any]] = [("columns", ">i2")]
    for number, kind in enumerate(kinds):
        form += [(f"size{number}", ">i4"), (f"value{number}", kind)]
    form += [("size", ">i4"), ("head", ">i2", 2), ("vector", ">f4", dimensions)]  # type: ignore[list-item]
    rows = np.zeros(len(vectors), np.dtype(form))
    rows["columns"] = len(kinds) + 1
    for number, (kind, column) in enumerate(zip(kinds, columns, strict=True)):
        rows[f"size{number}"], rows[f"value{number}"] = np.dtype(kind).itemsize, column
    rows["size"], rows["vector"] = 4 + 4 * dimensions, vectors
    rows["head"][:, 0] = dimensions
    statement = tables.statement(
        "COPY {passages} (passage, doc, start, stop, length, embedding) FROM STDIN (FORMAT BINARY)"
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        copy.write(rows.tobytes())
        copy.write(b"\xff\xff")


def unpacked_vectors(packed: Sequence[bytes], dimensions: int | None) -> NDArray[np.float32]:
    """(n, d) float32, from the binary form of pgvector."""
    width = dimensions or 0
    form = np.dtype([("head", ">i4"), ("values", ">f4", (width,))])
    return np.frombuffer(b"".join(packed), form)["values"].astype(np.float32)


def vector_text(vector: NDArray[np.float32]) -> str:
    """A vector as pgvector reads it, to the last bit."""
    return "[" + ",".join(map(repr, vector.tolist())) + "]"
