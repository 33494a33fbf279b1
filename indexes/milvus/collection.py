"""The collection of an index: one row for each passage.

==================  ==============================================================================
passage             primary key: a hash of the document's id and of the passage's place in it
document, ordinal   a hash of the document's id, and the place
id, metadata        of the document; the metadata as JSON
text                the document's text from the passage on, up to the next one
head                as JSON: title, hash and number of passages of the document; start and stop of
                    the passage, and where `text` begins; the languages of the passage, separated by
                    spaces; of an outline what stands from there on up to the next passage
length              number of terms of the passage
terms, counts       hashes of its distinct terms, and how often it holds each
facts, values       what filters read: see below
vector, sparse      its vector, and the weights of its terms under BM25's default settings
==================  ==============================================================================

Settings and statistics of the index are properties of the collection, whose alias is the index's
name. A document's row of ordinal 0 is written last: with it, the others are there.

What Milvus makes of a comparison of JSON where a field is absent, or of another type, differs
between its releases. So each row has an array of *facts*, hashes that say "the field x is there",
"the field x is the number 1", "the list x holds 1", and an expression looks whether one is there.
Order is compared in JSON where a fact says that there is something to compare.

What Milvus cannot decide (``like``, a string that contains another, the order of large numbers) is
refused where a document has a value that it concerns.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings, formula_of, weights
from indexes.errors import ConfigError, FilterError, FormatVersionError, NotAnIndexError
from indexes.filters.grammar import Expression, Joined, Not, Where, type_of
from indexes.folder.documents import LanguageCounts, metadata_json
from indexes.milvus.connection import Connection, Location, Row
from indexes.protocol import NewDocument, StoredDocument, StructureSettings

FORMAT = 2
# Bytes of a string, and elements of an array: limits of Milvus.
_MOST_BYTES = 65_535
_MOST_ELEMENTS = 4096
_SPARSE_DIMENSIONS = 2**32 - 2
_TYPES = {"auto": "HNSW", "hnsw": "HNSW", "flat": "FLAT", "diskann": "DISKANN"}
_LITE_TYPES = {"auto": "FLAT", "flat": "FLAT"}
_PARAMETERS = {"HNSW": {"M": 32, "efConstruction": 200}}
_INDEX = "retriever.index"
_STATISTICS = "retriever.statistics"
# A setting while a writer changes rows. One that finds it counts terms and languages again.
UNCOUNTED = "uncounted"


@dataclass(frozen=True, slots=True)
class Collection:
    """The collection of an index, as its properties describe it."""

    name: str  # which no other index ever had
    settings: dict[str, Any]
    begun_with: str = ""  # what identifies a replacement that is not complete
    commits: int = 0
    # In all passages; off where a run was interrupted, until `compact` counts them.
    terms: int = 0
    # In how many passages each term is, as far as it was asked for.
    frequencies: dict[Any, int] = field(default_factory=dict, compare=False)

    @property
    def dimensions(self) -> int:
        """Of the vectors."""
        return int(self.settings["encoder"]["dimensions"])

    def properties(self) -> dict[str, str]:
        """As the collection has them."""
        index = [FORMAT, self.begun_with, self.settings]
        statistics = [self.commits, self.terms]
        return {_INDEX: json.dumps(index), _STATISTICS: json.dumps(statistics)}


def find_collection(connection: Connection, alias: str) -> Collection | None:
    """The collection that has an alias; None if there is none."""
    name, location, file = alias, connection.location, connection.location.file
    # A connection would make the file.
    if file is not None and file.parent.is_dir() and not file.exists():
        return None
    if alias in connection.call("list_aliases")["aliases"]:
        name = connection.call("describe_alias", alias)["collection_name"]
    elif not connection.call("has_collection", alias):
        return None
    properties = connection.call("describe_collection", name)["properties"]
    if _INDEX not in properties:
        raise NotAnIndexError(f"{location}: the collection of that name is no index")
    version, begun_with, settings = json.loads(properties[_INDEX])
    if version > FORMAT:
        raise FormatVersionError(
            f"{location}: the index has format {version}, and this release reads {FORMAT}; upgrade "
            "with `pip install -U layer-retriever`"
        )
    return Collection(name, settings, begun_with, *json.loads(properties[_STATISTICS]))


def open_collection(connection: Connection, alias: str) -> Collection:
    """The collection of an index; raises `NotAnIndexError` too if there is none."""
    found = find_collection(connection, alias)
    if found is None:
        raise NotAnIndexError(
            f"{connection.location}: there is no index of that name; `retriever index` makes one"
        )
    return found


def create_collection(connection: Connection, alias: str, begun_with: str, settings: Any) -> None:
    """Make an empty collection, and give it an alias that no collection has."""
    client = connection.client
    location = connection.location
    from pymilvus import DataType

    name = f"{location.index}_{uuid.uuid4().hex[:12]}"
    collection = Collection(name, dict(settings), begun_with)
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("passage", DataType.INT64, is_primary=True)
    for name in ("document", "ordinal", "length"):
        schema.add_field(name, DataType.INT64)
    for name in ("id", "text"):
        schema.add_field(name, DataType.VARCHAR, max_length=_MOST_BYTES)
    for name in ("metadata", "head", "values"):
        schema.add_field(name, DataType.JSON)
    array = {"element_type": DataType.INT64, "max_capacity": _MOST_ELEMENTS}
    for name in ("terms", "counts", "facts"):
        schema.add_field(name, DataType.ARRAY, **array)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=collection.dimensions)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    kind = index_type(location, collection.settings.get("structures", {}))
    indexes = client.prepare_index_params()
    indexes.add_index("vector", index_type=kind, metric_type="IP", params=_PARAMETERS.get(kind, {}))
    indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="IP", params={})
    if location.file is None:
        # Milvus Lite has none of arrays.
        for name in ("document", "terms", "facts"):
            indexes.add_index(name, index_type="INVERTED")
    options = {"schema": schema, "index_params": indexes, "properties": collection.properties()}
    connection.call("create_collection", collection.name, consistency_level="Session", **options)
    connection.call("create_alias", collection.name, alias)


def index_type(location: Location, structures: Mapping[str, Any]) -> str:
    """Milvus's name of a search structure."""
    known = _LITE_TYPES if location.file else _TYPES
    asked = StructureSettings(**structures)
    if asked.index_type not in known:
        # Milvus Lite loses hits of filtered queries with others.
        raise ConfigError(
            f"{location}: index type: expected {', '.join(known)}, found {asked.index_type!r}"
        )
    return known[asked.index_type]


def passage_rows(
    document: NewDocument,
    terms: Sequence[Sequence[str]],
    vectors: NDArray[np.float32],
    mean_length: float,
) -> list[Row]:
    """The rows of a document, with the terms and vectors of its passages."""
    shared = metadata_fields(document.id, document.title, document.metadata)
    shared |= {"document": number_of(document.id), "id": document.id}
    rows: list[Row] = []
    marks = json.loads(document.outline or "[]")
    for ordinal, (start, stop) in enumerate(document.spans):
        # The texts of the rows overlap where passages do, and leave nothing out.
        following = document.spans[ordinal + 1 :]
        offset = start if ordinal else 0
        end = max(stop, following[0][0]) if following else len(document.text)
        text = document.text[offset:end]
        counts = Counter(terms[ordinal])
        _check(document.id, "bytes of a passage", len(text.encode()), _MOST_BYTES)
        _check(document.id, "distinct terms of a passage", len(counts), _MOST_ELEMENTS)
        head: Row = {"title": document.title, "hash": document.hash.hex()}
        head |= {"passages": len(document.spans), "start": start, "stop": stop, "offset": offset}
        head["languages"] = document.languages[ordinal] if document.languages else ""
        if marks:
            last = following[0][0] if following else math.inf
            head["outline"] = [mark for mark in marks if offset <= mark[0] < last]
            size = len(json.dumps(head))
            _check(document.id, "bytes of title and outline of a passage", size, _MOST_BYTES)
        length = len(terms[ordinal])
        rows.append(
            {
                "passage": number_of(document.id, ordinal),
                "ordinal": ordinal,
                "text": text,
                "head": head,
                "length": length,
                "terms": [number_of(term) for term in counts],
                "counts": list(counts.values()),
                "vector": vectors[ordinal],
                "sparse": _sparse_vector(counts, length, mean_length),
                **shared,
            }
        )
    return rows


def metadata_fields(id_: str, title: str | None, metadata: Mapping[str, Any]) -> Row:
    """The fields of a row that depend on the document's metadata; raises as `passage_rows`."""
    text = metadata_json(metadata)
    facts, values = facts_of(id_, title, json.loads(text))
    plain = json.dumps([id_, title, json.loads(text), values])
    _check(id_, "bytes of id, title and metadata", len(plain), _MOST_BYTES)
    _check(id_, "fields and values in the metadata", len(facts), _MOST_ELEMENTS)
    return {"metadata": json.loads(text), "facts": facts, "values": values}


def document_of(rows: Iterable[Row]) -> StoredDocument | None:
    """The document of which these are the rows; None unless all of them are there."""
    ordered = sorted(rows, key=lambda row: row["ordinal"])
    heads = [row["head"] for row in ordered]
    first = heads[0]
    if [row["ordinal"] for row in ordered] != list(range(first["passages"])) or any(
        head["hash"] != first["hash"] for head in heads
    ):
        return None
    text = ""
    passages = []
    for row, head in zip(ordered, heads, strict=True):
        if head["offset"] + len(row["text"]) > len(text):
            text = text[: head["offset"]] + row["text"]
        passages.append((row["passage"], head["start"], head["stop"]))
    row = ordered[0]
    marks = [mark for head in heads for mark in head.get("outline", ())]
    outline = json.dumps(marks, ensure_ascii=False, separators=(",", ":")) if marks else ""
    return StoredDocument(row["id"], first["title"], text, row["metadata"], passages, outline)


def languages_of(rows: Iterable[Row]) -> LanguageCounts:
    """The languages of passages by their rows; earlier releases stored none."""
    return LanguageCounts.of((row["head"].get("languages"), 1) for row in rows)


def dimension_of(term: int) -> int:
    """The dimension of sparse vectors in which a term is, by its hash."""
    return 1 + term % (_SPARSE_DIMENSIONS - 1)


def _sparse_vector(counts: Mapping[str, int], length: int, mean_length: float) -> dict[int, float]:
    """The saturated frequencies of a passage's terms."""
    frequencies = np.fromiter(counts.values(), np.uint32, len(counts))
    lengths = np.full(len(counts), length, np.uint32)
    values = weights(formula_of(BM25Settings(), mean_length), frequencies, lengths)
    places = [dimension_of(number_of(term)) for term in counts]
    # No vector may be empty, and no term has dimension 0.
    return dict(zip(places, values.tolist(), strict=True)) or {0: 1.0}


def _check(id_: str, what: str, found: int, most: int) -> None:
    if found > most:
        raise ConfigError(
            f"document {id_!r:.80}: {what}: expected {most:,} or less, which a row of Milvus "
            f"holds, found {found:,}; shorten it, or split it into passages"
        )


# Milvus compares an integer with a float as floats, which are exact below it.
_EXACT = 2**53
_LONGEST = 1024
ALL = "passage >= 0"
_INVERSE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_Path = tuple[str, ...]


def number_of(*parts: Any) -> int:
    """A hash of 63 bits: that of a term, a document's id, or a passage."""
    text = parts[0] if len(parts) == 1 else json.dumps(parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


# A hash of "exists" or a type of JSON and a path, or of "name" and a top-level field.
fact = number_of


def facts_of(
    id_: str, title: str | None, metadata: Mapping[str, Any]
) -> tuple[list[int], dict[str, Any]]:
    """The facts of a document, and by place its numbers and strings that Milvus orders exactly."""
    facts = {fact("name", name) for name in metadata}
    values: dict[str, Any] = {}
    for path, value in _walked((), {"own": {"id": id_, "title": title}, "metadata": metadata}):
        kind = type_of(value)
        facts |= {fact("exists", path), fact(kind, path)}
        if kind in ("string", "number", "boolean"):
            facts.add(fact("equals", path, *_key(value)))
        if kind in ("string", "number"):
            if _is_ordered(value):
                values[_place(path)] = value
            else:
                facts.add(fact("unordered", kind, path))
        elif kind == "array":
            for element in value:
                if isinstance(element, str | int | float):
                    facts.add(fact("holds", path, *_key(element)))
    return list(facts), values


def _walked(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    if path and value is not None:
        yield path, value
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walked((*path, name), inner)


def _key(value: str | float) -> tuple[str, Any]:
    """The JSON type and the value; equal numbers have one key."""
    kind = type_of(value)
    return kind, int(value) if kind == "number" and value == int(value) else value


def _place(path: _Path) -> str:
    """The name in ``values`` of a field's value."""
    return f"v{number_of('place', path):x}"


def _is_ordered(value: str | float) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST and value.isprintable()
    return abs(value) < _EXACT


def _selected(node: Expression, doubts: set[int], *, negated: bool = False) -> str:
    """The expression for a filter, or for its negation; adds the facts that it cannot decide."""
    if isinstance(node, Not):
        return _selected(node.part, doubts, negated=not negated)
    if isinstance(node, Joined):
        word = " and " if (node.operator == "and") != negated else " or "
        parts = [_selected(part, doubts, negated=negated) for part in node.parts]
        return f"({word.join(parts)})"
    path = ("own" if node.field.own else "metadata", *node.field.names)
    exists = fact("exists", path)
    string = fact("string", path)
    equal = [fact("equals", path, *_key(value)) for value in node.values]
    match node.operator:
        case "exists":
            return has(exists, negated=negated)
        case "in":
            return has(*equal, negated=negated)
        case "!=":
            word = "or" if negated else "and"
            other = has(*equal, negated=not negated)
            return f"({has(exists, negated=negated)} {word} {other})"
        case "contains":
            (value,) = node.values
            doubts |= {string} if isinstance(value, str) else set()
            return has(fact("holds", path, *_key(value)), negated=negated)
        case "like":
            pattern = str(node.values[0])
            doubts |= {string} if pattern.strip("%") or not pattern else set()
            return has(string, negated=negated)
        case operator:
            (value,) = node.values
            kind = type_of(value)
            typed = fact(kind, path)
            unordered = fact("unordered", kind, path)
            doubts.add(unordered if _is_ordered(value) else typed)
            text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
            place = f'values["{_place(path)}"]'
            if negated:
                return f"({has(typed, negated=True)} or {place} {_INVERSE[operator]} {text})"
            return f"({has(typed)} and {place} {operator} {text})"


def has(*facts: int, negated: bool = False) -> str:
    """That a document has at least one of some facts; negated, that it has none of them."""
    return f"{'not ' * negated}array_contains_any(facts, {list(facts)})"


def expression_of(where: Where | None, count: Callable[[str], int]) -> str:
    """An expression for the rows that a filter matches; FilterError where Milvus cannot tell."""
    doubts: set[int] = set()
    selected = ALL if where is None else _selected(where.expression, doubts)
    if doubts and count(has(*sorted(doubts))):
        raise FilterError(
            "filter: Milvus cannot evaluate 'like', a string that 'contains' another, nor the "
            "order of long strings and of numbers beyond 2^53, and documents have such values "
            "there; compare with '=' or 'in', or keep the index in a folder"
        )
    return selected
