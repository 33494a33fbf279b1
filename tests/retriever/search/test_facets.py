"""Facets against counting documents one by one, and against searches with their filters."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from retriever import ConfigError, Document, FilterError, Index

WORDS = [f"w{number}" for number in range(30)]


def documents(count: int, first: int = 0):
    """With values of all kinds; some have several passages."""
    chance = random.Random(first)
    for number in range(first, first + count):
        metadata = {"lang": chance.choice(["en", "en", "de"]), "id": number % 3}
        if number % 2:
            metadata["tags"] = chance.choices(["ml", "xml", 1, True, None, ["deep"]], k=number % 4)
        elif number % 3 == 0:
            metadata["tags"] = chance.choice(["ml", "html", 1, 1.0, True, None])
        if number % 5:
            name = chance.choice(["Ada", "Bob", "Åsa \\ 'q' \"x\" `y`", "long" * 300])
            metadata["author"] = chance.choice([{"name": name}, {"name": [name, "Bob"]}, name, {}])
        metadata["a key"] = chance.choice([1, 10**18, 0.5, 1e300, False])
        text = " ".join(chance.choices(WORDS, k=60 if number % 4 == 0 else 6))
        yield Document(f"d{number:04}", text, metadata=metadata)


def values(document: Document, names: list[str]) -> set[tuple[bool, object]]:
    """The distinct values of a document, booleans apart from numbers."""
    value: object = document.metadata
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return {
        (isinstance(one, bool), one)
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str | int | float)
    }


FIELDS = {
    "lang": ["lang"],
    "tags": ["tags"],
    "author.name": ["author", "name"],
    "author": ["author"],
    "`a key`": ["a key"],
    "`id`": ["id"],
}


@pytest.fixture(scope="module")
def index(tmp_path_factory, install_fake_encoder):
    """A segment with deletions and changed metadata, one as added, and waiting passages."""
    with pytest.MonkeyPatch.context() as patch:
        install_fake_encoder(patch)
        folder = tmp_path_factory.mktemp("facets") / "index"
        with Index.create(folder) as index:
            index.add(documents(400))
            index.compact()
            index.delete([f"d{number:04}" for number in range(0, 400, 7)])
            index.update("d0001", metadata={"lang": "fr"})
            index.add(documents(400, 400), compact=False)
            index.add(documents(40, 800), compact=False)
            info = index.info()
            assert len(info["segments"]) == 2
            assert info["waiting_passages"]
            assert info["passages"] > info["documents"]
            yield index


@pytest.mark.parametrize("where", [None, "`a key` = 1", "lang = 'de' and not (tags = 1)"])
@pytest.mark.parametrize("text", [None, "w3 w4", "nothing"])
def test_counts_are_those_of_the_documents_one_by_one(index, where, text):
    rankable = {hit.id for hit in index.search("w1", mode="dense", k=2000, where=where)}
    holding = set()
    if text is not None:
        holding = {hit.id for hit in index.search(text, mode="bm25", k=2000, where=where)}
    found = index.facets(FIELDS, text, where=where, limit=1000)
    assert found.documents == len(rankable)
    assert found.matches == (None if text is None else len(holding))
    assert list(found.fields) == list(FIELDS)
    for name, names in FIELDS.items():
        expected, matching = Counter(), Counter()
        for document in index:
            if document.id in rankable:
                expected.update(values(document, names))
                if document.id in holding:
                    matching.update(values(document, names))
        facet = found.fields[name]
        assert {
            (isinstance(value.value, bool), value.value): value.documents for value in facet.values
        } == (expected)
        assert facet.distinct == len(expected)
        for value in facet.values:
            key = (isinstance(value.value, bool), value.value)
            assert value.matches == (None if text is None else matching[key])


def test_the_filter_of_a_value_leaves_as_many_documents_as_it_counts(index):
    for where in (None, "lang = 'en'"):
        for facet in index.facets(FIELDS, "w3", where=where, limit=8).fields.values():
            for value in facet.values:
                both = value.where if where is None else f"{where} and {value.where}"
                assert len(index.search("w3", mode="dense", k=2000, where=both)) == value.documents
                assert len(index.search("w3", mode="bm25", k=2000, where=both)) == value.matches


def test_the_most_frequent_values_come_first_and_the_rest_is_counted(index):
    whole = index.facets(["author.name"], "w3", limit=100).fields["author.name"]
    first = index.facets(["author.name"], "w3", limit=2).fields["author.name"]
    assert first.values == whole.values[:2]
    assert first.distinct == whole.distinct == len(whole.values)
    counts = [(value.matches, value.documents) for value in whole.values]
    assert counts == sorted(counts, reverse=True)


def test_an_empty_index_has_no_values(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index, pytest.warns(UserWarning, match="no document"):
        found = index.facets(["lang"], "text")
    assert (found.documents, found.matches, found.fields["lang"].values) == (0, 0, ())


@pytest.mark.parametrize("name", ["", "id", "title", "a = 1", "a.", "and", "a b", "`a"])
def test_facets_refuse_unknown_field(index, name):
    with pytest.raises(FilterError, match=r"^field "):
        index.facets([name])


def test_facets_refuse_bad_arguments(index):
    with pytest.raises(TypeError):
        index.facets("lang")
    with pytest.raises(ConfigError, match="limit"):
        index.facets(["lang"], limit=0)
