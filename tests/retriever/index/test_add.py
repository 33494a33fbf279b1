"""Indexing a stream: what is counted, what is encoded, what is kept when something goes wrong."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest

from retriever import (
    CommitSettings,
    Document,
    Index,
    IndexingReport,
    PassageSettings,
    SearchSettings,
)
from retriever.errors import ConfigError, SourceError

BM25 = SearchSettings(mode="bm25", k=1000)
WORDS = [f"word{number}" for number in range(300)]


def documents(n, start=0):
    return [Document(f"d{i}", f"text number n{i}", None, {"i": i}) for i in range(start, start + n)]


def stored(index):
    """Every stored document by id."""
    return {hit.id: hit for hit in index.search("x", SearchSettings(mode="dense", k=10_000))}


def report(added=0, updated=0, unchanged=0, **others):
    return IndexingReport(added=added, updated=updated, unchanged=unchanged, **others)


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as made:
        yield made
        assert made.verify() == []


def test_what_is_new_changed_and_unchanged_is_counted(index):
    first = documents(5)
    assert index.add(first) == report(added=5, passages=5, pieces=5 * 5)
    second = [first[0], replace(first[1], text="other"), *documents(2, start=5), *first[2:5]]
    assert index.add(second) == report(added=2, updated=1, unchanged=4, passages=3, pieces=13)
    assert len(stored(index)) == 7


def test_what_is_unchanged_or_has_new_metadata_costs_no_encoding_and_no_model(
    tmp_path, fake_encoder
):
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


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("chunk", [1, 512])
def test_of_equal_ids_an_empty_one_stands_if_it_is_the_last(index, monkeypatch, existing, chunk):
    monkeypatch.setattr("retriever.index.add._CHUNK", chunk)
    if existing:
        index.add([Document("1", "old text"), Document("2", "old text")])
    stream = [Document("1", "new text"), Document("1", ""), Document("2", ""), Document("2", "new")]
    with pytest.warns(UserWarning, match="2 documents hold neither .*: '1', '2'"):
        index.add([*stream, *documents(2)])
    assert {id_: hit.passage for id_, hit in stored(index).items() if id_ < "a"} == {"2": "new"}


def test_pruning_deletes_empty_documents_and_refuses_to_delete_all(index):
    index.add([*documents(2), Document("1", "old text")])
    with pytest.warns(UserWarning, match="deleted from the index: 1"):
        counted = index.add([documents(1)[0], Document("1", "")], prune=True)
    assert (counted.unchanged, counted.deleted, counted.emptied) == (1, 2, 1)


@pytest.mark.parametrize(
    "versions",
    [
        ["old", "new"],
        ["new", "old", "new"],
        ["old", "old", "new", "new"],
        ["old", "new", "old", "new"],
    ],
)
@pytest.mark.parametrize("existing", [None, "old", "new", "other"])
def test_of_equal_ids_the_last_one_stands(index, versions, existing):
    if existing:
        index.add([Document("1", f"{existing} text")])
    stream = [*documents(3), *(Document("1", f"{version} text") for version in versions)]
    index.add([*stream, *documents(3, start=10)])
    assert [hit.id for hit in index.search("new", BM25)] == ["1"]
    assert index.search("old", BM25) == []
    assert index.info()["documents"] == 7


def failing(before, error):
    yield from documents(before)
    raise error


@pytest.mark.parametrize("before", [0, 3, 511, 512, 700])
@pytest.mark.parametrize("error", [SourceError("line 9: bad"), ValueError("of a caller's own")])
def test_what_was_read_before_a_failure_is_committed(index, before, error):
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
        (Document("b", "text", None, {"m": 2**63}), "beyond 64 bits"),
        (Document("b", "text", None, {"m": {"n": [object()]}}), "type object, which JSON does"),
        (Document("b", "text", None, {5: 1}), "not a string"),
        (Document("b", "text", "a\0b"), r"title holds a NUL character (\u0000)"),
        (Document("b", "text", None, {"m": {"\0": 1}}), "'m' holds a NUL"),
        (Document("b", "text", None, {"\0": 1}), r"'\x00' holds a NUL"),
    ],
)
def test_a_document_that_cannot_be_stored_is_refused_after_those_before_it(index, bad, named):
    with pytest.raises(SourceError) as caught:
        index.add([*documents(3), bad, *documents(3, start=3)])
    assert f"document {bad.id!r}: " in str(caught.value)
    assert named in str(caught.value)
    assert sorted(stored(index)) == ["d0", "d1", "d2"]


def long_document(sentences=40, title=None):
    text = " ".join(f"Sentence {i} has words w{i}." for i in range(sentences))
    return Document("long", text, title)


def spans(index):
    """Every passage of the long document, found by the words that only it holds."""
    return {(hit.start, hit.stop) for i in range(40) for hit in index.search(f"w{i}", BM25)}


def test_long_texts_are_split_into_passages_that_cover_them(index):
    document = long_document()
    counted = index.add([document, *documents(2)])
    assert (counted.added, counted.split, counted.truncated) == (3, 1, 0)
    assert counted.passages == index.info()["passages"] > 8
    found = spans(index)
    covered = {i for start, stop in found for i in range(start, stop)}
    assert all(document.text[i].isspace() for i in set(range(len(document.text))) - covered)
    for start, stop in found:
        assert document.text[start:stop].startswith("Sentence")
        assert document.text[start:stop].endswith(".")


def test_every_passage_is_encoded_and_analysed_with_its_title(index, fake_encoder):
    tokenized = []
    original = fake_encoder.encode_pieces

    def spy(pieces, done):
        tokenized.extend(pieces)
        return original(pieces, done)

    fake_encoder.encode_pieces = spy
    index.add([long_document(title="Zebra crossing")])
    [[_, zebra, crossing, _]] = fake_encoder.tokenize(["Zebra crossing"])
    assert len(tokenized) > 8
    assert all(row[1:3] == [zebra, crossing] for row in tokenized)
    assert max(map(len, tokenized)) <= 32
    assert index.search("zebra w39", BM25)[0].passage.endswith("w39.")


def test_a_title_that_fills_the_window_leaves_half_of_it_to_the_text(index, fake_encoder):
    title = " ".join(f"t{i}" for i in range(60))
    counted = index.add([long_document(title=title), Document("b", "short", title)])
    assert (counted.added, counted.truncated) == (2, 2)
    assert {hit.id for hit in index.search("t59", BM25)} == {"long", "b"}
    assert [hit.id for hit in index.search("w39", BM25)] == ["long"]


def test_truncating_keeps_the_first_window_and_counts(tmp_path, fake_encoder):
    passages = PassageSettings(on_long="truncate")
    with Index.create(tmp_path / "index", passages=passages) as index:
        counted = index.add([long_document(), *documents(2)])
        assert (counted.passages, counted.split, counted.truncated) == (3, 0, 1)
        assert [hit.id for hit in index.search("w0", BM25)] == ["long"]
        assert index.search("w39", BM25) == []
        assert index.add([long_document()]).unchanged == 1


def test_refusing_long_texts_commits_what_came_before(index):
    stream = [*documents(3), long_document(), *documents(3, start=3)]
    with pytest.raises(SourceError, match=r"'long': longer than .* 32 word pieces; use --on-long"):
        index.add(stream, on_long="error")
    assert sorted(stored(index)) == ["d0", "d1", "d2"]
    assert index.add(documents(6), on_long="error").added == 3


def test_an_index_that_splits_does_not_also_truncate(index):
    with pytest.raises(ConfigError, match="made with split"):
        index.add([long_document()], on_long="truncate")
    assert index.add([long_document()], on_long="split").split == 1


def test_pruning_deletes_what_the_stream_does_not_hold(index):
    index.add(documents(10))
    stream = [replace(documents(1)[0], text="new"), *documents(6)[1:], *documents(2, start=20)]
    counted = index.add(stream, prune=True)
    assert (counted.added, counted.updated, counted.unchanged, counted.deleted) == (2, 1, 5, 4)
    assert set(stored(index)) == {document.id for document in stream}


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


@pytest.mark.soak
def test_memory_does_not_grow_with_the_corpus(tmp_path, fake_encoder, monkeypatch):
    # Merging and summing take memory up to the size of their blocks, large for corpora so small.
    monkeypatch.setattr("indexes.bm25.postings._BLOCK", 4096)
    monkeypatch.setattr("indexes.folder.segment._ROWS", 512)
    monkeypatch.setattr("indexes.folder.checksums._APART", 16)
    commit = CommitSettings(passages=512, window_passages=512, window_pieces=4096)

    def stream(n):
        chance = random.Random(0)
        for i in range(n):
            yield Document(f"{i:09}", " ".join(chance.choices(WORDS, k=8)), None, {"i": i})

    def peak(n):
        with Index.create(tmp_path / str(n)) as index:
            index.add(stream(600), commit=commit)
            tracemalloc.start()
            index.add(stream(n), commit=commit)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert index.info()["documents"] == n
        return most

    # One-time allocations, such as late imports, do not count as growth.
    peak(6_000)
    small, large = peak(2_000), peak(20_001)
    assert large < 1.3 * small


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


def test_documents_that_the_index_holds_under_a_generated_id_too_are_counted(index):
    texts = ["one", "two", "three"]
    assert index.add(texts).doubled == 0
    named = [{"id": f"n{text}", "text": text} for text in ("one", "two", "four")]
    # A title that was not seen before is part of what an id is generated from.
    titled = {"id": "t", "text": "three", "title": "Three"}
    with pytest.warns(UserWarning, match="^3 documents are in the index twice"):
        assert index.add([*named, titled]).doubled == 3
    assert index.add([*texts, *named, titled]).doubled == 0
    assert len(index) == 7


def test_nan_of_a_program_is_null_and_what_cannot_be_stored_is_refused(index):
    index.add([{"id": "a", "text": "x", "n": float("nan"), "m": [1, float("nan")]}])
    assert index["a"].metadata == {"n": None, "m": [1, None]}
    for value, fault in ((float("inf"), "holds inf"), (b"x", "of type bytes"), (2**63, "64 bits")):
        with pytest.raises(SourceError, match=f"document 'b': the field 'n' .*{fault}"):
            index.add([{"id": "b", "text": "x", "n": value}])
    assert len(index) == 1
