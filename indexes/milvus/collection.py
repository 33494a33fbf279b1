"""The collection of an index: one row for each passage.

==================  ==============================================================================
passage             primary key, a hash of the document's id and the ordinal
id, title, hash     of the document
ordinal, passages   number of the passage in its document, from 0, and the document's passages
text, offset        the document's text from the passage to the next one, and where it begins
start, stop         where the passage begins and ends in the document's text
outline             of the document, in the row of ordinal 0
metadata            of the document, as JSON
languages, terms    of the passage; its distinct terms
vector, sparse      of the passage; the BM25 weights of its terms, without idf
==================  ==============================================================================

Settings are a property of the collection, whose alias is the index's name. The row of ordinal 0 is
written last: it shows that the others are there.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings, make_formula, weights
from indexes.errors import ConfigError, FormatVersionError, NotAnIndexError, StorageError
from indexes.metadata import metadata_json
from indexes.milvus.connection import MilvusLocation, call
from indexes.protocol import NewDocument, StoredDocument

Row = dict[str, Any]

FORMAT = 3
_PROPERTY = "retriever.index"
# Limits of Milvus: bytes of a string, and elements of an array.
_MOST_BYTES = 65_535
_MOST_TERMS = 4096


@dataclass(frozen=True, slots=True)
class MilvusCollection:
    """The collection of an index, as its property describes it."""

    name: str  # no other index ever has it
    settings: dict[str, Any]
    begun_with: str = ""  # identifies a replacement that is not complete
    commits: int = 0
    # Mean number of terms of the passages of the first commit, to which BM25 compares lengths.
    mean_length: float = 0.0
    languages: tuple[str, ...] | list[str] = ()  # of all passages ever stored

    def properties(self) -> dict[str, str]:
        """Return the properties that Milvus stores."""
        return {_PROPERTY: json.dumps({"format": FORMAT, **asdict(self)})}


def find_collection(location: MilvusLocation, alias: str) -> MilvusCollection | None:
    """Return the collection that has an alias; None if there is none."""
    # A connection would make the file.
    is_missing = location.is_file and not Path(location.uri).exists()
    if is_missing or not call(location, "has_collection", alias):
        return None
    properties = call(location, "describe_collection", alias)["properties"]
    if _PROPERTY not in properties:
        raise NotAnIndexError(f"{location}: the collection of that name is no index")
    description = json.loads(properties[_PROPERTY])
    # Formats 1 and 2 were a list.
    version = description[0] if isinstance(description, list) else description.pop("format")
    if version != FORMAT:
        raise FormatVersionError(
            f"{location}: the index has format {version}, and this release reads {FORMAT}; run "
            "`retriever export FILE.jsonl --vectors` with the old release, and `retriever import "
            "FILE.jsonl` with this release, into a new index"
        )
    return MilvusCollection(**description)


def open_collection(location: MilvusLocation, alias: str) -> MilvusCollection:
    """Return the collection of an index; NotAnIndexError if there is none."""
    collection = find_collection(location, alias)
    if collection is None:
        raise NotAnIndexError(
            f"{location}: there is no index of that name; `retriever index` makes one"
        )
    return collection


def create_collection(location: MilvusLocation, alias: str, begun_with: str, settings: Any) -> None:
    """Create an empty collection with an alias that no collection has."""
    from pymilvus import DataType, MilvusClient

    # Milvus Lite loses hits of filtered queries with other structures, and indexes no arrays.
    structures = {"auto": "FLAT" if location.is_file else "AUTOINDEX", "flat": "FLAT"}
    structure = settings.get("structures", {}).get("index_type", "auto")
    if structure not in structures:
        raise ConfigError(f"{location}: index type: expected auto or flat, found {structure!r}")
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index("vector", index_type=structures[structure], metric_type="IP")
    indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    for name in () if location.is_file else ("id", "terms"):
        indexes.add_index(name, index_type="INVERTED")
    number = {"datatype": DataType.INT64}
    text = {"datatype": DataType.VARCHAR, "max_length": _MOST_BYTES}
    texts = {**text, "element_type": DataType.VARCHAR, "max_capacity": _MOST_TERMS}
    columns: dict[str, dict[str, Any]] = {
        "passage": {**number, "is_primary": True},
        **dict.fromkeys(("ordinal", "passages", "offset", "start", "stop"), number),
        "title": {**text, "nullable": True},
        **dict.fromkeys(("id", "hash", "text", "outline"), text),
        **dict.fromkeys(("languages", "terms"), texts | {"datatype": DataType.ARRAY}),
        "metadata": {"datatype": DataType.JSON},
        "vector": {"datatype": DataType.FLOAT_VECTOR, "dim": settings["encoder"]["dimensions"]},
        "sparse": {"datatype": DataType.SPARSE_FLOAT_VECTOR},
    }
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    for name, options in columns.items():
        schema.add_field(name, **options)
    collection = MilvusCollection(f"{location.index}_{uuid.uuid4().hex[:12]}", settings, begun_with)
    call(
        location,
        "create_collection",
        collection.name,
        schema=schema,
        index_params=indexes,
        properties=collection.properties(),
        consistency_level="Session",
    )
    call(location, "create_alias", collection.name, alias)


def passage_rows(
    document: NewDocument,
    terms: Sequence[Sequence[str]],
    vectors: NDArray[np.float32],
    mean_length: float,
) -> list[Row]:
    """Return the rows of a document, with the terms and vectors of its passages."""
    rows = []
    metadata = metadata_json(document.metadata)
    # The texts of the rows overlap where passages do, and leave nothing out.
    ends = [*(start for start, _ in document.spans[1:]), len(document.text)]
    for ordinal, (start, stop) in enumerate(document.spans):
        offset = start if ordinal else 0
        counts = Counter(terms[ordinal])
        text = document.text[offset : max(stop, ends[ordinal])]
        sizes = [len(part.encode()) for part in (text, document.outline, metadata)]
        if max(sizes) > _MOST_BYTES or len(counts) > _MOST_TERMS:
            raise ConfigError(
                f"document {document.id!r:.80}: expected at most {_MOST_BYTES:,} bytes of text, "
                f"outline and metadata and {_MOST_TERMS:,} distinct terms in a passage, the "
                f"limits of Milvus, found {max(sizes):,} and {len(counts):,}; split the document"
            )
        row = {
            "passage": hash_of(f"{ordinal} {document.id}", 8),
            "id": document.id,
            "title": document.title,
            "hash": document.hash.hex(),
            "ordinal": ordinal,
            "passages": len(document.spans),
            "text": text,
            "offset": offset,
            "start": start,
            "stop": stop,
            "outline": "" if ordinal else document.outline,
            "metadata": json.loads(metadata),
            "languages": document.languages[ordinal].split() if document.languages else [],
            "terms": list(counts),
            "vector": vectors[ordinal],
            # Milvus refuses an empty vector; no term has dimension 0.
            "sparse": _sparse_weights(counts, mean_length) or {0: 1.0},
        }
        rows.append(row)
    return rows


def document_of(location: MilvusLocation, rows: Iterable[Row]) -> StoredDocument:
    """Return the document with these rows; StorageError if they are not all of one version."""
    ordered = sorted(rows, key=itemgetter("ordinal"))
    first = ordered[0]
    if {(row["hash"], row["passages"]) for row in ordered} != {(first["hash"], len(ordered))}:
        raise StorageError(
            f"{location}: document {first['id']!r:.80}: some passages are missing or old; it is "
            "being written, or a run was interrupted: run that again"
        )
    text = ""
    for row in ordered:
        text = max(text, text[: row["offset"]] + row["text"], key=len)
    return StoredDocument(
        first["id"],
        first["title"],
        text,
        first["metadata"],
        [(row["passage"], row["start"], row["stop"]) for row in ordered],
        first["outline"],
    )


def hash_of(text: str, size: int) -> int:
    """Return a hash of `size` bytes without the highest bit."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "little") >> 1


def _sparse_weights(counts: Mapping[str, int], mean_length: float) -> dict[int, float]:
    """Return the saturated frequencies of a passage's terms under BM25's default settings."""
    frequencies = np.fromiter(counts.values(), np.uint32, len(counts))
    lengths = np.full(len(counts), frequencies.sum(), np.uint32)
    values = weights(make_formula(BM25Settings(), mean_length), frequencies, lengths)
    return {
        1 + hash_of(term, 4): value for term, value in zip(counts, values.tolist(), strict=True)
    }
