"""What a filter allows by the documents' own rows, and whether columns answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from index_samples import NewDocument, document

import indexes.filters.applying
from indexes.filters.grammar import compile_where
from indexes.reader import Reader

CHUNK_USERS = ("columns", "column_rows", "check", "applying")


def small_chunks(patch: pytest.MonkeyPatch, size: int = 4) -> None:
    """Let chunks hold a few passages."""
    for module in CHUNK_USERS:
        patch.setattr(f"indexes.filters.{module}.CHUNK", size)


def numbered(count: int, first: int = 0) -> list[NewDocument]:
    """Documents d0, d1, ... with their number as metadata."""
    return [document(f"d{i}", f"text{i}", {"n": i}) for i in range(first, first + count)]


@contextmanager
def rows_refused() -> Iterator[None]:
    """Let a filter fail that columns do not answer."""

    def refuse(*_: object) -> None:
        raise AssertionError("evaluated for every document")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes.filters.applying, "_by_rows", refuse)
        yield


def allowed(folder: Path, text: str) -> list[int]:
    """The ids of the passages that a filter allows, ascending."""
    with closing(Reader(folder)) as reader:
        return allowed_to(reader, text)


def allowed_to(reader: Reader, text: str) -> list[int]:
    """The same, for a reader that is open."""
    with reader.view() as view:
        found = []
        for live, some in zip(view.segments, view.allowed(compile_where(text)), strict=True):
            ids = live.segment.ids
            one_by_one = some.at(np.arange(len(ids))[::-1])[::-1]
            np.testing.assert_array_equal(some.mask, one_by_one)
            np.testing.assert_array_equal(some.positions, np.flatnonzero(some.mask))
            assert some.count == len(some.positions) <= some.at_most <= len(ids)
            assert some.mask.shape == ids.shape
            assert not some.mask.flags.writeable
            found += ids[some.mask].tolist()
        return sorted(found)


def allowed_by_rows(folder: Path, text: str) -> list[int]:
    """The same, as the filter's SQL says of all documents."""
    where = compile_where(text)
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        rows = connection.execute(
            "SELECT p.passage FROM documents AS d JOIN passages AS p ON p.doc = d.doc "
            f"WHERE {where.sql} ORDER BY p.passage",
            where.parameters,
        ).fetchall()
    return [passage for (passage,) in rows]


def column(folder: Path, field: str) -> tuple[int | None, list[str], int]:
    """What is stored of a field: whether it is kept (None: unknown), its values, its chunks."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        kept = connection.execute("SELECT kept FROM fields WHERE field = ?", (field,)).fetchone()
        values = connection.execute(
            "SELECT metadata FROM field_values WHERE field = ? ORDER BY code", (field,)
        ).fetchall()
        (chunks,) = connection.execute(
            "SELECT count(*) FROM field_codes WHERE field = ?", (field,)
        ).fetchone()
    return kept and kept[0], [value for (value,) in values], chunks
