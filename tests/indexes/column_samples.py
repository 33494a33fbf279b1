"""What a filter allows by the documents' own rows, and whether documents were read for it."""

import sqlite3
from contextlib import closing, contextmanager

import numpy as np
import pytest
from index_samples import document

import indexes.filters.allowed
from indexes.filters.sql import compile_where
from indexes.folder.view import FolderReader


def numbered(count, first=0):
    """Documents d0, d1, ... with their number as metadata."""
    return [document(f"d{i}", f"text{i}", {"n": i}) for i in range(first, first + count)]


@contextmanager
def documents_refused():
    """Let a filter fail that reads documents."""

    def refuse(*_):
        raise AssertionError("evaluated for every document")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes.filters.allowed, "_matching", refuse)
        yield


def allowed(folder, text):
    """The ids of the passages that a filter allows, ascending."""
    with closing(FolderReader(folder)) as reader:
        return allowed_to(reader, text)


def allowed_to(reader, text):
    """The same, for a reader that is open."""
    with reader.view() as view:
        found = []
        for live, some in zip(view.segments, view.allowed(compile_where(text)), strict=True):
            ids = live.segment.ids
            assert len(some) == len(ids)
            one_by_one = some.at(np.arange(len(ids))[::-1])[::-1]
            assert np.flatnonzero(one_by_one).tolist() == some.positions.tolist()
            assert some.count == len(some.positions)
            bits = np.unpackbits(some.bits, bitorder="little")
            assert np.flatnonzero(bits).tolist() == some.positions.tolist()
            found += ids[some.positions].tolist()
        return sorted(found)


def allowed_by_documents(folder, text):
    """The same, as the filter's SQL says of all documents."""
    where = compile_where(text)
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        rows = connection.execute(
            "SELECT p.passage FROM documents AS d JOIN passages AS p ON p.doc = d.doc "
            f"WHERE {where.sql} ORDER BY p.passage",
            where.parameters,
        ).fetchall()
    return [passage for (passage,) in rows]
