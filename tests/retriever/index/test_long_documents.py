"""Long documents: cut in blocks, encoded in windows, committed by time, kept when a run dies."""

from __future__ import annotations

import random
import sqlite3
import tracemalloc
from contextlib import closing

import numpy as np
import pytest

import retriever.documents.passages
import retriever.index.add
from retriever import CommitSettings, Document, Index, PassageSettings, SearchSettings
from retriever.errors import SourceError

# A window of the encoder holds 32 pieces, so a window of 64 holds two passages or three.
SMALL = CommitSettings(seconds=0, window_pieces=64)
DENSE = SearchSettings(mode="dense", k=1000)


def text_of(words, seed=0):
    """Sentences and paragraphs; a word is a piece of the fake encoder."""
    chance = random.Random(seed)
    parts = []
    while words > 0:
        length = min(words, chance.randint(3, 50))
        parts.append(" ".join(f"w{seed}x{chance.randrange(200)}" for _ in range(length)))
        parts.append(chance.choice([". ", ". ", "? ", ".\n\n", " ", "\n"]))
        words -= length
    return "".join(parts)


def small_blocks(monkeypatch, characters=900):
    for module in (retriever.index.add, retriever.documents.passages):
        monkeypatch.setattr(module, "BLOCK", characters)


def unfinished(index):
    """How many vectors are kept of documents that are not complete; None without the table."""
    with closing(sqlite3.connect(index.folder / "index.sqlite")) as connection:
        named = "SELECT count(*) FROM sqlite_master WHERE name = 'unfinished'"
        if not connection.execute(named).fetchone()[0]:
            return None
        return connection.execute("SELECT count(*) FROM unfinished").fetchone()[0]


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as made:
        yield made
        assert made.verify() == []


class DiedError(Exception):
    """Stands for the death of the process: nothing is written after it."""


def dies(fake_encoder, monkeypatch, after, error=DiedError):
    """Let the encoder fail after some windows; returns the texts that each window held."""
    windows = []
    encode = fake_encoder.encode_pieces

    def encode_pieces(pieces, done):
        if len(windows) == after:
            raise error
        windows.append(len(pieces))
        return encode(pieces, done)

    monkeypatch.setattr(fake_encoder, "encode_pieces", encode_pieces)
    return windows


@pytest.mark.parametrize("characters", [300, 900, 5000])
@pytest.mark.parametrize("title", [None, "A title of five words"])
def test_a_text_cut_in_blocks_has_the_passages_of_the_whole(
    tmp_path, fake_encoder, monkeypatch, characters, title
):
    documents = [Document(str(seed), text_of(900, seed), title) for seed in range(4)]
    with Index.create(tmp_path / "whole") as whole, Index.create(tmp_path / "blocks") as blocks:
        expected = whole.add(documents)
        small_blocks(monkeypatch, characters)
        assert blocks.add(documents) == expected
        for document in documents:
            assert blocks.spans(document.id) == whole.spans(document.id)
            assert len(whole.spans(document.id)) > 30


@pytest.mark.parametrize(
    "text",
    ["x" * 5000, "a " * 40 + "x" * 5000 + " b" * 40, " \n" * 3000, "a" + " " * 5000 + "b c"],
)
def test_a_text_whose_block_has_no_end_of_a_passage_is_whole(index, monkeypatch, text):
    small_blocks(monkeypatch, 100)
    document = Document("long", text, "title")
    index.add([document, Document("b", "another text")])
    spans = index.spans("long")
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    covered = {i for start, stop in spans for i in range(start, stop)}
    assert all(text[i].isspace() for i in set(range(len(text))) - covered)


def test_an_encoder_without_a_window_splits_nothing(tmp_path, monkeypatch):
    class Endless:
        name = "endless"
        dimensions = 4

        def encode(self, texts):
            return np.array([[1, len(text), 0, 0] for text in texts], np.float32)

    small_blocks(monkeypatch, 100)
    with Index.create(tmp_path / "index", encoder=Endless()) as index:
        assert index.add([Document("long", text_of(900))]).split == 0
        assert len(index.spans("long")) == 1


def test_truncating_and_refusing_do_not_depend_on_blocks(tmp_path, fake_encoder, monkeypatch):
    small_blocks(monkeypatch, 300)
    long, fits = Document("long", text_of(900)), Document("fits", "x" * 1000)
    with Index.create(tmp_path / "cut", passages=PassageSettings("truncate")) as index:
        counted = index.add([long, fits])
        assert (counted.passages, counted.truncated, counted.split) == (2, 1, 0)
        assert index.spans("fits") == [(0, 1000)]
    with Index.create(tmp_path / "refused") as index:
        with pytest.raises(SourceError, match=r"'long': longer than .* 32 word pieces"):
            index.add([fits, long], on_long="error")
        assert [document.id for document in index] == ["fits"]


@pytest.mark.parametrize("after", [1, 2, 9, 16])
def test_a_run_that_died_within_a_document_resumes_there(
    tmp_path, index, fake_encoder, monkeypatch, after
):
    documents = [Document("a", "short"), Document("long", text_of(900)), Document("z", "last")]
    with Index.create(tmp_path / "undisturbed") as undisturbed:
        whole = undisturbed.add(documents, commit=SMALL)
        expected = {hit.id: hit.score for hit in undisturbed.search("w0x7 w0x8", DENSE)}
        spans = undisturbed.spans("long")
    with monkeypatch.context() as patch:
        windows = dies(fake_encoder, patch, after)
        with pytest.raises(DiedError):
            index.add(documents, commit=SMALL)
    assert [document.id for document in index] == ["a"]
    assert index.verify() == []
    # "a" is committed; the rest of what was encoded is kept.
    assert unfinished(index) == (sum(windows) - 1 or None)
    before = fake_encoder.encoded
    report = index.add(documents, commit=SMALL)
    assert fake_encoder.encoded - before == whole.passages - sum(windows)
    assert (report.added, report.unchanged, report.repeated) == (2, 1, whole.repeated)
    assert index.spans("long") == spans
    found = {hit.id: hit.score for hit in index.search("w0x7 w0x8", DENSE)}
    assert found == pytest.approx(expected, abs=1e-6)
    assert unfinished(index) is None


def test_ctrl_c_commits_what_is_complete_and_keeps_the_rest(index, fake_encoder, monkeypatch):
    documents = [Document(f"d{i}", f"text n{i} " + "x " * i) for i in range(20)]
    documents.append(Document("long", text_of(900)))
    commit = CommitSettings(window_pieces=64)
    with monkeypatch.context() as patch:
        windows = dies(fake_encoder, patch, 15, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            index.add(documents, commit=commit)
    assert len(index) == 20
    assert unfinished(index) == sum(windows) - 20 > 0
    before, passages = fake_encoder.encoded, index.add(documents, commit=commit).passages
    assert fake_encoder.encoded - before == passages - (sum(windows) - 20)


@pytest.mark.parametrize("altered", [True, False])
def test_kept_vectors_that_are_altered_or_of_a_document_that_is_gone_are_dropped(
    index, fake_encoder, monkeypatch, altered
):
    document = Document("long", text_of(900))
    with monkeypatch.context() as patch:
        windows = dies(fake_encoder, patch, 5)
        with pytest.raises(DiedError):
            index.add([document], commit=SMALL)
    assert unfinished(index) > 0
    if altered:
        with closing(sqlite3.connect(index.folder / "index.sqlite")) as connection, connection:
            chosen = "(SELECT digest FROM unfinished LIMIT 1)"
            zero = f"UPDATE unfinished SET vector = zeroblob(64) WHERE digest = {chosen}"
            connection.execute(zero)
        before, passages = fake_encoder.encoded, index.add([document]).passages
        assert fake_encoder.encoded - before == passages - sum(windows) + 1
    else:
        index.add([Document("b", "another text")])
    assert unfinished(index) is None


def test_a_slow_encoder_commits_every_two_minutes(index, fake_encoder, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("retriever.index.add.time.monotonic", lambda: now[0])
    encode = fake_encoder.encode_pieces

    def slow(pieces, done):
        # Ten pieces a second.
        now[0] += sum(map(len, pieces)) / 10
        return encode(pieces, done)

    fake_encoder.encode_pieces = slow
    commits = [0.0]
    record = retriever.index.add.Indexer._commit_ready

    def commit_ready(indexer):
        commits.append(now[0])
        return record(indexer)

    monkeypatch.setattr(retriever.index.add.Indexer, "_commit_ready", commit_ready)
    documents = [Document(f"d{i}", f"text number n{i}") for i in range(800)]
    index.add([*documents, Document("long", text_of(6000))])
    assert now[0] > 800
    # The first window is as large as that of a fast encoder, since its speed is not known.
    gaps = np.diff(commits)[1:]
    assert len(gaps) > 4
    assert max(gaps) <= 120 + 20 + 2


def test_memory_does_not_grow_with_the_number_of_long_documents(
    tmp_path, fake_encoder, monkeypatch
):
    small_blocks(monkeypatch, 1_000)
    monkeypatch.setattr(retriever.index.add, "_CHUNK_CHARACTERS", 4_000)
    # No segment is written, since merging has blocks of its own.
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 10**6)
    commit = CommitSettings(characters=8_000, window_pieces=400)

    def peak(count):
        with Index.create(tmp_path / str(count)) as index:
            tracemalloc.start()
            index.add(
                (Document(str(i), f"{i} " + text_of(800)) for i in range(count)), commit=commit
            )
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert len(index) == count
        return most

    peak(2)
    assert peak(16) < 1.3 * peak(4)


def test_a_slow_source_commits_every_two_minutes(index, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("retriever.index.add.time.monotonic", lambda: now[0])
    visible = []

    def stream():
        with Index.open(index.folder) as reader:
            for number in range(300):
                yield Document(f"d{number}", f"text n{number}")
                now[0] += 1
                visible.append(len(reader))

    index.add(stream())
    assert sorted(set(visible)) == [0, 121, 241]
