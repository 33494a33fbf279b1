"""Whether everything that the database holds of an index agrees."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from indexes.errors import DamagedIndexError
from indexes.postgres.postings import all_blocks, ids_of
from indexes.postgres.vectors import graph_is_valid
from indexes.postgres.view import PostgresView

_COUNTS = {
    "documents": "SELECT count(*)::bigint FROM {documents}",
    "passages": "SELECT count(*)::bigint FROM {passages}",
    "terms": "SELECT coalesce(sum(length), 0)::bigint FROM {passages}",
    "deleted passages": "SELECT count(*)::bigint FROM {deleted}",
}
_STRAYS = {
    "passages of no document": "SELECT count(*)::bigint FROM {passages} AS p "
    "WHERE NOT EXISTS (SELECT FROM {documents} AS d WHERE d.doc = p.doc)",
    "documents without passages": "SELECT count(*)::bigint FROM {documents} AS d "
    "WHERE NOT EXISTS (SELECT FROM {passages} AS p WHERE p.doc = d.doc)",
    "passages that are marked as deleted": "SELECT count(*)::bigint FROM {passages} "
    "JOIN {deleted} USING (passage)",
    "metadata fields that are not registered": "SELECT count(DISTINCT key)::bigint "
    "FROM {documents} AS d, jsonb_object_keys(d.metadata) AS key WHERE NOT EXISTS "
    "(SELECT FROM retriever.fields AS f WHERE f.name = key AND f.number = %s)",
}


def verify(view: PostgresView) -> list[str]:
    """Read everything that the index has; one line per problem found.

    Checked are the settings, the counts, that documents, passages and postings belong together,
    the checksum of each document, the length of each passage against its postings, and the graph.
    What pages hold is the server's to check (``initdb --data-checksums``, ``pg_amcheck``).
    """
    with view.readable():
        return list(_problems(view))


def _problems(view: PostgresView) -> Iterator[str]:
    session, row = view.session, view.session.row
    place = session.location
    try:
        view.check_settings()
    except DamagedIndexError as error:
        yield str(error)
    stated = (row.documents, row.passages, row.total_length, row.dead)
    for (what, statement), expected in zip(_COUNTS.items(), stated, strict=True):
        ((found,),) = session.rows(statement)
        if found != expected:
            yield f"{place}: expected {expected} {what}, as the index says, found {found}"
    for what, statement in _STRAYS.items():
        parameters = (row.number,) if "%s" in statement else ()
        ((found,),) = session.rows(statement, *parameters)
        if found:
            yield f"{place}: {found} {what}"
    try:
        for _ in view.documents():
            pass
    except DamagedIndexError as error:
        yield str(error)
    yield from _postings_problems(view)
    if row.efforts is not None and not graph_is_valid(session.connection, session.tables):
        yield (
            f"{place}: the HNSW graph is missing or invalid; `retriever compact --index-type hnsw` "
            "builds it again"
        )


def _postings_problems(view: PostgresView) -> Iterator[str]:
    session = view.session
    ((packed,),) = session.rows(
        "SELECT string_agg(int8send(passage) || int8send(length), ''::bytea ORDER BY passage) "
        "FROM {passages}"
    )
    table = ids_of(packed).reshape(-1, 2)
    passages, lengths = table[:, 0], table[:, 1]
    sums, wrong, strays = np.zeros(len(passages), np.int64), 0, 0
    dead = view.dead
    for _, first, _, postings in all_blocks(session.connection, session.tables):
        held = postings["passage"]
        if not len(held) or held.min() < first:
            yield f"{session.location}: a block of postings begins before its first passage {first}"
            continue
        places = np.minimum(np.searchsorted(passages, held), max(len(passages) - 1, 0))
        known = passages[places] == held if len(passages) else np.zeros(len(held), np.bool_)
        np.add.at(sums, places[known], postings["frequency"][known])
        wrong += int(np.count_nonzero(postings["length"][known] != lengths[places[known]]))
        strays += int(np.count_nonzero(~np.isin(held[~known], dead)))
    if strays:
        yield f"{session.location}: {strays} postings of passages that do not exist"
    differing = int(np.count_nonzero(sums != lengths))
    if differing or wrong:
        yield (
            f"{session.location}: the postings of {differing} passages do not add up to their "
            f"lengths, and {wrong} postings name another length; index again with --recreate"
        )
