"""Collections of Chroma, made by the real package."""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import replace

import pytest

pytest.importorskip("chromadb")

import chromadb
from chromadb.config import Settings

from retriever import ConfigError, Fields, Index, SourceError, import_documents


def client(tmp_path):
    settings = Settings(anonymized_telemetry=False)
    return closing(chromadb.PersistentClient(str(tmp_path / "chroma"), settings))


def fill(client, sample_collection, space="cosine", name="notes", scale=1.0):
    # More than `sync_threshold` vectors are in files, the last ones in SQLite alone.
    collection = client.create_collection(
        name,
        embedding_function=None,
        configuration={"hnsw": {"space": space, "sync_threshold": 150, "ef_search": 500}},
    )
    for start in range(0, len(sample_collection.documents), 90):
        some = sample_collection.documents[start : start + 90]
        collection.add(
            ids=[one.id for one in some],
            embeddings=sample_collection.vectors[start : start + 90] * scale,
            documents=[one.text for one in some],
            metadatas=[one.metadata for one in some],
        )
    collection.delete(ids=["d3", "d200"])
    return collection


def top_tens(collection, sample_collection, where=None):
    found = collection.query(
        query_embeddings=sample_collection.query_vectors(), n_results=10, where=where
    )
    return found["ids"]


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_chroma_import_has_same_top_ten_without_unpickling(
    sample_collection, tmp_path, space, monkeypatch
):
    with client(tmp_path) as chroma:
        collection = fill(chroma, sample_collection, space)
        expected, filtered = (
            top_tens(collection, sample_collection),
            top_tens(collection, sample_collection, {"even": True}),
        )
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    report = import_documents(
        tmp_path / "index", f"chroma:{tmp_path / 'chroma'}", sample_collection.model
    )
    assert report.added == len(sample_collection.documents) - 2
    assert sample_collection.top_tens(tmp_path / "index") == expected
    assert sample_collection.top_tens(tmp_path / "index", "even = true") == filtered


@pytest.mark.parametrize("title", [None, "name"])
def test_texts_and_metadata_are_kept_and_a_field_can_be_the_title(
    sample_collection, tmp_path, title
):
    with client(tmp_path) as chroma:
        fill(chroma, sample_collection)
    source = f"chroma:{tmp_path / 'chroma'}/notes"
    import_documents(
        tmp_path / "index", source, sample_collection.model, fields=Fields(title=title)
    )
    expected = {
        document.id: document
        for document in sample_collection.documents
        if document.id not in ("d3", "d200")
    }
    if title:
        for id_, one in expected.items():
            metadata = dict(one.metadata)
            expected[id_] = replace(one, title=metadata.pop("name"), metadata=metadata)
    with Index.open(tmp_path / "index") as index:
        assert {document.id: document for document in index} == expected
    with pytest.raises(ConfigError, match="leave --id-field out"):
        import_documents(
            tmp_path / "index", source, sample_collection.model, fields=Fields(id="name")
        )


def test_chroma_import_warns_of_other_ranking(sample_collection, tmp_path):
    with client(tmp_path) as chroma:
        fill(chroma, sample_collection, "l2", scale=3)
    with pytest.warns(UserWarning, match="vectors are not of length 1: .* by the cosine"):
        import_documents(
            tmp_path / "index", f"chroma:{tmp_path / 'chroma'}", sample_collection.model
        )


def test_chroma_import_needs_name_of_one_of_several_collections(sample_collection, tmp_path):
    with client(tmp_path) as chroma:
        fill(chroma, sample_collection)
        chroma.create_collection("empty", embedding_function=None)
    source = f"chroma:{tmp_path / 'chroma'}"
    for given in (source, f"{source}/other"):
        with pytest.raises(SourceError, match="collections empty, notes"):
            import_documents(tmp_path / "index", given, sample_collection.model)
    with pytest.raises(SourceError, match="holds no documents"):
        import_documents(tmp_path / "index", f"{source}/empty", sample_collection.model)
    assert not (tmp_path / "index").exists()


def test_a_folder_that_is_not_chroma_is_refused_and_left_alone(sample_collection, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"chroma\.sqlite3"):
        import_documents(
            tmp_path / "index", f"chroma:{tmp_path / 'empty'}", sample_collection.model
        )
    assert list((tmp_path / "empty").iterdir()) == []
