"""Small indexes for the tests of stores that are databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from indexes import NewDocument, Store
from indexes.errors import IndexLockedError

DIMENSIONS = 8
SETTINGS = {"encoder": {"dimensions": DIMENSIONS}, "structures": {}}


def documents(
    ids: Sequence[str], metadata: Mapping[str, Any] | None = None, seed: int = 0
) -> tuple[list[NewDocument], np.ndarray, list[list[str]]]:
    """Return documents of two passages, with vectors and terms, for `Writer.commit`."""
    chance = np.random.default_rng(seed)
    new_documents = [
        NewDocument(id_, None, f"{id_} apple pear", metadata or {}, bytes([seed]), [(0, 3), (3, 9)])
        for id_ in ids
    ]
    vectors = chance.standard_normal((2 * len(ids), DIMENSIONS)).astype(np.float32)
    return new_documents, vectors, [["apple", id_] for id_ in ids for _ in range(2)]


def single_passage_document(
    number: int, metadata: Mapping[str, Any] | None = None, text: str = "apple"
) -> NewDocument:
    """Return a document of one passage."""
    return NewDocument(f"{number:05}", None, text, metadata or {}, b"h", [(0, len(text))])


@contextmanager
def open_view(store: Store) -> Iterator[Any]:
    """Open a view with its own reader."""
    with closing(store.reader()) as reader, reader.view() as view:
        yield view


def ids_of(store: Store) -> list[str]:
    """List the ids of all documents."""
    with open_view(store) as view:
        return [document.id for document in view.documents()]


def check_replacement(store: Store, *, locks: bool) -> None:
    """Assert that a hidden index replaces the old one when done and can be resumed."""
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
    """Assert that an outline is stored with its document through changes and replacement."""
    outline = '[[0,"page","i"],[1,"heading","Zwölf",1],[3,"page","ii"],[9,"page","iii"]]'
    new_documents, vectors, terms = documents(["a", "b"])
    new_documents[0] = new_documents[0]._replace(outline=outline)
    with store.writer() as writer:
        writer.commit(new_documents, vectors, terms)
        writer.commit([], vectors[:0], [], {"a": {"n": 1}})
    with open_view(store) as view:
        stored_documents = {document.id: document for document in view.documents()}
        assert {id_: document.outline for id_, document in stored_documents.items()} == {
            "a": outline,
            "b": "",
        }
        assert (stored_documents["a"], stored_documents["a"].metadata) == (
            view.document("a"),
            {"n": 1},
        )
        for document in stored_documents.values():
            passages = view.passages([passage for passage, *_ in document.passages]).values()
            assert {passage.outline for passage in passages} == {document.outline}
            excerpts = [passage.text[passage.start : passage.stop] for passage in passages]
            assert sorted(excerpts) == sorted(document.text[a:b] for _, a, b in document.passages)
            if document.outline:
                assert {passage.text for passage in passages} == {document.text}
    assert store.verify() == []
    with store.writer() as writer:
        writer.commit([documents(["a"])[0][0]], vectors[:2], terms[:2])
    with open_view(store) as view:
        assert view.document("a").outline == ""


def documents_in_languages(ids: Sequence[str], *languages: str) -> tuple[Any, ...]:
    """Return `documents` with the languages of both passages of each."""
    new_documents, vectors, terms = documents(ids)
    return [document._replace(languages=languages) for document in new_documents], vectors, terms


def languages_of(store: Store) -> tuple[dict[str, int], int]:
    """Return the language counts, and how many passages or documents are uncounted."""
    with open_view(store) as view:
        return view.setting("languages", {}), view.describe()["uncounted_passages"]


def check_languages(store: Store, forget: Callable[[Any], object]) -> None:
    """Languages count as the passages that are stored; `forget` makes these an earlier release's.

    The numbers of an earlier release are too high until its passages are gone or counted again.
    """
    with store.writer() as writer:
        writer.commit(*documents_in_languages(["a", "b", "c"], "english", "english russian"))
        writer.commit(*documents_in_languages(["d"], "german", ""))
    assert languages_of(store) == ({"english": 6, "russian": 3, "german": 1}, 0)
    with store.writer() as writer:
        # A new text, the same one with other metadata, and one that is deleted twice.
        writer.commit(*documents_in_languages(["a"], "german", "german"), {"b": {"n": 1}})
        assert (writer.delete(["c", "never"]), writer.delete(["c"])) == (1, 0)
        assert writer.are_languages_counted()
    assert languages_of(store) == ({"english": 2, "russian": 1, "german": 3}, 0)
    with store.writer() as writer:
        writer.record("languages", {"english": 2})
        assert not writer.are_languages_counted()
    assert "add up to" in " ".join(store.verify())
    with store.writer() as writer:
        writer.record("languages", {"english": 9, "russian": 1, "german": 3})
        forget(writer)
    assert store.verify() == []
    with store.writer() as writer:
        assert not writer.are_languages_counted()
        writer.commit(*documents_in_languages(["e"], "greek", "greek"))
        writer.delete(["a"])
        writer.commit(*documents_in_languages(["f"], "greek", "greek"))
    counts, uncounted = languages_of(store)
    assert counts == {"english": 9, "russian": 1, "german": 3, "greek": 4}
    assert (uncounted > 0, store.verify()) == (True, [])
    with store.writer() as writer, open_view(store) as view:
        languages_by_id = {"b": ["dutch", "dutch"], "d": ["german", ""]}
        writer.count_languages(
            [
                (document, languages_by_id.get(document.id, ["greek"] * 2))
                for document in view.documents()
            ]
        )
        assert writer.are_languages_counted()
    assert languages_of(store) == ({"dutch": 2, "german": 1, "greek": 4}, 0)
    with store.writer() as writer:
        forget(writer)
        writer.record("languages", {"dutch": 20, "german": 1, "greek": 4})
        writer.commit(*documents_in_languages(["g"], "danish", "danish"))
        writer.delete(["b", "d", "e"])
        # Of the last one that an earlier release stored, the text is new.
        writer.commit(*documents_in_languages(["f"], "polish", "polish"))
    assert languages_of(store) == ({"danish": 2, "polish": 2}, 0)
    assert store.verify() == []
    with store.writer() as writer:
        assert writer.delete_unseen() == 2
    assert languages_of(store) == ({}, 0)
