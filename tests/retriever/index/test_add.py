"""Indexing a stream: what is counted, encoded and committed, and kept when something goes wrong.

A window of the fake encoder holds 32 pieces, and a word is a piece.
"""

from __future__ import annotations

import random
import sqlite3
import tracemalloc
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus

import numpy as np
import pytest

import retriever.documents.passages
import retriever.index.adding
import retriever.index.indexing.indexer
from retriever import (
    CommitSettings,
    Document,
    Index,
    IndexingReport,
    PassageSettings,
    SearchSettings,
)
from retriever.errors import ConfigError, SourceError
from retriever.index.indexing.commit_buffer import CommitBuffer
from tests.retriever.index.collection_samples import Lengths

BM25 = SearchSettings(mode="bm25", k=1000)
DENSE = SearchSettings(mode="dense", k=10_000)
# A window of 64 pieces holds two passages or three.
SMALL = CommitSettings(seconds=0, window_pieces=64)


def documents(n, start=0):
    return [Document(f"d{i}", f"text number n{i}", None, {"i": i}) for i in range(start, start + n)]


def text_of(words, seed=0):
    """Sentences and paragraphs."""
    chance = random.Random(seed)
    parts = []
    while words > 0:
        length = min(words, chance.randint(3, 50))
        parts.append(" ".join(f"w{seed}x{chance.randrange(200)}" for _ in range(length)))
        parts.append(chance.choice([". ", ". ", "? ", ".\n\n", " ", "\n"]))
        words -= length
    return "".join(parts)


LONG = Document("long", " ".join(f"Sentence {i} has words w{i}." for i in range(40)))


def stored(index):
    """Every stored document by id."""
    return {hit.id: hit for hit in index.search("x", DENSE)}


def report(added=0, updated=0, unchanged=0, **others):
    return IndexingReport(added=added, updated=updated, unchanged=unchanged, **others)


def uncovered(index, document):
    """Return the text outside of all passages, stripped; they must begin and end the document."""
    spans = index.spans(document.id)
    assert (spans[0][0], spans[-1][1]) == (0, len(document.text))
    inside = {i for start, stop in spans for i in range(start, stop)}
    return "".join(one for i, one in enumerate(document.text) if i not in inside).strip()


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as made:
        yield made
        assert made.verify() == []


def test_add_counts_new_changed_and_unchanged_documents(index):
    first = documents(5)
    assert index.add(first) == report(added=5, passages=5, pieces=5 * 5)
    second = [first[0], replace(first[1], text="other"), *documents(2, start=5), *first[2:5]]
    assert index.add(second) == report(added=2, updated=1, unchanged=4, passages=3, pieces=13)
    assert len(stored(index)) == 7


def test_add_of_unchanged_text_loads_and_runs_no_model(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(documents(5))
    encoded, loads = fake_encoder.encoded, fake_encoder.loads
    with Index.open(tmp_path / "index") as index:
        assert index.add(documents(5)) == report(unchanged=5)
        one = replace(documents(1)[0], metadata={"i": 77, "more": ["x"]})
        # Of equal ids the last metadata stands; the order of keys is no change.
        assert index.add([replace(one, metadata={"i": 3}), one]) == report(updated=1)
        [hit] = index.search("number", BM25, where="i = 77")
        assert (hit.id, hit.metadata) == ("d0", {"i": 77, "more": ["x"]})
        assert index.add([replace(one, metadata={"more": ["x"], "i": 77})]) == report(unchanged=1)
        assert index.delete(["d3", "nobody", "d1"]) == 2
        assert index.delete_where("i > 2 and i < 77") == 1
        assert [one.id for one in index] == ["d0", "d2"]
        index.info()
    assert (fake_encoder.encoded, fake_encoder.loads) == (encoded, loads)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Document("1", "b c", "a"), Document("1", "c", "a b")),
        (Document("1", "a b", None), Document("1", "b", "a")),
        (Document("1", "same", None), Document("1", "same", "titled")),
        (Document("1", "same"), Document("1", "same ")),
    ],
)
def test_a_change_of_title_or_text_is_seen_whatever_their_border(index, before, after):
    index.add([before])
    assert index.add([after]).updated == 1
    assert stored(index)["1"].title == after.title


@pytest.mark.parametrize(
    "empty", [Document("1", ""), Document("1", " \n", " "), {"id": "1", "text": ""}]
)
def test_an_empty_document_takes_the_place_of_the_one_with_its_id(index, empty):
    index.add([Document("1", "old text"), *documents(2)])
    with pytest.warns(UserWarning, match=r"^1 document holds .*: '1'; deleted from the index: 1$"):
        counted = index.add([empty, *documents(2)])
    assert counted == report(unchanged=2, deleted=1, empty=1, emptied=1, empty_ids=["1"])
    assert set(stored(index)) == {"d0", "d1"}
    with pytest.warns(UserWarning, match=r"^1 document holds .*: '1'$"):
        assert index.add([empty]) == report(empty=1, empty_ids=["1"])


@pytest.mark.filterwarnings("ignore:. documents? hold")
@pytest.mark.parametrize("chunk", [1, 512])
@pytest.mark.parametrize("existing", [None, "old", "new", "other"])
@pytest.mark.parametrize(
    "versions",
    [
        ["old", "new"],
        ["new", "old", "new"],
        ["old", "old", "new", "new"],
        ["new", ""],
        ["", "new"],
        ["old", "", "new", ""],
    ],
)
def test_add_keeps_last_document_of_equal_ids_even_if_empty(
    index, monkeypatch, versions, existing, chunk
):
    monkeypatch.setattr("retriever.index.indexing.indexer._BATCH", chunk)
    if existing:
        index.add([Document("1", f"{existing} text")])
    same = [Document("1", f"{version} text" if version else "") for version in versions]
    index.add([*documents(3), *same, *documents(3, start=10)])
    stands = bool(versions[-1])
    assert [hit.id for hit in index.search("new", BM25)] == ["1"] * stands
    assert index.search("old", BM25) == []
    assert len(index) == 6 + stands


def failing(before, error):
    yield from documents(before)
    raise error


@pytest.mark.parametrize("before", [0, 3, 511, 512, 700])
@pytest.mark.parametrize("error", [SourceError("line 9: bad"), ValueError("of a caller's own")])
def test_add_commits_documents_read_before_failure(index, before, error):
    mine = IndexingReport()
    with pytest.raises(type(error), match=str(error)):
        index.add(failing(before, error), report=mine)
    assert mine == report(added=before, passages=before, pieces=5 * before)
    assert index.info()["documents"] == before
    assert index.add(documents(before)) == report(unchanged=before)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (Document("", "text"), "id is empty"),
        (Document(7, "text"), "id is 7, expected a string"),
        (Document("b", None), "text is None, expected a string"),
        (Document("b", "lone \ud800"), "text holds the lone surrogate"),
        (Document("b", "text", 5), "title is 5"),
        (Document("b", "text", None, {"m": float("nan")}), "'m' holds nan"),
        (Document("b", "text", None, {"m": {"n": [object()]}}), "type object, which JSON does"),
        (Document("b", "text", None, {5: 1}), "not a string"),
        (Document("b", "text", "a\0b"), r"title holds a NUL character (\u0000)"),
    ],
)
def test_a_document_that_cannot_be_stored_is_refused_after_those_before_it(index, bad, named):
    with pytest.raises(SourceError) as caught:
        index.add([*documents(3), bad, *documents(3, start=3)])
    assert f"document {bad.id!r}: " in str(caught.value)
    assert named in str(caught.value)
    assert sorted(stored(index)) == ["d0", "d1", "d2"]


def test_add_stores_nan_as_null_and_refuses_unstorable_metadata(index):
    index.add([{"id": "a", "text": "x", "n": float("nan"), "m": [1, float("nan")]}])
    assert index["a"].metadata == {"n": None, "m": [1, None]}
    for value, fault in ((float("inf"), "holds inf"), (b"x", "of type bytes"), (2**63, "64 bits")):
        with pytest.raises(SourceError, match=f"document 'b': the field 'n' .*{fault}"):
            index.add([{"id": "b", "text": "x", "n": value}])
    index.add([{"id": "a", "text": "x", "n": HTTPStatus.OK}])
    assert [document.metadata for document in index] == [{"n": 200}]


def test_pruning_deletes_what_the_stream_does_not_hold_and_empty_documents(index):
    index.add(documents(10))
    stream = [replace(documents(1)[0], text="new"), *documents(6)[1:], *documents(2, start=20)]
    with pytest.warns(UserWarning, match="deleted from the index: 1"):
        counted = index.add([*stream, Document("d7", "")], prune=True)
    expected = {"updated": 1, "unchanged": 5, "deleted": 4, "emptied": 1}
    assert {name: getattr(counted, name) for name in expected} == expected
    assert set(stored(index)) == {document.id for document in stream}


def test_long_texts_are_split_at_sentences_into_passages_that_cover_them(index):
    counted = index.add([LONG, *documents(2)])
    assert (counted.added, counted.split, counted.truncated) == (3, 1, 0)
    assert counted.passages == index.info()["passages"] > 8
    assert not uncovered(index, LONG)
    for start, stop in index.spans("long"):
        assert LONG.text[start:stop].startswith("Sentence")
        assert LONG.text[start:stop].endswith(".")
    with pytest.raises(ConfigError, match="made with split"):
        index.add([LONG], on_long="truncate")
    assert index.add([LONG], on_long="split").unchanged == 1


def test_every_passage_is_encoded_and_analysed_with_its_title(index, fake_encoder, monkeypatch):
    tokenized = []
    encode = fake_encoder.encode_pieces
    monkeypatch.setattr(
        fake_encoder,
        "encode_pieces",
        lambda rows, done: tokenized.extend(rows) or encode(rows, done),
    )
    index.add([replace(LONG, title="Zebra crossing")])
    [[_, zebra, crossing, _]] = fake_encoder.tokenize(["Zebra crossing"])
    assert len(tokenized) > 8
    assert all(row[1:3] == [zebra, crossing] for row in tokenized)
    assert max(map(len, tokenized)) <= 32
    assert index.search("zebra w39", BM25)[0].passage.endswith("w39.")
    # One that fills the window leaves half of it to the text.
    title = " ".join(f"t{i}" for i in range(60))
    counted = index.add([replace(LONG, title=title), Document("b", "short", title)])
    assert (counted.added, counted.updated, counted.truncated) == (1, 1, 2)
    assert {hit.id for hit in index.search("t59", BM25)} == {"long", "b"}
    assert [hit.id for hit in index.search("w39", BM25)] == ["long"]


def test_long_text_is_truncated_or_refused_independent_of_blocks(
    tmp_path, fake_encoder, monkeypatch
):
    small_blocks(monkeypatch, 300)
    # One word of several blocks fits the window.
    fits = Document("fits", "x" * 1000)
    with Index.create(tmp_path / "cut", passages=PassageSettings("truncate")) as index:
        counted = index.add([LONG, fits])
        assert (counted.passages, counted.truncated, counted.split) == (2, 1, 0)
        assert index.spans("fits") == [(0, 1000)]
        assert [hit.id for hit in index.search("w0", BM25)] == ["long"]
        assert index.search("w39", BM25) == []
        assert index.add([LONG]).unchanged == 1
    with Index.create(tmp_path / "refused") as index:
        with pytest.raises(SourceError, match=r"'long': longer than .* 32 tokens; use --on-"):
            index.add([fits, LONG, *documents(2)], on_long="error")
        assert [document.id for document in index] == ["fits"]
        assert index.add(documents(2), on_long="error").added == 2


def small_blocks(monkeypatch, characters=900):
    for module in (retriever.index.indexing.indexer, retriever.documents.passages):
        monkeypatch.setattr(module, "BLOCK", characters)


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
    "text", ["x" * 5000, "a " * 40 + "x" * 5000 + " b" * 40, " \n" * 3000, "a" + " " * 5000 + "b c"]
)
def test_text_without_passage_end_in_block_is_read_whole(index, monkeypatch, text):
    small_blocks(monkeypatch, 100)
    document = Document("odd", text, "title")
    index.add([document, Document("b", "another text")])
    assert not uncovered(index, document)


def test_an_encoder_without_a_window_splits_nothing(tmp_path, monkeypatch):
    small_blocks(monkeypatch, 100)
    with Index.create(tmp_path / "index", encoder=Lengths(4)) as index:
        assert index.add([Document("long", text_of(900))]).split == 0
        assert len(index.spans("long")) == 1


def test_readers_see_segments_as_they_are_committed(tmp_path, fake_encoder):
    seen = []

    def stream():
        with Index.open(tmp_path / "index") as reader:
            for document in documents(3000):
                yield document
                seen.append(reader.info()["documents"] if document.id.endswith("00") else None)

    with Index.create(tmp_path / "index") as index:
        index.add(stream(), commit=CommitSettings(passages=512, window_passages=512))
    assert sorted({count for count in seen if count is not None}) == [*range(0, 2561, 512)]


def test_equal_passages_of_a_commit_are_encoded_once(tmp_path, fake_encoder):
    pairs = [(f"d{i}", f"text number n{i % 7}") for i in range(60)]
    titled = Document("t", "number n3", "text")
    window = CommitSettings(window_passages=1)
    with Index.create(tmp_path / "index") as index:
        before = sum(fake_encoder.batches)
        done = index.add([*(Document(*pair) for pair in pairs), titled], commit=window)
        # A title is encoded before the text, as one passage.
        assert sum(fake_encoder.batches) - before == 7
        assert (done.passages, done.repeated, done.pieces) == (61, 54, 7 * 5)
        found = {hit.id: hit for hit in index.search("text n3", k=100, mode="dense")}
        assert len(found) == 61
        # Each has the vector of its own text.
        vectors = fake_encoder.encode([*(text for _, text in pairs), "text number n3"])
        expected = vectors @ fake_encoder.encode(["text n3"], query=True)[0]
        for (id_, _), score in zip([*pairs, ("t", "")], expected.tolist(), strict=True):
            assert found[id_].dense == pytest.approx(score, abs=1e-5)
        # Equal to what an earlier commit encoded.
        again = index.add([Document("later", "text number n3")])
        assert (again.repeated, again.passages) == (0, 1)
        assert index.verify() == []


def unfinished(index):
    """How many vectors are kept of documents that are not complete; None without the table."""
    with closing(sqlite3.connect(index.folder / "index.sqlite")) as connection:
        named = "SELECT count(*) FROM sqlite_master WHERE name = 'unfinished'"
        if not connection.execute(named).fetchone()[0]:
            return None
        return connection.execute("SELECT count(*) FROM unfinished").fetchone()[0]


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


@pytest.mark.parametrize("after", [1, 2, 9, 16])
def test_add_resumes_within_document_after_crash(tmp_path, index, fake_encoder, monkeypatch, after):
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


def test_ctrl_c_commits_complete_documents_and_keeps_other_vectors(
    index, fake_encoder, monkeypatch
):
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
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    encode = fake_encoder.encode_pieces

    def slow(pieces, done):
        # Ten pieces a second.
        now[0] += sum(map(len, pieces)) / 10
        return encode(pieces, done)

    fake_encoder.encode_pieces = slow
    commits = [0.0]
    record = CommitBuffer._commit_complete

    def commit_complete(buffer):
        commits.append(now[0])
        return record(buffer)

    monkeypatch.setattr(CommitBuffer, "_commit_complete", commit_complete)
    documents = [Document(f"d{i}", f"text number n{i}") for i in range(800)]
    index.add([*documents, Document("long", text_of(6000))])
    assert now[0] > 800
    # The first window is as large as that of a fast encoder, since its speed is not known.
    gaps = np.diff(commits)[1:]
    assert len(gaps) > 4
    assert max(gaps) <= 120 + 20 + 2


def test_a_slow_source_commits_every_two_minutes(index, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    visible = []

    def stream():
        with Index.open(index.folder) as reader:
            for number in range(300):
                yield Document(f"d{number}", f"text n{number}")
                now[0] += 1
                visible.append(len(reader))

    index.add(stream())
    assert sorted(set(visible)) == [0, 121, 241]


def test_memory_does_not_grow_with_the_number_of_long_documents(
    tmp_path, fake_encoder, monkeypatch
):
    small_blocks(monkeypatch, 1_000)
    monkeypatch.setattr(retriever.index.indexing.indexer, "_BATCH_CHARACTERS", 4_000)
    # No segment is written, since merging has blocks of its own; no view is opened, since it reads
    # all that waits for a segment.
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 10**6)
    monkeypatch.setattr(retriever.index.adding, "measure_fit", lambda *_: None)
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
