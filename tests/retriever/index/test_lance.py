"""Tables of LanceDB, made by the real package."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

pytest.importorskip("lancedb")

import lancedb

from retriever import Fields, Index, SourceError, import_documents


@pytest.fixture
def database(tmp_path):
    return lancedb.connect(tmp_path / "lance")


def rows(sample_collection):
    return [
        {"id": one.id, "text": one.text, **one.metadata, "vector": vector.tolist()}
        for one, vector in zip(sample_collection.documents, sample_collection.vectors, strict=True)
    ]


def top_tens(table, sample_collection, metric, where=None):
    searches = (
        table.search(vector).distance_type(metric).limit(10)
        for vector in sample_collection.query_vectors()
    )
    return [
        [row["id"] for row in (one if where is None else one.where(where)).to_list()]
        for one in searches
    ]


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_lance_import_has_same_top_ten(database, sample_collection, tmp_path, metric):
    table = database.create_table("notes", rows(sample_collection))
    table.delete("id = 'd3'")
    report = import_documents(
        tmp_path / "index", f"lancedb:{tmp_path / 'lance'}", sample_collection.model
    )
    assert report.added == len(sample_collection.documents) - 1
    assert sample_collection.top_tens(tmp_path / "index") == top_tens(
        table, sample_collection, metric
    )
    filtered = top_tens(table, sample_collection, metric, "even = true")
    assert sample_collection.top_tens(tmp_path / "index", "even = true") == filtered


def test_texts_and_metadata_are_kept_and_columns_can_have_other_names(
    database, sample_collection, tmp_path
):
    day, names = datetime.date(2024, 5, 6), {"id": "key", "text": "body", "vector": "embedding"}
    for table, named, fields in (
        ("plain", {}, Fields()),
        ("named", names, Fields("key", "body", "name")),
    ):
        renamed = [
            {named.get(name, name): one for name, one in row.items()}
            for row in rows(sample_collection)
        ]
        database.create_table(table, [{**row, "day": day} for row in renamed])
        source = f"lancedb:{tmp_path / 'lance'}/{table}"
        import_documents(tmp_path / table, source, sample_collection.model, fields=fields)
        more = {"day": "2024-05-06"}
        expected = [
            replace(one, metadata=one.metadata | more) for one in sample_collection.documents
        ]
        if named:
            expected = [replace(one, title=one.metadata.pop("name")) for one in expected]
        with Index.open(tmp_path / table) as index:
            assert sorted(index, key=lambda one: int(one.id[1:])) == expected


def test_lance_import_needs_name_of_one_of_several_tables(database, sample_collection, tmp_path):
    for name in ("notes", "more"):
        database.create_table(name, rows(sample_collection)[:3])
    with pytest.raises(SourceError, match="more, notes"):
        import_documents(
            tmp_path / "index", f"lancedb:{tmp_path / 'lance'}", sample_collection.model
        )
    import_documents(
        tmp_path / "index", f"lancedb:{tmp_path / 'lance'}/more", sample_collection.model
    )


def test_lance_import_refuses_bad_tables_by_name(database, sample_collection, tmp_path):
    source = f"lancedb:{tmp_path / 'lance'}"
    with pytest.raises(SourceError, match="NAME of a table"):
        import_documents(tmp_path / "index", source, sample_collection.model)
    pa = pytest.importorskip("pyarrow")
    # Of a list that LanceDB makes a column of, only one named "vector" has a fixed size.
    kinds = pa.schema(
        {"id": pa.string(), **dict.fromkeys(("v", "other"), pa.list_(pa.float32(), 8))}
    )
    twice = [
        {"id": row["id"], "v": row["vector"], "other": row["vector"]}
        for row in rows(sample_collection)
    ]
    database.create_table("two", twice, schema=kinds)
    with pytest.raises(SourceError, match="--set vector-field"):
        import_documents(tmp_path / "index", f"{source}/two", sample_collection.model)
    database.create_table("same", rows(sample_collection)[:3] * 2)
    with pytest.raises(SourceError, match=r"'d0' was given before, at .*row 1"):
        import_documents(tmp_path / "index", f"{source}/same", sample_collection.model)
    database.create_table(
        "short", [{**row, "vector": row["vector"][1:]} for row in rows(sample_collection)]
    )
    with pytest.raises(SourceError, match=r"row 1: .* shape \(1, 8\), .* found \(1, 7\)"):
        import_documents(tmp_path / "index", f"{source}/short", sample_collection.model)
