"""Passages wait in the queue until a window of them is encoded, equal texts once."""

import numpy as np
import pytest

from retriever import CommitSettings, Document, IndexingReport
from retriever.errors import SourceError
from retriever.index.indexing.commit_buffer import PendingDocument
from retriever.index.indexing.encoding_queue import EncodingQueue
from retriever.index.indexing.run import NoProgress


class KeptVectors:
    """A writer that kept vectors of an interrupted run."""

    def __init__(self, vectors):
        self.vectors = vectors

    def partial_vectors(self, digests):
        return {digest: self.vectors[digest] for digest in digests if digest in self.vectors}


class Lengths:
    """Encodes a text as the number of its pieces."""

    computed = ("lengths",)

    def __init__(self):
        self.encoded = []

    def encode_pieces(self, pieces, done):
        self.encoded += pieces
        done(len(pieces), sum(map(len, pieces)))
        return np.array([[len(row)] for row in pieces], np.float32)


@pytest.fixture
def encoder():
    return Lengths()


@pytest.fixture
def report():
    return IndexingReport()


def queue_of(encoder, report, kept=None, **settings):
    settings = CommitSettings(**settings)
    return EncodingQueue(KeptVectors(kept or {}), lambda: encoder, settings, NoProgress(), report)


def pending(id_):
    return PendingDocument(Document(id_, "text"), b"", is_new=True)


def test_a_window_gives_each_document_its_vectors_and_encodes_equal_texts_once(encoder, report):
    queue = queue_of(encoder, report)
    first, second = pending("1"), pending("2")
    queue.put(first, b"x", [1, 2])
    queue.put(first, b"y", [1, 2, 3])
    queue.put(second, b"x", [1, 2])
    assert queue.encode_window(10) == 3
    assert [(digests, vectors.tolist()) for digests, vectors in first.encoded_windows] == [
        ([b"x", b"y"], [[2], [3]])
    ]
    assert second.encoded_windows[0][1].tolist() == [[2]]
    assert encoder.encoded == [[1, 2], [1, 2, 3]]
    assert (report.pieces, report.repeated, queue.computed) == (5, 1, {"lengths"})
    queue.put(second, b"x", [1, 2])
    queue.forget_vectors()
    assert queue.encode_window(10) == 1
    assert len(encoder.encoded) == 3


def test_a_window_holds_no_more_passages_than_there_is_room_for_but_one(encoder, report):
    queue = queue_of(encoder, report, window_passages=3)
    for digest in (b"a", b"b", b"c", b"d"):
        queue.put(pending("1"), digest, [1])
    assert queue.has_full_window()
    assert queue.encode_window(2) == 2
    assert not queue.has_full_window()
    assert queue.encode_window(0) == 1
    assert len(queue) == 1


def test_passages_of_superseded_documents_and_kept_vectors_are_not_encoded(encoder, report):
    queue = queue_of(encoder, report, {b"kept": np.array([7], np.float32)})
    document, superseded = pending("1"), pending("2")
    queue.put(superseded, b"gone", [1])
    superseded.is_superseded = True
    queue.put(document, b"kept", [1])
    assert queue.encode_window(10) == 1
    assert document.encoded_windows[0][1].tolist() == [[7]]
    assert not encoder.encoded


def test_a_vector_that_cannot_be_stored_names_its_document(encoder, report):
    queue = queue_of(encoder, report)
    queue.put(pending("good"), b"a", [1])
    queue.put(pending("bad"), b"b", [1, 2])
    encoder.encode_pieces = lambda pieces, done: np.array([[1], [np.nan]], np.float32)
    with pytest.raises(SourceError, match="'bad'"):
        queue.encode_window(10)
