"""The collections of an index: their fields, and what a row of each holds.

==============  ==================================================================================
documents       one row or more for each version of a document: its id, title and metadata with
                the first; text, hash, passages and checksum as JSON, cut into pieces that fit
passages_<d>    one row for each version of a passage of d dimensions: vector, terms, and what
                filters read of its document
terms           one row for each term and commit: the change of the number of passages that hold it
states          see `indexes.milvus.state`
==============  ==================================================================================

Rows of the first three have ``build``, which tells apart the indexes in the same collections (one
of each tenant, and one that is to replace another), and is their partition key; ``added`` and
``removed``, the numbers of the commits from which and until which the row counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings, weights
from indexes.errors import ConfigError
from indexes.folder.documents import document_checksum, metadata_json
from indexes.milvus.connection import Connection, Row
from indexes.milvus.facts import facts_of, number_of
from indexes.protocol import NewDocument, StructureSettings
from indexes.vectors.choice import AUTO, FLAT

NEVER = 2**62
"""The value of ``removed`` of a row that nothing has removed."""
# Bytes of a string, and elements of an array: limits of Milvus.
_MOST_BYTES, _MOST_ELEMENTS = 65_535, 4096
# Numbers of the dimensions of a sparse vector are below it; the first is kept for passages without
# terms, whose vector would be empty.
_SPARSE_DIMENSIONS = 2**32 - 2
_PARTITIONS = 16
_HNSW = {"M": 32, "efConstruction": 200}
# How the sparse vectors are saturated; other settings are ranked by a bound.
INDEXED = BM25Settings()

_NO_FACTS: Row = {"facts": [], "values": {}}

DOCUMENT_HEAD = ("document", "head")
PASSAGE = ("passage", "document", "id")
TERMS = ("length", "counts")


class Names:
    """The names of the collections of an index."""

    def __init__(self, index: str) -> None:
        self.states = f"{index}_states"
        self.documents = f"{index}_documents"
        self.terms = f"{index}_terms"
        self.passages_prefix = f"{index}_passages_"

    def passages(self, dimensions: int) -> str:
        """That of passages with vectors of so many dimensions."""
        return f"{self.passages_prefix}{dimensions}"


def create_collections(
    connection: Connection, names: Names, dimensions: int, structures: StructureSettings
) -> None:
    """Make those of the collections of rows that are missing."""
    from pymilvus import DataType, MilvusClient

    held = set(connection.collections())
    if names.documents not in held:
        schema = _versioned(names.documents)
        schema.add_field("document", DataType.INT64)
        schema.add_field("key", DataType.INT64)
        schema.add_field("part", DataType.INT64)
        schema.add_field("head", DataType.VARCHAR, max_length=_MOST_BYTES)
        schema.add_field("piece", DataType.VARCHAR, max_length=_MOST_BYTES)
        _add_facts(schema)
        create_plain(connection, names.documents, schema, num_partitions=_PARTITIONS)
    if names.terms not in held:
        schema = _versioned(names.terms)
        schema.add_field("key", DataType.INT64)
        schema.add_field("term", DataType.VARCHAR, max_length=_MOST_BYTES)
        schema.add_field("change", DataType.INT64)
        create_plain(connection, names.terms, schema, num_partitions=_PARTITIONS)
    passages = names.passages(dimensions)
    if passages not in held:
        schema = _versioned(passages)
        schema.add_field("passage", DataType.INT64)
        schema.add_field("document", DataType.INT64)
        schema.add_field("id", DataType.VARCHAR, max_length=_MOST_BYTES)
        schema.add_field("length", DataType.INT64)
        schema.add_field("mean", DataType.DOUBLE)
        schema.add_field("counts", DataType.VARCHAR, max_length=_MOST_BYTES)
        _add_array(schema, "terms")
        _add_facts(schema)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
        indexes = MilvusClient.prepare_index_params()
        add_vector_index(indexes, connection, structures)
        if has_sparse(connection):
            schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
            indexes.add_index(
                "sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="IP", params={}
            )
        connection.create(passages, schema, indexes, num_partitions=_PARTITIONS)


def create_plain(connection: Connection, name: str, schema: Any, **options: Any) -> None:
    """Make a collection without vectors of its own: Milvus asks for one in each."""
    from pymilvus import DataType, MilvusClient

    schema.add_field("unused", DataType.FLOAT_VECTOR, dim=2)
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index("unused", index_type="FLAT", metric_type="IP", params={})
    connection.create(name, schema, indexes, **options)


def add_vector_index(indexes: Any, connection: Connection, structures: StructureSettings) -> None:
    """Declare the search structure of the vectors.

    Raises:
        ConfigError: Milvus has no such structure, or Milvus Lite loses hits with it.
    """
    name = index_type(connection, structures)
    parameters = _HNSW if name == "HNSW" else {}
    indexes.add_index("vector", index_type=name, metric_type="IP", params=parameters)


def index_type(connection: Connection, structures: StructureSettings) -> str:
    """Milvus's name of a search structure: `auto` is HNSW, and FLAT in Milvus Lite.

    Raises:
        ConfigError: see `add_vector_index`.
    """
    lite = connection.location.file is not None
    known = {FLAT: "FLAT", "hnsw": "HNSW", "diskann": "DISKANN", AUTO: "FLAT" if lite else "HNSW"}
    name = known.get(structures.index_type)
    if name is None:
        raise ConfigError(
            f"{connection.location}: index type: expected auto, flat, hnsw or diskann, found "
            f"{structures.index_type!r}, which Milvus does not have under that name"
        )
    if lite and name != "FLAT":
        raise ConfigError(
            f"{connection.location}: index type: expected auto or flat, found "
            f"{structures.index_type!r}, with which Milvus Lite loses hits of filtered queries"
        )
    return name


def has_sparse(connection: Connection) -> bool:
    """Whether Milvus has sparse vectors; without them, BM25 reads every passage with a term."""
    return not connection.version().startswith(("v2.2", "2.2", "v2.3", "2.3"))


def visible(build: int, commit: int) -> str:
    """The expression that selects the rows of an index that count as of a commit."""
    return f"build == {build} and added <= {commit} and removed > {commit}"


def document_rows(
    document: NewDocument, number: int, first_passage: int, metadata: str | None = None
) -> list[Row]:
    """The rows of a document, without ``row``, ``build``, ``added`` and ``removed``.

    Args:
        document: to be stored.
        number: of the document.
        first_passage: the id of its first passage.
        metadata: as JSON; None for that of the document.

    Raises:
        ConfigError: it does not fit into a row.
    """
    text = metadata_json(document.metadata) if metadata is None else metadata
    passages = [(first_passage + i, *span) for i, span in enumerate(document.spans)]
    return stored_rows(
        document.id, document.title, document.text, text, document.hash, number, passages
    )


def stored_rows(
    id_: str,
    title: str | None,
    text: str,
    metadata: str,
    content_hash: bytes,
    number: int,
    passages: Sequence[tuple[int, int, int]],
) -> list[Row]:
    """As `document_rows`, of a document by its parts."""
    checksum = document_checksum(id_, title, text, metadata, content_hash, passages)
    body = json.dumps([text, passages, checksum.hex()], ensure_ascii=False)
    head = _fitting(
        json.dumps([id_, title, metadata, content_hash.hex()], ensure_ascii=False),
        id_,
        "id, title and metadata",
    )
    rows: list[Row] = []
    for part, piece in enumerate(_pieces(body)):
        first = part == 0
        rows.append(
            {
                "document": number,
                "key": number_of(id_),
                "part": part,
                "head": head if first else "",
                "piece": piece,
                **(facts_row(id_, title, json.loads(metadata)) if first else _NO_FACTS),
                "unused": [0.0, 0.0],
            }
        )
    return rows


def facts_row(id_: str, title: str | None, metadata: Mapping[str, Any]) -> Row:
    """What filters read of a document.

    Raises:
        ConfigError: it does not fit into a row.
    """
    facts, values = facts_of(id_, title, metadata)
    if len(facts) > _MOST_ELEMENTS:
        raise ConfigError(
            f"document {id_!r:.80}: its metadata has {len(facts):,} fields and values that filters "
            f"can find, and a row of Milvus holds {_MOST_ELEMENTS:,}; give it less metadata"
        )
    _fitting(json.dumps(values), id_, "numbers and strings in the metadata")
    return {"facts": facts, "values": values}


def passage_row(
    passage: int,
    document: int,
    id_: str,
    facts: Row,
    tokens: Sequence[str],
    vector: NDArray[np.float32],
    mean_length: float,
    *,
    sparse: bool,
) -> Row:
    """The row of a passage, as `document_rows`.

    Raises:
        ConfigError: its terms do not fit into a row.
    """
    counts = Counter(tokens)
    if len(counts) > _MOST_ELEMENTS:
        raise ConfigError(
            f"document {id_!r:.80}: a passage has {len(counts):,} distinct terms, and a row of "
            f"Milvus holds {_MOST_ELEMENTS:,}; index it with shorter passages"
        )
    row = {
        "passage": passage,
        "document": document,
        "id": id_,
        "length": len(tokens),
        "mean": mean_length,
        "counts": _fitting(json.dumps(counts, ensure_ascii=False), id_, "terms of a passage"),
        "terms": sorted({number_of(term) for term in counts}),
        "vector": vector,
        **facts,
    }
    if sparse:
        row["sparse"] = sparse_vector(counts, len(tokens), mean_length)
    return row


def sparse_vector(counts: Mapping[str, int], length: int, mean_length: float) -> dict[int, float]:
    """The saturated frequencies of a passage's terms.

    Two terms that fall into one dimension add up there, so that the product with a query is never
    less than it is without such a collision.
    """
    found: dict[int, float] = {}
    if counts:
        frequencies = np.fromiter(counts.values(), np.uint32, len(counts))
        lengths = np.full(len(counts), length, np.uint32)
        values = weights(INDEXED, frequencies, lengths, mean_length)
        for term, value in zip(counts, values.tolist(), strict=True):
            place = dimension_of(term)
            found[place] = found.get(place, 0.0) + value
    return found or {0: 1.0}


def dimension_of(term: str) -> int:
    """The dimension of the sparse vectors in which a term is."""
    return 1 + number_of(term) % (_SPARSE_DIMENSIONS - 1)


def row_bytes(row: Row) -> int:
    """About how many bytes a row takes, without search structures."""
    total = 0
    for name, value in row.items():
        if isinstance(value, str):
            total += len(value.encode())
        elif name == "vector":
            total += 4 * len(value)
        else:
            total += 8 * len(value) if isinstance(value, list | dict) else 8
    return total


def term_rows(changes: Mapping[str, int]) -> Iterator[Row]:
    """The rows of changes of document frequencies."""
    for term, change in changes.items():
        if change:
            yield {
                "key": number_of(term),
                "term": term,
                "change": change,
                "unused": [0.0, 0.0],
            }


def _versioned(name: str) -> Any:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=name)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("build", DataType.INT64, is_partition_key=True)
    schema.add_field("added", DataType.INT64)
    schema.add_field("removed", DataType.INT64)
    return schema


def _add_facts(schema: Any) -> None:
    from pymilvus import DataType

    _add_array(schema, "facts")
    schema.add_field("values", DataType.JSON)


def _add_array(schema: Any, name: str) -> None:
    from pymilvus import DataType

    schema.add_field(name, DataType.ARRAY, element_type=DataType.INT64, max_capacity=_MOST_ELEMENTS)


def _fitting(text: str, id_: str, what: str) -> str:
    size = len(text.encode())
    if size > _MOST_BYTES:
        raise ConfigError(
            f"document {id_!r:.80}: {what}: expected {_MOST_BYTES:,} bytes or less, which a row of "
            f"Milvus holds, found {size:,}"
        )
    return text


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that fit into a row, at least one."""
    data = text.encode()
    start = 0
    while True:
        stop = min(start + _MOST_BYTES, len(data))
        while stop < len(data) and data[stop] & 0xC0 == 0x80:
            stop -= 1  # Inside a character.
        yield data[start:stop].decode()
        if stop == len(data):
            return
        start = stop
