"""Checks of an index in Milvus: every row is read and compared with the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np

from indexes.errors import DamagedIndexError
from indexes.milvus.view import MilvusView

_FIELDS = ("passage", "document", "id", "length", "counts", "vector")


def problems(view: MilvusView) -> Iterator[str]:
    """One line for each problem found in a commit."""
    name = str(view.location)
    try:
        view.check_settings()
    except DamagedIndexError as error:
        yield str(error)
    expected: dict[int, str] = {}
    documents = 0
    try:
        for document in view.documents():
            documents += 1
            expected |= {passage: document.id for passage, *_ in document.passages}
    except DamagedIndexError as error:
        yield str(error)
        return
    if documents != view.count_documents():
        yield f"{name}: expected {view.count_documents():,} documents, found {documents:,}"
    found, length = 0, 0
    seen: set[int] = set()
    df: Counter[str] = Counter()
    for row in view.stream(view.visible, _FIELDS):
        if row["passage"] in seen:
            # There twice while a writer rewrites it.
            continue
        seen.add(row["passage"])
        found += 1
        counts = json.loads(row["counts"])
        length += row["length"]
        df.update(counts.keys())
        if expected.pop(row["passage"], None) != row["id"]:
            yield f"{name}: passage {row['passage']} belongs to no document"
        if sum(counts.values()) != row["length"]:
            yield f"{name}: passage {row['passage']}: its terms are not as many as its length says"
        if not np.isfinite(row["vector"]).all():
            yield f"{name}: passage {row['passage']}: its vector holds NaN or infinity"
    for passage, id_ in expected.items():
        yield f"{name}: passage {passage} of document {id_!r} is missing"
    if found != view.passage_count:
        yield f"{name}: expected {view.passage_count:,} passages, found {found:,}"
    if length != view.total_length:
        yield f"{name}: expected {view.total_length:,} terms in all, found {length:,}"
    stored = view.vocabulary()
    for term in sorted({*df, *stored}):
        if df[term] != stored[term]:
            yield (
                f"{name}: term {term!r}: {df[term]:,} passages hold it, and {stored[term]:,} are "
                "counted"
            )
            break
