"""A document with ready vectors is stored only if its parts fit each other and the index."""

from __future__ import annotations

import numpy as np
import pytest

from indexes.folder.verify import verify
from retriever import Document, Index, ReadyDocument
from retriever.errors import SourceError
from retriever.index.indexing.embedded_documents import AnalyzedTerms

DOCUMENT = Document("x", "w1 w2 w3")
WHOLE = [(0, 8)]
ONES = np.ones((1, 8), np.float32)


@pytest.fixture
def index(tmp_path, model):
    with Index.create(tmp_path / "index", model) as index:
        yield index


@pytest.mark.parametrize(
    ("spans", "vectors", "fault"),
    [
        (WHOLE, ONES[:, :5], r"of shape \(1, 8\), .* found \(1, 5\)"),
        (WHOLE, ONES[0], r"found \(8,\)"),
        ([(0, 2), (3, 8)], ONES, r"of shape \(2, 8\), .* found \(1, 8\)"),
        (WHOLE, ONES * np.nan, "passage 1: .*NaN"),
        (WHOLE, ONES.astype(np.float64) * 1e300, "passage 1: .*too large"),
        ([(0, 2), (3, 8)], np.array([[1] * 8, [1] * 7 + [-np.inf]]), "passage 2: .*infinity"),
        (WHOLE, [[1.0] * 8], "found list"),
        (WHOLE, ONES.astype(str), "found <U32"),
        ([], ONES[:0], "at least one passage, found none"),
        ([(0, 9)], ONES, r"passage 1: expected integers from 0 to 8, .*found \(0, 9\)"),
        ([(-3, 8)], ONES, r"found \(-3, 8\)"),
        ([(0, 2), (5, 3)], np.ones((2, 8)), r"passage 2: .*found \(5, 3\)"),
        ([(0.0, 8)], ONES, r"found \(0\.0, 8\)"),
        ([(0, 4, 8)], ONES, r"found \(0, 4, 8\)"),
        ([0, 8], ONES, "passage 1: .*found 0"),
    ],
)
def test_add_refuses_mismatched_spans_or_vectors_and_keeps_index_sound(
    index, spans, vectors, fault
):
    index.add(["w4 w5"])
    with pytest.raises(SourceError, match=f"document 'x': .*{fault}") as caught:
        index.add([Document("before", "w1"), ReadyDocument(DOCUMENT, spans, vectors)])
    assert "\n" not in str(caught.value)
    assert ("before" in index, "x" in index, len(index.search("w1"))) == (True, False, 2)
    index.compact()
    assert verify(index.folder) == []


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int8])
def test_vectors_of_other_dtypes_are_stored_as_float32(index, kind):
    vectors = np.array([[3, 4, 0, 0, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0, 0, 0]], kind)
    terms = AnalyzedTerms(index.analyzer.identity, [index.analyzer.tokens("apple"), []])
    index.add([ReadyDocument(DOCUMENT, [(0, 2), (3, 8)], vectors, terms)])
    with index._opened.view() as view:
        stored = view.vectors([passage for passage, _, _ in view.document("x").passages])
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored[:, :2], np.float32([[0.6, 0.8], [0, 1]]))
    assert index.spans("x") == [(0, 2), (3, 8)]
    assert [hit.start for hit in index.search("apple", mode="bm25")] == [0]
