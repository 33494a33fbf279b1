"""An index answers as plain Python does: random changes to both, then searches compared.

The index is made of several segments, and of passages that wait. Its documents are texts to encode
and ready vectors, with equal scores, zeros of both signs, long values, and parts that are refused.
"""

from __future__ import annotations

import math
import os
import random
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from indexes.folder.verify import verify
from retriever import Document, FilterError, Index, ReadyDocument, SourceError
from retriever.errors import BadInputError
from tests.indexes.random_samples import VALUES, WORDS, WordDirections, random_metadata
from tests.indexes.where_reference import NAMES, evaluate, render

QUERIES = int(os.environ.get("RETRIEVER_QUERIES", "4000"))
SEED = int(os.environ.get("RETRIEVER_SEED", "0"))
CLOSE = 1e-9


class Passage(NamedTuple):
    start: int
    stop: int
    vector: NDArray[np.float32]
    terms: list[str]


class Found(NamedTuple):
    """The score of a document, and the spans of its passages with that score."""

    score: float
    spans: set[tuple[int, int]]


class Oracle:
    """Documents in a dictionary; every passage is scored by itself."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.documents = {}
        self.passages = {}

    def put(self, document, passages):
        before = self.documents.get(document.id)
        self.documents[document.id] = document
        if before and (before.title or "", before.text) == (document.title or "", document.text):
            # The same text is not encoded again.
            return
        title = f"{document.title} " if document.title else ""
        self.passages[document.id] = [
            Passage(start, stop, vector, self.tokens(title + document.text[start:stop]))
            for start, stop, vector in passages
        ]

    def delete(self, ids):
        deleted_ids = self.documents.keys() & ids
        for id_ in deleted_ids:
            del self.documents[id_], self.passages[id_]
        return len(deleted_ids)

    def matching(self, where):
        return [
            document.id
            for document in self.documents.values()
            if where is None
            or evaluate(
                where, {"id": document.id, "title": document.title, "metadata": document.metadata}
            )
        ]

    def search(self, query, vector, where, mode, alpha):
        """Return the best score of each document, or None where rounding decides."""
        terms = self.tokens(query)
        every = [
            passage for document_passages in self.passages.values() for passage in document_passages
        ]
        mean = sum(len(passage.terms) for passage in every) / max(len(every), 1)
        df = {term: sum(term in passage.terms for passage in every) for term in terms}

        def bm25(passage):
            """Return Lucene's BM25 score with k1 = 1.2 and b = 0.75."""
            norm = 1.2 * (0.25 + 0.75 * len(passage.terms) / mean) if mean else 0.0
            return sum(
                math.log(1 + (len(every) - df[term] + 0.5) / (df[term] + 0.5)) * f / (f + norm)
                for term in terms
                if (f := passage.terms.count(term))
            )

        among = [(id_, passage) for id_ in self.matching(where) for passage in self.passages[id_]]
        dense = [
            round(float(passage.vector.astype(np.float64) @ vector.astype(np.float64)), 6)
            for _, passage in among
        ]
        words = [bm25(passage) for _, passage in among]
        scores = {"dense": dense, "bm25": words}.get(mode)
        if scores is None:
            if words and 0 < max(words) - min(words) < CLOSE:
                return None
            pairs = zip(_min_max(dense), _min_max(words), strict=True)
            scores = [alpha * d + (1 - alpha) * w for d, w in pairs]
        best_by_id = {}
        for (id_, passage), score in zip(among, scores, strict=True):
            if mode == "bm25" and not set(terms) & set(passage.terms):
                continue
            best = best_by_id.get(id_, Found(-math.inf, set()))
            if score > best.score + CLOSE:
                best = Found(score, set())
            if score > best.score - CLOSE:
                best.spans.add((passage.start, passage.stop))
            best_by_id[id_] = best
        return best_by_id


def _min_max(scores):
    if not scores:
        return []
    low, high = min(scores), max(scores)
    if low == high:
        return [float(high > 0)] * len(scores)
    return [(score - low) / (high - low) for score in scores]


def check(hits, expected, k):
    """Assert that the hits are k of the best in order; ties may be broken either way."""
    assert len(hits) == min(k, len(expected))
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    order = [(-hit.score, hit.id) for hit in hits]
    assert order == sorted(set(order))
    for hit in hits:
        score, spans = expected[hit.id]
        assert abs(hit.score - score) < CLOSE
        assert (hit.start, hit.stop) in spans
    for id_ in expected.keys() - {hit.id for hit in hits}:
        assert expected[id_].score < hits[-1].score + CLOSE


class Pair:
    """An index and its oracle."""

    def __init__(self, index, seed):
        self.index = index
        self.oracle = Oracle(index.analyzer.tokens)
        self.chance = random.Random(seed)
        self.encoder = WordDirections()

    def document(self):
        words = self.chance.choices(WORDS, k=self.chance.choice([1, 1, 2, 3, 6]))
        title = self.chance.choice([None, None, "pear"])
        id_ = f"{self.chance.choice('aBé-_')}{self.chance.randint(0, 9)}"
        metadata = random_metadata(self.chance)
        if self.chance.random() < 0.2:
            metadata["a"] = self.chance.choice([0.0, -0.0, 0, [-0.0], "x" * 50, ["x" * 50]])
        return Document(id_, " ".join(words), title, metadata)

    def ready(self, document):
        places = range(len(document.text) + 1)
        number = self.chance.randint(1, 3)
        spans = [tuple(sorted(self.chance.choices(places, k=2))) for _ in range(number)]
        # Few directions, so that many scores are equal; one is zero.
        raw = [[self.chance.choice([0, 0, 1, -1, 2]) for _ in range(6)] for _ in spans]
        vectors = np.array(raw, self.chance.choice([np.float32, np.float64, np.float16]))
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        units = np.divide(vectors, lengths, out=np.zeros((number, 6)), where=lengths > 0)
        stored = [(*span, unit) for span, unit in zip(spans, units.astype(np.float32), strict=True)]
        return ReadyDocument(document, spans, vectors), stored

    def encoded(self, text):
        vector = self.encoder.encode([text]).astype(np.float32)
        return (vector / np.linalg.norm(vector, axis=1, keepdims=True))[0]

    def where(self, level=0):
        """Return a random filter, mostly over a value that a document has."""
        shape = self.chance.random()
        if level == 0 and shape < 0.2:
            return None
        if level < 2 and shape > 0.6:
            joint = self.chance.choice(["and", "or", "not"])
            parts = [self.where(level + 1) for _ in range(1 if joint == "not" else 2)]
            return (joint, *parts)
        with_metadata = [
            document for document in self.oracle.documents.values() if document.metadata
        ]
        name, value = self.chance.choice(NAMES), self.chance.choice(VALUES)
        if with_metadata and self.chance.random() < 0.9:
            name, value = self.chance.choice([*self.chance.choice(with_metadata).metadata.items()])
        field = ("path", [name])
        if isinstance(value, dict) and value:
            inner, value = self.chance.choice([*value.items()])
            field = ("path", [name, inner])
        if isinstance(value, list) and value:
            value = self.chance.choice(value)
        if self.chance.random() < 0.1:
            field, value = ("column", "title"), "pear"
        if value is None or isinstance(value, list | dict):
            return ("exists", field, None)
        if isinstance(value, float) and value == 0:
            value = -value
        kinds = ["=", "!=", "in", "contains", "exists"]
        kinds += [] if isinstance(value, bool) else ["<=", ">"]
        kinds += ["like"] if isinstance(value, str) else []
        kind = self.chance.choice(kinds)
        return (kind, field, [value, self.chance.choice(["x", 0, True])] if kind == "in" else value)

    def change(self):
        """Perform one random change of both."""
        index, oracle = self.index, self.oracle
        match self.chance.choices(
            ["text", "ready", "refused", "metadata", "delete", "where", "compact", "prune"],
            [30, 25, 10, 12, 8, 6, 3, 1],
        )[0]:
            case "text":
                for document in (self.document() for _ in range(self.chance.randint(1, 4))):
                    index.add([document], compact=self.chance.random() < 0.5)
                    title = f"{document.title} " if document.title else ""
                    vector = self.encoded(title + document.text)
                    oracle.put(document, [(0, len(document.text), vector)])
            case "ready":
                new_documents = {
                    document.id: self.ready(document)
                    for document in (self.document() for _ in range(3))
                }
                index.add([ready for ready, _ in new_documents.values()], compact=False)
                for ready, passages in new_documents.values():
                    oracle.put(ready.document, passages)
            case "refused":
                self.refuse()
            case "metadata" if oracle.documents:
                id_, metadata = (
                    self.chance.choice([*oracle.documents]),
                    random_metadata(self.chance),
                )
                index.update(id_, metadata=metadata)
                document = oracle.documents[id_]
                oracle.documents[id_] = Document(
                    document.id, document.text, document.title, metadata
                )
            case "delete":
                ids = [self.document().id for _ in range(2)]
                assert index.delete(ids) == oracle.delete(ids)
            case "where":
                self.delete_where()
            case "compact":
                index.compact()
            case "prune":
                document = self.document()
                index.add([document], prune=True)
                oracle.delete([id_ for id_ in oracle.documents if id_ != document.id])
                title = f"{document.title} " if document.title else ""
                vector = self.encoded(title + document.text)
                oracle.put(document, [(0, len(document.text), vector)])

    def refuse(self):
        """Add documents that cannot be stored, and assert that nothing changes."""
        document = self.document()
        ready, _ = self.ready(document)
        spans, vectors = ready.spans, np.asarray(ready.vectors, np.float32)
        nul = self.chance.choice([{"a": "x\0y"}, {"a": ["\0"]}, {"a\0": 1}, {"a": {"\0": 1}}])
        bad = [
            Document(document.id, document.text, None, nul),
            Document(document.id, document.text, "pear\0"),
            ReadyDocument(document, spans, vectors[:, :5]),
            ReadyDocument(document, spans, vectors * np.float32(np.nan)),
            ReadyDocument(document, [], vectors[:0]),
            ReadyDocument(document, [(0, len(document.text) + 1)], vectors[:1]),
        ]
        for call in self.chance.sample(bad, 3):
            with pytest.raises(SourceError, match="document '"):
                self.index.add([call])
        if document.id in self.oracle.documents:
            with pytest.raises(BadInputError, match="NUL"):
                self.index.update(document.id, metadata=nul)

    def delete_where(self):
        node = self.where()
        if node is None:
            return
        text = render(node, self.chance)
        if self.index.filter_warning(text):
            with pytest.raises(FilterError, match="nothing was deleted"):
                self.index.delete_where(text)
        else:
            ids = self.oracle.matching(node)
            assert self.index.delete_where(text) == self.oracle.delete(ids)

    def compare(self):
        """Compare one random search of both."""
        node, mode = self.where(), self.chance.choice(["dense", "bm25", "hybrid"])
        query = " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 3)))
        alpha = self.chance.choice([0.0, 0.3, 0.6, 1.0])
        expected = self.oracle.search(query, self.encoded(query), node, mode, alpha)
        where = None if node is None else render(node, self.chance)
        k = self.chance.choice([1, 2, 5, 200])
        fusion = {"alpha": alpha, "depth": 1000} if mode == "hybrid" else {}
        hits = self.index.search(query, where=where, mode=mode, k=k, **fusion)
        if expected is not None:
            check(hits, expected, k)


def run(folder, queries, seed):
    with Index.create(folder, encoder=WordDirections()) as index:
        pair = Pair(index, seed)
        for number in range(queries):
            if number % 4 == 0:
                pair.change()
            pair.compare()
        assert {
            document.id: (document.title, document.text, repr(document.metadata))
            for document in index
        } == {
            document.id: (
                document.title,
                document.text,
                repr(dict(sorted(document.metadata.items()))),
            )
            for document in pair.oracle.documents.values()
        }
    assert verify(folder) == []


@pytest.fixture
def small_parts(monkeypatch):
    """Let six passages become a segment, and values of 30 characters be too long to store."""
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 6)
    monkeypatch.setattr("indexes.metadata.LONGEST", 30)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.filterwarnings("ignore:filter. ")
@pytest.mark.parametrize("queries", [100, pytest.param(QUERIES, marks=pytest.mark.soak)])
def test_an_index_answers_as_plain_python_does(tmp_path, queries):
    run(tmp_path / "index", queries, SEED + queries)
