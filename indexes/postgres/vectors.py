"""Vectors in the database: their forms on the way, and the HNSW graph over them.

pgvector's graph takes vectors of up to 2,000 dimensions, or 4,000 in half precision. The kept
vectors are float32 in both cases, and scores are computed from them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from indexes.errors import ConfigError
from indexes.postgres.connection import Connection
from indexes.postgres.location import Location
from indexes.postgres.schema import Tables
from indexes.protocol import Stage, StructureSettings
from indexes.vectors.choice import AUTO, FLAT, FLAT_LIMIT

GRAPH = "hnsw"
GRAPH_RECALL = 0.95
_WHOLE, _HALF = 2000, 4000
# Search efforts whose recall is measured, with so many queries.
EFFORTS = (40, 80, 160, 320, 640)
SAMPLED = 50
_NOISE = 0.5


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


def check_structures(settings: StructureSettings, dimensions: int | None, place: Location) -> None:
    """Refuse what a database does not have.

    Raises:
        ConfigError: the structure is one of FAISS's, or has no graph for vectors of this size.
    """
    kind = settings.index_type
    if kind not in (AUTO, FLAT, GRAPH):
        raise ConfigError(
            f"{place}: expected the index type auto, flat or hnsw, found {kind!r}, which only an "
            "index folder has"
        )
    if settings.memory_bytes is not None:
        raise ConfigError(
            f"{place}: a memory limit applies to index folders alone; the server's own settings "
            "say what it takes"
        )
    if kind == GRAPH and (dimensions or 0) > _HALF:
        raise ConfigError(
            f"{place}: expected vectors of at most {_HALF:,} dimensions for hnsw, found "
            f"{dimensions:,}; use flat"
        )


def wants_graph(settings: StructureSettings, passages: int, dimensions: int | None) -> bool:
    """Whether an index of this size has a graph."""
    if not passages or dimensions is None or dimensions > _HALF:
        return False
    return settings.index_type == GRAPH or (settings.index_type == AUTO and passages > FLAT_LIMIT)


def distance(column: str, dimensions: int | None) -> str:
    """SQL for the negative inner product with a vector, as the graph orders by it."""
    if (dimensions or 0) <= _WHOLE:
        return f"{column} <#> %s::vector"
    return f"({column}::halfvec({dimensions:d})) <#> %s::vector::halfvec({dimensions:d})"


def effort_for(efforts: Sequence[tuple[int, float]], recall: float) -> int | None:
    """The least effort that reaches a recall; None where only a scan does."""
    return next((effort for effort, found in efforts if found >= recall), None)


def build_graph(connection: Connection, tables: Tables, dimensions: int, stage: Stage) -> None:
    """Build the graph in the place of an earlier one, and measure it; other writers wait.

    Not CONCURRENTLY, which waits for every reader of the database, this process's own included.
    The caller is in no transaction.
    """
    done = stage("building the HNSW graph", 1)
    drop_graph(connection, tables)
    column, kind = "embedding", "vector_ip_ops"
    if dimensions > _WHOLE:
        column, kind = f"(embedding::halfvec({dimensions:d}))", "halfvec_ip_ops"
    with connection.transaction():
        connection.execute(
            "SELECT set_config('maintenance_work_mem', '1GB', true) WHERE "
            "pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes('1GB')"
        )
        connection.execute(
            tables.statement(
                f"CREATE INDEX {{name}} ON {{passages}} USING hnsw ({column} {kind})",
                name=sql.Identifier(f"hnsw_{tables.number:d}"),
            )
        )
    done(1)
    efforts = _measured(connection, tables, dimensions, stage)
    connection.execute(
        "UPDATE retriever.indexes SET efforts = %s WHERE number = %s",
        (json.dumps(efforts), tables.number),
    )


def drop_graph(connection: Connection, tables: Tables) -> None:
    """Drop the graph if there is one, which waits for readers; the caller is in no transaction."""
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '10s'")
        connection.execute(
            "UPDATE retriever.indexes SET efforts = NULL WHERE number = %s AND efforts IS NOT NULL",
            (tables.number,),
        )
        connection.execute(tables.statement("DROP INDEX IF EXISTS {hnsw}"))


def graph_is_valid(connection: Connection, tables: Tables) -> bool:
    """Whether the database has the graph, complete."""
    row = connection.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)",
        (f"retriever.hnsw_{tables.number:d}",),
    ).fetchone()
    return row is not None and bool(row[0])


def _measured(
    connection: Connection, tables: Tables, dimensions: int, stage: Stage
) -> list[tuple[int, float]]:
    """(ef_search, recall@10) against the scan, for queries that are stored vectors with noise."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(
            tables.statement(
                "SELECT embedding FROM {passages} ORDER BY passage %% 7919, passage LIMIT %s"
            ),
            (SAMPLED,),
        )
        chosen = unpacked_vectors([row[0] for row in cursor], dimensions)
    done = stage("measuring recall", len(chosen))
    noise = np.random.default_rng(0).standard_normal(chosen.shape)
    noise *= _NOISE * np.linalg.norm(chosen, axis=1, keepdims=True)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    found = dict.fromkeys(EFFORTS, 0)
    wanted = 0
    near = tables.statement(
        f"SELECT passage FROM {{passages}} ORDER BY {distance('embedding', dimensions)} LIMIT 10"  # noqa: S608
    )
    scan = tables.statement(
        "SELECT passage FROM {passages} ORDER BY (embedding <#> %s::vector) + 0 LIMIT 10"
    )
    for query in (chosen + noise).astype(np.float32):
        text = vector_text(query)
        with connection.transaction():
            exact = {row[0] for row in connection.execute(scan, (text,))}
            connection.execute("SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
            for effort in EFFORTS:
                connection.execute("SELECT set_config('hnsw.ef_search', %s, true)", (str(effort),))
                found[effort] += len(exact & {row[0] for row in connection.execute(near, (text,))})
        wanted += len(exact)
        done(1)
    return [(effort, round(hits / max(wanted, 1), 4)) for effort, hits in found.items()]
