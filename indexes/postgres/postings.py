"""Postings as blocks of bytes: a row holds many postings of one term, 16 bytes each.

A posting is (passage int64, frequency uint32, length of the passage in terms uint32), all
little-endian. The scores of a query need no other table. The server joins two blocks by
concatenation. A deleted passage keeps its postings until `purge_postings`. Readers skip them, so
document frequencies and scores are exact.

The blocks of small commits are joined once these are many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.postings import Postings
from indexes.bm25.scoring import merge_alternatives
from indexes.postgres.schema import Tables, run_upkeep
from indexes.protocol import Expansion

POSTING = np.dtype([("passage", "<i8"), ("frequency", "<u4"), ("length", "<u4")])
# Batches of fewer passages are small; so many small batches are joined.
_SMALL_BATCH = 8192
_BATCHES = 32
# Level of large and joined batches. Earlier releases had levels 1 and 2 too.
_JOINED_LEVEL = 3
# Blocks that are read together.
_STREAMED_BLOCKS = 1000


def term_key(term: str) -> bytes:
    """Return the stored form of a term, which can be any string."""
    return term.encode("utf-8", "surrogatepass")


def build_blocks(
    tokens: Sequence[Sequence[str]], passages: NDArray[np.int64]
) -> Iterator[tuple[bytes, NDArray[Any]]]:
    """Yield each term of new passages, ascending, with its postings by ascending passage."""
    segment_postings = Postings.build(tokens)
    terms = list(segment_postings.vocabulary())
    positions, frequencies, counts = segment_postings.stretch(0, len(terms))
    postings = np.empty(len(positions), POSTING)
    postings["passage"] = passages[positions]
    postings["frequency"] = frequencies
    postings["length"] = segment_postings.lengths[positions]
    ends = np.cumsum(counts).tolist()
    for term, start, stop in zip(terms, [0, *ends], ends, strict=False):
        yield term, postings[start:stop]


def write_postings(
    tables: Tables, tokens: Sequence[Sequence[str]], passages: NDArray[np.int64]
) -> None:
    """Store the postings of new passages as a batch; the caller is inside a transaction."""
    level = _record_batch(tables, int(passages[0]), len(passages))
    statement = tables.statement(
        "COPY {postings} (term, first, level, data) FROM STDIN (FORMAT BINARY)"
    )
    with tables.connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(["bytea", "int8", "int2", "bytea"])
        for term, postings in build_blocks(tokens, passages):
            copy.write_row((term, int(postings["passage"].min()), level, postings.tobytes()))


def read_postings(
    tables: Tables, terms: Iterable[str], deleted_ids: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Return the postings of live passages for each distinct term, in the order of the terms."""
    keys = {term_key(term): term for term in terms}
    postings_of = {term: np.empty(0, POSTING) for term in keys.values()}
    statement = "SELECT term, data FROM {postings} WHERE term = ANY(%s) ORDER BY term"
    for term, rows in groupby(tables.execute(statement, list(keys)), key=lambda row: row[0]):
        postings = np.frombuffer(b"".join(data for _, data in rows), POSTING)
        postings_of[keys[term]] = _live(postings, deleted_ids)
    return postings_of


def merge_expansion(
    expansion: Expansion, postings: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[Any], int]:
    """Return the postings of an expansion, merged as one term, and its document frequency."""
    pairs = {
        name: (postings[name]["passage"], postings[name]["frequency"]) for name in expansion.names()
    }
    passages, frequencies, either = merge_alternatives(expansion, pairs)
    all_postings = np.concatenate([postings[name] for name in pairs])
    distinct, first = np.unique(all_postings["passage"], return_index=True)
    merged = np.empty(len(passages), POSTING)
    merged["passage"] = passages
    merged["length"] = all_postings["length"][first[np.searchsorted(distinct, passages)]]
    # A term of two alternatives counts twice.
    merged["frequency"] = np.minimum(frequencies, merged["length"])
    return merged, len(either)


def read_terms_with_prefix(tables: Tables, prefix: str, limit: int) -> list[str]:
    """Return the `limit` terms with a prefix that have most postings; ties by code point."""
    spelling = term_key(prefix)
    rows = tables.rows(
        "SELECT term FROM {postings} WHERE term >= %s AND term < %s "
        "GROUP BY term ORDER BY sum(octet_length(data)) DESC, term LIMIT %s",
        # UTF-8 has no byte 0xff.
        *(spelling, spelling + b"\xff", limit),
    )
    return [term.decode("utf-8", "surrogatepass") for (term,) in rows]


def vocabulary_frequencies(tables: Tables, deleted_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the document frequencies of all terms of live passages; reads the vocabulary."""
    if not len(deleted_ids):
        statement = "SELECT sum(octet_length(data)) / %s FROM {postings} GROUP BY term"
        rows = tables.rows(statement, POSTING.itemsize)
        return np.fromiter((row[0] for row in rows), np.int64)
    counts: Counter[bytes] = Counter()
    for term, _, postings in stream_blocks(tables):
        counts[term] += len(_live(postings, deleted_ids))
    totals = np.fromiter(counts.values(), np.int64, len(counts))
    return totals[totals > 0]


def stream_blocks(tables: Tables) -> Iterator[tuple[bytes, int, NDArray[Any]]]:
    """Yield the term, first passage and postings of every block, inside a transaction."""
    with tables.connection.cursor("blocks", binary=True) as cursor:
        cursor.itersize = _STREAMED_BLOCKS
        cursor.execute(tables.statement("SELECT term, first, data FROM {postings}"))
        for term, first, data in cursor:
            yield term, first, np.frombuffer(data, POSTING)


def join_batches(tables: Tables, least: int = _BATCHES) -> int:
    """Join the blocks of at least `least` small batches; returns the number of batches joined."""
    statement = "SELECT count(*) FROM retriever.batches WHERE number = %s AND level < %s"
    ((count,),) = tables.rows(statement, tables.number, _JOINED_LEVEL)
    return run_upkeep(tables, _join) if count >= least else 0


def _join(tables: Tables) -> int:
    batches = tables.rows(
        "DELETE FROM retriever.batches WHERE number = %s AND level < %s RETURNING first, passages",
        tables.number,
        _JOINED_LEVEL,
    )
    if batches:
        firsts, counts = zip(*batches, strict=True)
        level = _record_batch(tables, min(firsts), sum(counts))
        tables.execute(
            "WITH gone AS (DELETE FROM {postings} WHERE level < %s RETURNING term, first, data) "
            "INSERT INTO {postings} SELECT term, min(first), %s, "
            "string_agg(data, ''::bytea ORDER BY first) FROM gone GROUP BY term",
            _JOINED_LEVEL,
            level,
        )
    return len(batches)


def _record_batch(tables: Tables, first: int, passages: int) -> int:
    """Store a row for passages whose postings are written together; returns its level."""
    level = 0 if passages < _SMALL_BATCH else _JOINED_LEVEL
    statement = (
        "INSERT INTO retriever.batches (number, first, level, passages) VALUES (%s, %s, %s, %s)"
    )
    tables.execute(statement, tables.number, first, level, passages)
    return level


def purge_postings(tables: Tables) -> int:
    """Drop the postings of deleted passages; returns the number of these passages."""
    return run_upkeep(tables, _purge)


def _purge(tables: Tables) -> int:
    deleted_ids = read_deleted_ids(tables)
    blocks = stream_blocks(tables)
    while batch := list(islice(blocks, _STREAMED_BLOCKS)):
        changed = [
            (term, first, live.tobytes())
            for term, first, postings in batch
            if len(live := _live(postings, deleted_ids)) < len(postings)
        ]
        if changed:
            tables.execute(
                "UPDATE {postings} AS p SET data = x.data "
                "FROM unnest(%s::bytea[], %s::bigint[], %s::bytea[]) "
                "AS x (term, first, data) WHERE p.term = x.term AND p.first = x.first",
                *map(list, zip(*changed, strict=True)),
            )
    tables.execute("DELETE FROM {postings} WHERE octet_length(data) = 0")
    tables.execute("DELETE FROM {deleted} WHERE passage = ANY(%s)", deleted_ids)
    return len(deleted_ids)


def read_deleted_ids(tables: Tables) -> NDArray[np.int64]:
    """Return the (n,) int64 ids of deleted passages whose postings are still stored."""
    statement = "SELECT string_agg(int8send(passage), ''::bytea) FROM {deleted}"
    return unpack_ids(tables.rows(statement)[0][0])


def unpack_ids(packed: bytes | None) -> NDArray[np.int64]:
    """Return the (n,) int64 numbers of concatenated `int8send` values; none for None."""
    return np.frombuffer(packed or b"", ">i8").astype(np.int64)


def _live(postings: NDArray[Any], deleted_ids: NDArray[np.int64]) -> NDArray[Any]:
    if not len(deleted_ids):
        return postings
    return postings[~np.isin(postings["passage"], deleted_ids)]


def sum_scores(
    contributions: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return passages, ascending, and the sums of their values.

    Args:
        contributions: for each term, its passages and what it adds to their scores. Values are
            added in this order.
    """
    passages = np.concatenate(
        [np.empty(0, np.int64), *(term_passages for term_passages, _ in contributions)]
    )
    values = np.concatenate([np.empty(0), *(term_values for _, term_values in contributions)])
    if len(passages) and (span := int(np.ptp(passages)) + 1) <= 8 * len(passages):
        lowest = passages.min()
        is_present = np.zeros(span, np.bool_)
        is_present[passages - lowest] = True
        offsets = np.flatnonzero(is_present)
        scores = np.bincount(passages - lowest, values, span)[offsets]
        return offsets + lowest, scores.astype(np.float64, copy=False)
    distinct, places = np.unique(passages, return_inverse=True)
    scores = np.bincount(places, values, len(distinct))
    return distinct, scores.astype(np.float64, copy=False)
