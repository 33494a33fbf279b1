"""Small indexes for the tests of stores that are databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from indexes import NewDocument, Store

DIMENSIONS = 8
SETTINGS = {"encoder": {"dimensions": DIMENSIONS}, "structures": {}}


def documents(
    ids: Sequence[str], metadata: Mapping[str, Any] | None = None, seed: int = 0
) -> tuple[list[NewDocument], np.ndarray, list[list[str]]]:
    """Documents of two passages, with vectors and terms, as `Writer.commit` takes them."""
    chance = np.random.default_rng(seed)
    made = [
        NewDocument(id_, None, f"{id_} apple pear", metadata or {}, bytes([seed]), [(0, 3), (3, 9)])
        for id_ in ids
    ]
    vectors = chance.standard_normal((2 * len(ids), DIMENSIONS)).astype(np.float32)
    return made, vectors, [["apple", id_] for id_ in ids for _ in range(2)]


def single(
    number: int, metadata: Mapping[str, Any] | None = None, text: str = "apple"
) -> NewDocument:
    """A document of one passage."""
    return NewDocument(f"{number:05}", None, text, metadata or {}, b"h", [(0, len(text))])


@contextmanager
def viewed(store: Store) -> Iterator[Any]:
    """A view, by a reader of its own."""
    with closing(store.reader()) as reader, reader.view() as view:
        yield view


def ids_of(store: Store) -> list[str]:
    """The ids of all documents."""
    with viewed(store) as view:
        return [document.id for document in view.documents()]
