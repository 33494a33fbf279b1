"""The summary of metadata fields, compared with the metadata of all documents."""

import pytest

from indexes.filters.facets import summaries_of
from retriever import FieldSummary, Index

TYPES = {str: "string", int: "number", float: "number", bool: "boolean", list: "array"}


@pytest.fixture(params=[20, 600])
def index(request, tmp_path, fake_encoder):
    """An index with 600 documents in a segment and twenty pending in the database."""
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


def test_fields_have_the_types_values_and_ranges_of_all_documents(index):
    documents_metadata = [document.metadata for document in index]
    fields = {field.name: field for field in index.fields()}
    for field, expected in zip(fields.values(), summaries_of(documents_metadata), strict=True):
        assert field._replace(distinct=0) == expected._replace(distinct=0)
    for name, field in fields.items():
        values = [
            metadata[name] for metadata in documents_metadata if metadata.get(name) is not None
        ]
        assert set(field.types) == {TYPES[type(value)] for value in values}
        numbers = [value for value in values if type(value) in (int, float)]
        assert field.range == ((min(numbers), max(numbers)) if numbers else None)
    years = (2000, 2001, 2002, 2003, 2004)
    assert fields["year"] == FieldSummary("year", ("number",), years, True, (2000, 2004), 5)
    assert (fields["ok"].values, fields["tags"].values) == ((False, True), ("a", 0, 1, 2))
    assert fields["url"].values == tuple(sorted(row["url"] for row in documents_metadata)[:12])
    assert not fields["url"].complete
    index.delete_where("year = 2004")
    (year,) = (field for field in index.fields() if field.name == "year")
    assert (year.values, year.range) == (years[:4], (2000, 2003))


def test_types_of_long_values_are_read_from_a_limited_number_of_documents(
    tmp_path, fake_encoder, monkeypatch
):
    monkeypatch.setattr("indexes.folder.facets._UNKEPT_READ", 600)
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
