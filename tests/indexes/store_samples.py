"""Small indexes for the tests of stores that are databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from indexes import IndexLockedError, NewDocument, Store

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


def check_replacement(store: Store, *, locks: bool) -> None:
    """A hidden index takes the place of an old one at its end; the same settings resume it."""
    with store.writer() as writer:
        writer.commit(*documents(["old"]))
    with closing(store.reader()) as reader:
        with reader.view() as view:
            before = view.identity
        with store.replacement("x") as new:
            assert not new.exists()
            new.create(SETTINGS)
            with new.writer() as writer:
                writer.commit(*documents(["new"]))
            assert (ids_of(store), ids_of(new)) == (["old"], ["new"])
            if locks:
                with pytest.raises(IndexLockedError, match="replacing it"), store.writer():
                    pass
        with reader.view() as view:
            assert view.identity != before
            assert view.content_hashes(["new"])
    assert not new.exists()
    for begun_with, expected in (("x", False), ("x", True), ("y", False)):
        with pytest.raises(RuntimeError), store.replacement(begun_with) as new:  # noqa: PT012
            assert new.exists() is expected
            new.create(SETTINGS)
            raise RuntimeError
    assert (ids_of(store), store.verify()) == (["new"], [])


def check_outlines(store: Store) -> None:
    """An outline is stored with its document, also where its metadata changes or it is replaced."""
    outline = '[[0,"page","i"],[1,"heading","Zwölf",1],[3,"page","ii"],[9,"page","iii"]]'
    made, vectors, terms = documents(["a", "b"])
    made[0] = made[0]._replace(outline=outline)
    with store.writer() as writer:
        writer.commit(made, vectors, terms)
        writer.commit([], vectors[:0], [], {"a": {"n": 1}})
    with viewed(store) as view:
        held = {one.id: one for one in view.documents()}
        assert {id_: one.outline for id_, one in held.items()} == {"a": outline, "b": ""}
        assert (held["a"], held["a"].metadata) == (view.document("a"), {"n": 1})
        for one in held.values():
            found = view.passages([passage for passage, *_ in one.passages]).values()
            assert {passage.outline for passage in found} == {one.outline}
            shown = [passage.text[passage.start : passage.stop] for passage in found]
            assert sorted(shown) == sorted(one.text[a:b] for _, a, b in one.passages)
            if one.outline:
                assert {passage.text for passage in found} == {one.text}
    assert store.verify() == []
    with store.writer() as writer:
        writer.commit([documents(["a"])[0][0]], vectors[:2], terms[:2])
    with viewed(store) as view:
        assert view.document("a").outline == ""
