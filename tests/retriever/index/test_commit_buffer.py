"""Complete documents are committed together; the vectors of the others are kept."""

import numpy as np
import pytest

from indexes import no_progress
from retriever import CommitSettings, Document, IndexingReport
from retriever.index.indexing.commit_buffer import COMPUTED, CommitBuffer, PendingDocument


class Writer:
    """Notes what a buffer asks for."""

    def __init__(self):
        self.settings = {COMPUTED: ["earlier"]}
        self.commits = []
        self.partial_vectors = []

    def setting(self, key, default):
        return self.settings.get(key, default)

    def record(self, key, value):
        self.settings[key] = value

    def commit(self, documents, vectors, tokens, metadata):
        ids = [document.id for document in documents]
        self.commits.append((ids, vectors.tolist(), tokens, dict(metadata)))
        return False

    def store_partial_vectors(self, digests, vectors):
        self.partial_vectors.append((digests, vectors.tolist()))

    def delete_partial_vectors(self):
        self.partial_vectors.clear()


@pytest.fixture
def writer():
    return Writer()


def buffer_of(writer, report=None, **settings):
    settings = CommitSettings(**settings)
    return CommitBuffer(writer, settings, report or IndexingReport(), no_progress)


def pending(id_, passages=1, encoded=1, *, is_new=True):
    document = PendingDocument(Document(id_, "text"), b"", is_new=is_new)
    document.spans = [(0, 4)] * passages
    document.terms = [["text"]] * passages
    document.languages = ["english"] * passages
    document.is_cut = True
    document.encoded_windows = [
        ([bytes([number])], np.array([[number]])) for number in range(encoded)
    ]
    return document


def test_complete_documents_are_committed_and_counted(writer):
    report = IndexingReport()
    buffer = buffer_of(writer, report)
    buffer.add(pending("new"))
    buffer.add(pending("changed", 2, 2, is_new=False))
    buffer.replace_metadata("stored", {"year": 1})
    buffer.count_encoded(3, ["now"])
    buffer.commit()
    assert writer.commits == [
        (["new", "changed"], [[0], [0], [1]], [["text"]] * 3, {"stored": {"year": 1}})
    ]
    assert writer.settings == {COMPUTED: ["earlier", "now"]}
    assert report == IndexingReport(added=1, updated=2, passages=3, split=1)
    assert buffer.committed_passages == 3
    buffer.commit()
    assert len(writer.commits) == 1


def test_the_writer_keeps_each_vector_of_an_incomplete_document_once(writer):
    buffer = buffer_of(writer)
    document = pending("long", passages=3, encoded=1)
    buffer.add(document)
    buffer.commit()
    document.encoded_windows.append(([b"b"], np.array([[1]])))
    buffer.commit()
    assert writer.partial_vectors == [([b"\0"], [[0]]), ([b"b"], [[1]])]
    assert not writer.commits
    document.encoded_windows.append(([b"c"], np.array([[2]])))
    buffer.commit()
    assert (writer.commits[0][0], writer.partial_vectors) == (["long"], [])


def test_a_discarded_document_is_not_committed(writer):
    buffer = buffer_of(writer)
    document = pending("a")
    buffer.add(document)
    buffer.replace_metadata("b", {})
    buffer.discard("a")
    buffer.discard("b")
    buffer.commit()
    assert document.is_superseded
    assert not writer.commits


def test_a_commit_is_due_by_passages_characters_or_time(writer, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    buffer = buffer_of(writer, passages=2, characters=8, seconds=5)
    buffer.count_encoded(1)
    buffer.add(pending("a"))
    assert not buffer.is_due()
    buffer.count_encoded(1)
    assert buffer.is_due()
    buffer.commit()
    assert not buffer.is_due()
    buffer.add(pending("b"))
    buffer.add(pending("c"))
    assert buffer.is_due()
    buffer.commit()
    now[0] = 5.0
    assert buffer.is_due()
