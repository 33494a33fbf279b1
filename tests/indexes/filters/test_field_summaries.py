"""The summary of metadata fields, compared with the metadata of all documents."""

import json

import pytest

from retriever import FieldSummary, Index

TYPES = {str: "string", int: "number", float: "number", bool: "boolean", list: "array"}


@pytest.fixture(params=[20, 600])
def index(request, tmp_path, fake_encoder):
    """Twenty documents wait in the database, 600 make a segment."""
    documents = []
    for i in range(request.param):
        document = {
            "id": str(i),
            "text": f"text {i}",
            "year": 2000 + i % 5,
            "lang": "deen"[i % 2 :],
        }
        document |= {"url": f"https://example.org/{i:04}", "ok": i % 2 == 0, "tags": ["a", i % 3]}
        document |= {"mixed": i / 2 if i % 2 else str(i % 3)} if i else {"only": None}
        documents.append(document)
    with Index.create(tmp_path / "index") as index:
        index.add(documents)
        yield index


def test_fields_have_the_types_and_ranges_of_all_documents(index):
    found = {one.name: one for one in index.fields()}
    values = {}
    for document in index:
        for name, value in document.metadata.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    assert list(found) == sorted(values)
    for name, held in values.items():
        assert set(found[name].types) == {TYPES[type(value)] for value in held}
        numbers = [one for one in held if type(one) in (int, float)]
        assert found[name].range == ((min(numbers), max(numbers)) if numbers else None)
        if "array" not in found[name].types:
            assert set(found[name].values) <= set(held)
            assert found[name].complete == (
                set(map(repr, held)) <= set(map(repr, found[name].values))
            )


def test_few_values_are_all_given(index):
    found = {one.name: one for one in index.fields()}
    assert found["year"] == FieldSummary(
        "year", ("number",), (2000, 2001, 2002, 2003, 2004), True, (2000, 2004), 5
    )
    assert found["ok"].values == (False, True)
    assert found["tags"].values == ("a", 0, 1, 2)
    assert not found["url"].complete
    json.dumps(found["mixed"].values)


def test_values_of_deleted_documents_are_left_out(index):
    index.delete_where("year = 2004")
    found = {one.name: one for one in index.fields()}
    assert found["year"].values == (2000, 2001, 2002, 2003)
    assert found["year"].range == (2000, 2003)


def test_of_many_values_too_long_to_be_kept_the_first_are_read(tmp_path, fake_encoder, monkeypatch):
    monkeypatch.setattr("indexes.filters.facets._UNKEPT_READ", 600)
    with Index.create(tmp_path / "index") as index:
        index.add({"id": f"{i:03}", "text": f"text {i}", "f": "x" * 2000} for i in range(600))
        assert index.filter_warning("f like 'x%'") is None
        assert "has strings and no numbers" in index.filter_warning("f = 1")
        assert "has strings and no lists" in index.filter_warning("f contains 1")
        index.add([{"id": "last", "text": "text", "f": ["x" * 2000]}])
        index.compact()
        # Whether there is a list is not known.
        assert index.filter_warning("f contains 1") is None
        index.delete(["last"])
        assert "has strings and no lists" in index.filter_warning("f contains 1")
