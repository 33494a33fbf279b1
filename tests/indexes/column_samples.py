"""Passages that a filter allows by the documents' rows, and a guard against reading documents."""

import sqlite3
from contextlib import closing, contextmanager

import numpy as np
import pytest

from indexes.filters.grammar import compile_where
from indexes.folder import filtering
from indexes.folder.filtering import STORED, evaluate_filter, matching_passages
from indexes.folder.view import FolderReader
from tests.indexes.index_samples import document


def numbered(count, first=0):
    """Return documents d0, d1, ... with their number as metadata."""
    return [document(f"d{i}", f"text{i}", {"n": i}) for i in range(first, first + count)]


@contextmanager
def documents_refused():
    """Let every filter fail that reads documents."""

    def refuse(*_):
        raise AssertionError("evaluated for every document")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "matching_passages", refuse)
        yield


def allowed_ids(folder, text):
    """List the ids of the passages that a filter allows, ascending."""
    with closing(FolderReader(folder)) as reader:
        return allowed_ids_of(reader, text)


def allowed_ids_of(reader, text):
    """List the ids of the passages that a filter allows, for an open reader."""
    with reader.view() as view:
        ids = []
        for live, mask in zip(view.segments, view.allowed(compile_where(text)), strict=True):
            assert len(mask) == len(live.segment.ids)
            ids += live.segment.ids[mask.positions].tolist()
        return sorted(ids)


def matching_ids(connection, text):
    """List the passages of all documents in a database that match a filter."""
    passages = [number for (number,) in connection.execute("SELECT passage FROM passages")]

    def masks(condition):
        return np.isin(passages, matching_passages(connection, STORED, condition))

    mask = evaluate_filter(compile_where(text).expression, masks)
    return sorted(np.array(passages, np.int64)[mask].tolist())


def allowed_ids_by_documents(folder, text):
    """List the ids of the passages that a filter allows, from the documents alone."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        return matching_ids(connection, text)
