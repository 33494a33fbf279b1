"""Postings as blocks of bytes: a row holds many postings of one term, 16 bytes each.

A posting is (passage int64, frequency uint32, length of the passage in terms uint32), all
little-endian. So the scores of a query need no other table, and a block is joined to another by
writing one after the other, which the server does alone. A deleted passage keeps its postings
until `purge`; readers pass over them, so that document frequencies and scores are exact.

The blocks of small commits are joined as these become many.
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
from indexes.postgres.schema import Tables, alone_in_upkeep
from indexes.protocol import Expansion

POSTING = np.dtype([("passage", "<i8"), ("frequency", "<u4"), ("length", "<u4")])
# Batches of fewer passages are joined, this many together. Releases before had levels 1 and 2, too.
_SMALL = 8192
_BATCHES = 32
_JOINED = 3
# Blocks that are read together.
_STREAMED = 1000


def term_key(term: str) -> bytes:
    """A term as it is stored; any string can be one."""
    return term.encode("utf-8", "surrogatepass")


def blocks_of(
    tokens: Sequence[Sequence[str]], passages: NDArray[np.int64]
) -> Iterator[tuple[bytes, NDArray[Any]]]:
    """(term, its postings by ascending passage) of new passages, ascending by term."""
    built = Postings.build(tokens)
    terms = list(built.vocabulary())
    positions, frequencies, counts = built.stretch(0, len(terms))
    postings = np.empty(len(positions), POSTING)
    postings["passage"], postings["frequency"] = passages[positions], frequencies
    postings["length"] = built.lengths[positions]
    ends = np.cumsum(counts).tolist()
    for term, start, stop in zip(terms, [0, *ends], ends, strict=False):
        yield term, postings[start:stop]


def write_postings(
    tables: Tables, tokens: Sequence[Sequence[str]], passages: NDArray[np.int64]
) -> None:
    """Store the postings of new passages as a batch; the caller is inside a transaction."""
    level = _note_batch(tables, int(passages[0]), len(passages))
    statement = tables.statement(
        "COPY {postings} (term, first, level, data) FROM STDIN (FORMAT BINARY)"
    )
    with tables.connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(["bytea", "int8", "int2", "bytea"])
        for term, postings in blocks_of(tokens, passages):
            copy.write_row((term, int(postings["passage"].min()), level, postings.tobytes()))


def read_postings(
    tables: Tables, terms: Iterable[str], dead: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """The postings of live passages for each distinct term, in the order of the terms."""
    keys = {term_key(term): term for term in terms}
    found = {term: np.empty(0, POSTING) for term in keys.values()}
    chosen = "SELECT term, data FROM {postings} WHERE term = ANY(%s) ORDER BY term"
    for term, rows in groupby(tables.execute(chosen, list(keys)), key=lambda row: row[0]):
        postings = np.frombuffer(b"".join(data for _, data in rows), POSTING)
        found[keys[term]] = _live(postings, dead)
    return found


def expanded_postings(
    expansion: Expansion, postings: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[Any], int]:
    """The postings of an expansion as of one term, and its document frequency."""
    pairs = {
        name: (postings[name]["passage"], postings[name]["frequency"]) for name in expansion.names()
    }
    passages, frequencies, either = merge_alternatives(expansion, pairs)
    together = np.concatenate([postings[name] for name in pairs])
    distinct, first = np.unique(together["passage"], return_index=True)
    merged = np.empty(len(passages), POSTING)
    merged["passage"] = passages
    merged["length"] = together["length"][first[np.searchsorted(distinct, passages)]]
    # A term of two alternatives counts twice.
    merged["frequency"] = np.minimum(frequencies, merged["length"])
    return merged, len(either)


def read_terms_beginning(tables: Tables, prefix: str, limit: int) -> list[str]:
    """The `limit` terms with most postings that begin with a text; equal ones by code point."""
    spelling = term_key(prefix)
    rows = tables.rows(
        "SELECT term FROM {postings} WHERE term >= %s AND term < %s "
        "GROUP BY term ORDER BY sum(octet_length(data)) DESC, term LIMIT %s",
        # No byte of a term is as high as the last one.
        *(spelling, spelling + b"\xff", limit),
    )
    return [term.decode("utf-8", "surrogatepass") for (term,) in rows]


def vocabulary_frequencies(tables: Tables, dead: NDArray[np.int64]) -> NDArray[np.int64]:
    """The document frequency of each term that a live passage holds; reads the whole vocabulary."""
    if not len(dead):
        counted = "SELECT sum(octet_length(data)) / %s FROM {postings} GROUP BY term"
        rows = tables.rows(counted, POSTING.itemsize)
        return np.fromiter((row[0] for row in rows), np.int64)
    counts: Counter[bytes] = Counter()
    for term, _, postings in all_blocks(tables):
        counts[term] += len(_live(postings, dead))
    totals = np.fromiter(counts.values(), np.int64, len(counts))
    return totals[totals > 0]


def all_blocks(tables: Tables) -> Iterator[tuple[bytes, int, NDArray[Any]]]:
    """(term, first passage, postings) of every block, as a stream, inside a transaction."""
    with tables.connection.cursor("blocks", binary=True) as cursor:
        cursor.itersize = _STREAMED
        cursor.execute(tables.statement("SELECT term, first, data FROM {postings}"))
        for term, first, data in cursor:
            yield term, first, np.frombuffer(data, POSTING)


def join_batches(tables: Tables, least: int = _BATCHES) -> int:
    """Join the blocks of small batches if there are as many; returns how many were joined."""
    counted = "SELECT count(*) FROM retriever.batches WHERE number = %s AND level < %s"
    ((count,),) = tables.rows(counted, tables.number, _JOINED)
    return alone_in_upkeep(tables, _join) if count >= least else 0


def _join(tables: Tables) -> int:
    batches = tables.rows(
        "DELETE FROM retriever.batches WHERE number = %s AND level < %s RETURNING first, passages",
        tables.number,
        _JOINED,
    )
    if batches:
        firsts, counts = zip(*batches, strict=True)
        level = _note_batch(tables, min(firsts), sum(counts))
        tables.execute(
            "WITH gone AS (DELETE FROM {postings} WHERE level < %s RETURNING term, first, data) "
            "INSERT INTO {postings} SELECT term, min(first), %s, "
            "string_agg(data, ''::bytea ORDER BY first) FROM gone GROUP BY term",
            _JOINED,
            level,
        )
    return len(batches)


def _note_batch(tables: Tables, first: int, passages: int) -> int:
    """Note a group of passages whose postings lie together; returns its level."""
    level = 0 if passages < _SMALL else _JOINED
    statement = (
        "INSERT INTO retriever.batches (number, first, level, passages) VALUES (%s, %s, %s, %s)"
    )
    tables.execute(statement, tables.number, first, level, passages)
    return level


def purge(tables: Tables) -> int:
    """Drop the postings of deleted passages, whose number it returns; answers stay the same."""
    return alone_in_upkeep(tables, _purge)


def _purge(tables: Tables) -> int:
    dead = read_dead(tables)
    blocks = all_blocks(tables)
    while batch := list(islice(blocks, _STREAMED)):
        changed = [
            (term, first, live.tobytes())
            for term, first, postings in batch
            if len(live := _live(postings, dead)) < len(postings)
        ]
        if changed:
            tables.execute(
                "UPDATE {postings} AS p SET data = x.data "
                "FROM unnest(%s::bytea[], %s::bigint[], %s::bytea[]) "
                "AS x (term, first, data) WHERE p.term = x.term AND p.first = x.first",
                *map(list, zip(*changed, strict=True)),
            )
    tables.execute("DELETE FROM {postings} WHERE octet_length(data) = 0")
    tables.execute("DELETE FROM {deleted} WHERE passage = ANY(%s)", dead)
    return len(dead)


def read_dead(tables: Tables) -> NDArray[np.int64]:
    """(n,) int64: the deleted passages whose postings are still there."""
    packed = "SELECT string_agg(int8send(passage), ''::bytea) FROM {deleted}"
    return ids_of(tables.rows(packed)[0][0])


def ids_of(packed: bytes | None) -> NDArray[np.int64]:
    """(n,) int64: what `int8send` packed, joined; None for nothing."""
    return np.frombuffer(packed or b"", ">i8").astype(np.int64)


def _live(postings: NDArray[Any], dead: NDArray[np.int64]) -> NDArray[Any]:
    if not len(dead):
        return postings
    return postings[~np.isin(postings["passage"], dead)]


def passage_scores(
    contributions: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Passages that hold a term, ascending, and the sums of what each adds, in the given order."""
    passages = np.concatenate([np.empty(0, np.int64), *(one for one, _ in contributions)])
    values = np.concatenate([np.empty(0), *(one for _, one in contributions)])
    if len(passages) and (span := int(np.ptp(passages)) + 1) <= 8 * len(passages):
        least = passages.min()
        found = np.zeros(span, np.bool_)
        found[passages - least] = True
        held = np.flatnonzero(found)
        scores = np.bincount(passages - least, values, span)[held]
        return held + least, scores.astype(np.float64, copy=False)
    held, places = np.unique(passages, return_inverse=True)
    return held, np.bincount(places, values, len(held)).astype(np.float64, copy=False)
