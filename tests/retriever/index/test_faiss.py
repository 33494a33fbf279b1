"""An index of FAISS beside a JSONL of its documents."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("faiss")

import faiss

from retriever import SourceError, import_documents
from tests.retriever.index.collection_samples import Collection


def corpus(folder, sample_collection):
    path = folder / "corpus.jsonl"
    lines = (
        {"id": document.id, "text": document.text, **document.metadata}
        for document in sample_collection.documents
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_faiss(folder, sample_collection, index, scale=1.0):
    if not index.is_trained:
        index.train(sample_collection.vectors)
    rows = sample_collection.vectors * np.float32(scale)
    if isinstance(index, faiss.IndexIDMap):
        index.add_with_ids(rows, np.arange(len(rows)))
    else:
        index.add(rows)
    faiss.write_index(index, str(folder / "vectors.faiss"))
    return folder / "vectors.faiss"


def inverted_lists(width):
    quantizer = faiss.IndexFlatL2(width)
    index = faiss.IndexIVFFlat(quantizer, width, 4)
    index.nprobe = 4
    return index


@pytest.mark.parametrize(
    ("make", "scale"),
    [
        (faiss.IndexFlatIP, 1),
        (faiss.IndexFlatL2, 1),
        # LangChain and others count from 0.
        (lambda width: faiss.IndexIDMap(faiss.IndexFlatIP(width)), 1),
        (lambda width: faiss.IndexHNSWFlat(width, 64), 1),
        (inverted_lists, 1),
        # Of long vectors, which an encoder that does not normalize gives.
        (faiss.IndexFlatIP, 3),
    ],
    ids=["flat-ip", "flat-l2", "id-map", "hnsw", "ivf", "long"],
)
def test_faiss_import_has_same_top_ten(tmp_path, make, scale):
    sample_collection = Collection.make(tmp_path, settings="" if scale == 1 else "::normalize=no")
    index = make(sample_collection.vectors.shape[1])
    vectors = write_faiss(tmp_path, sample_collection, index, scale)
    import_documents(
        tmp_path / "index",
        corpus(tmp_path, sample_collection),
        sample_collection.model,
        vectors=vectors,
    )
    if isinstance(index, faiss.IndexHNSWFlat):
        index.hnsw.efSearch = 400
    _, places = index.search(sample_collection.query_vectors(), 10)
    expected = [[sample_collection.documents[place].id for place in row] for row in places]
    assert sample_collection.top_tens(tmp_path / "index") == expected


def test_another_ranking_and_approximate_vectors_are_noted(tmp_path, sample_collection):
    width = sample_collection.vectors.shape[1]
    source = corpus(tmp_path, sample_collection)
    vectors = write_faiss(tmp_path, sample_collection, faiss.IndexFlatIP(width), scale=3)
    with pytest.warns(UserWarning, match="::normalize=no"):
        import_documents(tmp_path / "one", source, sample_collection.model, vectors=vectors)
    vectors = write_faiss(
        tmp_path,
        sample_collection,
        faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit),
    )
    with (
        pytest.warns(UserWarning, match="compressed vectors"),
        pytest.warns(UserWarning, match="not of length 1"),
    ):
        import_documents(tmp_path / "two", source, sample_collection.model, vectors=vectors)


def test_faiss_import_names_damaged_file(tmp_path, sample_collection):
    source = corpus(tmp_path, sample_collection)
    vectors = write_faiss(
        tmp_path, sample_collection, faiss.IndexFlatL2(sample_collection.vectors.shape[1])
    )
    vectors.write_bytes(vectors.read_bytes()[:200])
    with pytest.raises(SourceError, match=r"vectors\.faiss.*write_index"):
        import_documents(tmp_path / "index", source, sample_collection.model, vectors=vectors)
