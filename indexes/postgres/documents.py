"""The documents of an index and their passages: statements that a writer runs in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from indexes.metadata import document_checksum
from indexes.postgres.postings import write_postings
from indexes.postgres.ranking import copy_passages
from indexes.postgres.schema import Tables
from indexes.protocol import NewDocument

_COPY_DOCUMENTS = (
    "COPY {documents} (doc, id, title, text, metadata, exact, hash, checksum, outline, "
    "languages) FROM STDIN"
)


class RemovedDocuments(NamedTuple):
    """Counts of deleted documents."""

    documents: int
    passages: int
    length: int  # number of terms in the passages
    languages: list[tuple[str | None, int]]  # as `changed_counts` takes them


def store_passages(
    tables: Tables,
    documents: Sequence[NewDocument],
    vectors: NDArray[np.float32],
    terms: Sequence[Sequence[str]],
) -> list[NDArray[np.int64]]:
    """Store new passages with their postings; returns their ids for each document."""
    if not documents:
        return []
    counts = [len(document.spans) for document in documents]
    ids = _new_passage_ids(tables, sum(counts))
    ids_of_documents = np.split(ids, np.cumsum(counts)[:-1])
    lengths = np.array([len(passage_terms) for passage_terms in terms], np.int64)
    spans = np.array([span for document in documents for span in document.spans])
    # The number of a document is the id of its first passage.
    numbers = np.repeat([document_ids[0] for document_ids in ids_of_documents], counts)
    copy_passages(tables, [ids, numbers, spans[:, 0], spans[:, 1], lengths], vectors)
    write_postings(tables, terms, ids)
    return ids_of_documents


def copy_documents(
    tables: Tables,
    documents: Sequence[NewDocument],
    encoded: Sequence[tuple[str, str | None]],
    passages: Sequence[NDArray[np.int64]],
) -> None:
    """Store documents.

    Args:
        tables: of the index.
        documents: whose passages are stored.
        encoded: the metadata of each document, by `encode_metadata`.
        passages: the ids of the passages of each document, by `store_passages`.
    """
    statement = tables.statement(_COPY_DOCUMENTS)
    with tables.connection.cursor() as cursor, cursor.copy(statement) as copy:
        for document, ids, metadata in zip(documents, passages, encoded, strict=True):
            content = (document.id, document.title, document.text)
            numbers = ids.tolist()
            spans = [
                (number, start, stop)
                for number, (start, stop) in zip(numbers, document.spans, strict=True)
            ]
            checksum = document_checksum(spans, *content, "", document.hash, document.outline)
            columns = (*content, *metadata, document.hash, checksum, document.outline)
            copy.write_row((numbers[0], *columns, " ".join(document.languages)))


def remove_documents(
    tables: Tables, where: str, parameters: Sequence[Any], generation: int
) -> RemovedDocuments:
    """Delete the documents that meet a condition, as a part of commit `generation`."""
    (counts,) = tables.rows(
        "WITH gone AS (DELETE FROM {documents} AS d WHERE {where} RETURNING doc, languages), "
        "dead AS (DELETE FROM {passages} WHERE doc IN (SELECT doc FROM gone) "
        "RETURNING passage, length), "
        "noted AS (INSERT INTO {deleted} SELECT passage, %s FROM dead) "
        "SELECT (SELECT count(*) FROM gone), count(*), coalesce(sum(length), 0)::bigint, "
        "(SELECT coalesce(json_agg(json_build_array(languages, number)), '[]') FROM "
        "(SELECT languages, count(*) AS number FROM gone GROUP BY languages) AS told) "
        "FROM dead",
        *parameters,
        generation,
        where=sql.SQL(where),
    )
    return RemovedDocuments(*counts)


def _new_passage_ids(tables: Tables, count: int) -> NDArray[np.int64]:
    """Return (count,) int64 new ids of passages, ascending."""
    statement = "SELECT nextval('retriever.passage_ids') FROM generate_series(1, %s)"
    rows = tables.execute(statement, count)
    return np.sort(np.fromiter((row[0] for row in rows), np.int64))
