"""Killed while it keeps the vectors of a long document, an index is intact and the run resumes."""

import sqlite3
from contextlib import closing

import pytest

from indexes.folder.verify import verify
from retriever.documents import Document
from retriever.index import Index
from retriever.index.indexing.run import CommitSettings
from tests.conftest import FakeEncoder
from tests.crash.forked import in_child
from tests.crash.steps import yield_killed_copies

SHORT = [Document(f"d{i}", f"text n{i}") for i in range(3)]
LONG = Document("long", " ".join(f"w{i}." if i % 9 == 8 else f"w{i}" for i in range(200)))
# Each window is committed or kept.
OFTEN = CommitSettings(seconds=0, window_pieces=64)


def index_documents(folder):
    """Index all documents and return the number of encoded passages."""
    encoder = FakeEncoder()
    with Index.create(folder, encoder=encoder) as index:
        index.add([*SHORT, LONG], commit=OFTEN)
    return encoder.encoded


def answers(folder):
    """Return the best passages of ten queries in dense mode."""
    with Index.open(folder, encoder=FakeEncoder()) as index:
        return [
            (hit.id, hit.start, round(hit.score, 5))
            for word in range(0, 200, 20)
            for hit in index.search(f"w{word} w{word + 1}", k=2, mode="dense")
        ]


def count_unfinished(folder):
    with closing(sqlite3.connect(folder / "index.sqlite")) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'unfinished'").fetchone():
            return 0
        return int(database.execute("SELECT count(*) FROM unfinished").fetchone()[0])


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_long_document_killed_before_each_step_resumes_without_reencoding(tmp_path, every):
    template = tmp_path / "template"
    with Index.create(template, encoder=FakeEncoder()) as index:
        index.add(SHORT[:1])
    copies = yield_killed_copies(template, tmp_path, index_documents, every)
    whole = next(copies)
    expected_answers = answers(whole)
    with Index.open(whole) as index:
        documents, spans = list(index), index.spans("long")
    # What is to be encoded: the passages of the long document, and two short ones.
    expected = len(spans) + 2
    assert len(documents) == 4
    assert expected > 8
    most = 0
    for folder in copies:
        assert verify(folder) == []
        with Index.open(folder) as index:
            ids = [document.id for document in index]
            # A commit in the order of the source, and the long one as a whole.
            assert ids == [document.id for document in documents][: len(ids)]
            assert "long" not in ids or index.spans("long") == spans
            done = count_unfinished(folder) + len(ids) - 1
        most = max(most, done)
        status, encoded = in_child(lambda do=folder: index_documents(do))
        assert status == 0, encoded
        # Nothing that was kept is encoded again.
        assert encoded == (0 if "long" in ids else expected - done)
        assert verify(folder) == []
        assert count_unfinished(folder) == 0
        with Index.open(folder) as index:
            assert (list(index), index.spans("long")) == (documents, spans)
        assert answers(folder) == expected_answers
    assert most > expected / 2
