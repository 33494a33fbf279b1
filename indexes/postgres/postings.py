"""Postings as blocks of bytes: a row holds many postings of one term, 16 bytes each.

A posting is (passage int64, frequency uint32, length of the passage in terms uint32), all
little-endian. So the scores of a query need no other table, and a block is joined to another by
writing one after the other, which the server does alone. A deleted passage keeps its postings
until `purge`; readers pass over them, so that document frequencies and scores are exact.

The blocks of small commits are joined as these become many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.scoring import sums
from indexes.postgres.connection import Connection
from indexes.postgres.schema import Tables, alone_in_upkeep

POSTING = np.dtype([("passage", "<i8"), ("frequency", "<u4"), ("length", "<u4")])
# Batches of fewer passages are joined, this many together. Releases before had levels 1 and 2, too.
_SMALL, _BATCHES = 8192, 32
_JOINED = 3
# Blocks read together when they are rewritten.
_REWRITTEN = 1000


def term_key(term: str) -> bytes:
    """A term as it is stored; any string can be one."""
    return term.encode("utf-8", "surrogatepass")


def blocks_of(
    tokens: Sequence[Sequence[str]], passages: NDArray[np.int64]
) -> Iterator[tuple[bytes, NDArray[Any]]]:
    """(term, its postings by ascending passage) of new passages, ascending by term."""
    numbers: dict[str, int] = {}
    flat = [numbers.setdefault(term, len(numbers)) for one in tokens for term in one]
    lengths = np.array([len(one) for one in tokens], np.int64)
    keys = np.array(flat, np.int64) * len(tokens) + np.repeat(np.arange(len(tokens)), lengths)
    keys, frequencies = np.unique(keys, return_counts=True)
    positions = keys % max(len(tokens), 1)
    postings = np.empty(len(keys), POSTING)
    postings["passage"], postings["frequency"] = passages[positions], frequencies
    postings["length"] = lengths[positions]
    ends = np.searchsorted(keys, np.arange(len(numbers) + 1) * len(tokens))
    terms = sorted((term_key(term), number) for term, number in numbers.items())
    for term, number in terms:
        yield term, postings[ends[number] : ends[number + 1]]


def write_postings(
    connection: Connection,
    tables: Tables,
    tokens: Sequence[Sequence[str]],
    passages: NDArray[np.int64],
) -> None:
    """Store the postings of new passages as a batch; the caller is inside a transaction."""
    level = insert_batch(connection, tables.number, int(passages[0]), len(passages))
    statement = tables.statement(
        "COPY {postings} (term, first, level, data) FROM STDIN (FORMAT BINARY)"
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(["bytea", "int8", "int2", "bytea"])
        for term, postings in blocks_of(tokens, passages):
            copy.write_row((term, int(postings["passage"].min()), level, postings.tobytes()))


def read_postings(
    connection: Connection, tables: Tables, terms: Iterable[str], dead: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """The postings of live passages for each distinct term, in the order of the terms."""
    keys = {term_key(term): term for term in terms}
    found = {term: np.empty(0, POSTING) for term in keys.values()}
    with connection.cursor(binary=True) as cursor:
        cursor.execute(
            tables.statement(
                "SELECT term, data FROM {postings} WHERE term = ANY(%s) ORDER BY term"
            ),
            (list(keys),),
        )
        for term, rows in groupby(cursor, key=lambda row: row[0]):
            postings = np.frombuffer(b"".join(data for _, data in rows), POSTING)
            found[keys[term]] = _live(postings, dead)
    return found


def vocabulary_frequencies(
    connection: Connection, tables: Tables, dead: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The document frequency of each term that a live passage holds; reads the whole vocabulary."""
    if not len(dead):
        rows = connection.execute(
            tables.statement("SELECT sum(octet_length(data)) / %s FROM {postings} GROUP BY term"),
            (POSTING.itemsize,),
        )
        return np.fromiter((row[0] for row in rows), np.int64)
    counts: dict[bytes, int] = {}
    for term, _, _, postings in all_blocks(connection, tables):
        counts[term] = counts.get(term, 0) + len(_live(postings, dead))
    totals = np.fromiter(counts.values(), np.int64, len(counts))
    return totals[totals > 0]


def all_blocks(
    connection: Connection, tables: Tables
) -> Iterator[tuple[bytes, int, int, NDArray[Any]]]:
    """(term, first passage, level, postings) of every block, as a stream.

    The caller is inside a transaction.
    """
    with connection.cursor("blocks", binary=True) as cursor:
        cursor.itersize = 1000
        cursor.execute(tables.statement("SELECT term, first, level, data FROM {postings}"))
        for term, first, level, data in cursor:
            yield term, first, level, np.frombuffer(data, POSTING)


def join_batches(connection: Connection, tables: Tables, least: int = _BATCHES) -> int:
    """Join the blocks of small batches if there are as many; returns how many were joined."""
    ((count,),) = connection.execute(
        "SELECT count(*) FROM retriever.batches WHERE number = %s AND level < %s",
        (tables.number, _JOINED),
    ).fetchall()
    if count < least:
        return 0
    return alone_in_upkeep(connection, tables.number, partial(_join, connection, tables))


def _join(connection: Connection, tables: Tables) -> int:
    batches = connection.execute(
        "DELETE FROM retriever.batches WHERE number = %s AND level < %s RETURNING first, passages",
        (tables.number, _JOINED),
    ).fetchall()
    if batches:
        firsts, counts = zip(*batches, strict=True)
        level = insert_batch(connection, tables.number, min(firsts), sum(counts))
        connection.execute(
            tables.statement(
                "WITH gone AS (DELETE FROM {postings} WHERE level < %s RETURNING term, first, data)"
                " INSERT INTO {postings} SELECT term, min(first), %s, "
                "string_agg(data, ''::bytea ORDER BY first) FROM gone GROUP BY term"
            ),
            (_JOINED, level),
        )
    return len(batches)


def insert_batch(connection: Connection, number: int, first: int, passages: int) -> int:
    """Note a group of passages whose postings lie together; returns its level."""
    level = 0 if passages < _SMALL else _JOINED
    connection.execute(
        "INSERT INTO retriever.batches (number, first, level, passages) VALUES (%s, %s, %s, %s)",
        (number, first, level, passages),
    )
    return level


def purge(connection: Connection, tables: Tables) -> int:
    """Drop the postings of deleted passages, whose number it returns; answers stay the same."""
    return alone_in_upkeep(connection, tables.number, partial(_purge, connection, tables))


def _purge(connection: Connection, tables: Tables) -> int:
    dead = read_dead(connection, tables)
    blocks = all_blocks(connection, tables)
    while batch := list(islice(blocks, _REWRITTEN)):
        changed = [
            (term, first, live.tobytes())
            for term, first, _, postings in batch
            if len(live := _live(postings, dead)) < len(postings)
        ]
        if changed:
            connection.execute(
                tables.statement(
                    "UPDATE {postings} AS p SET data = x.data "
                    "FROM unnest(%s::bytea[], %s::bigint[], %s::bytea[]) "
                    "AS x (term, first, data) WHERE p.term = x.term AND p.first = x.first"
                ),
                list(map(list, zip(*changed, strict=True))),
            )
    connection.execute(tables.statement("DELETE FROM {postings} WHERE octet_length(data) = 0"))
    connection.execute(tables.statement("DELETE FROM {deleted} WHERE passage = ANY(%s)"), (dead,))
    return len(dead)


def read_dead(connection: Connection, tables: Tables) -> NDArray[np.int64]:
    """(n,) int64: the deleted passages whose postings are still there."""
    ((packed,),) = connection.execute(
        tables.statement("SELECT string_agg(int8send(passage), ''::bytea) FROM {deleted}")
    ).fetchall()
    return ids_of(packed)


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
        return held + least, sums(passages - least, values, span)[held]
    held, places = np.unique(passages, return_inverse=True)
    return held, sums(places, values, len(held))


def passages_of(postings: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """The passages that hold one of some terms, ascending."""
    return np.unique(
        np.concatenate([np.empty(0, np.int64), *(one["passage"] for one in postings.values())])
    )
