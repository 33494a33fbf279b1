"""Queries of stop words alone, by the mode ``bm25``, against a look at every text."""

from __future__ import annotations

import pytest

from retriever import Index
from retriever.search import stop_words

TEXTS = {
    "hamlet": "He said: “To be, or not to be”, that was asked.",
    "twice": "to be or not to be? To be or not to be!",
    "parts": "not to be or to be",
    "other": "a boat sank",
    "longer": "into be or not to bees",
}
PHRASE = "to be or not to be"


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add({"id": id_, "text": text, "n": len(id_)} for id_, text in TEXTS.items())
        index.add([{"id": "titled", "title": "To Be or Not to Be", "text": "a play", "n": 6}])
        yield index


def ids(index, text=PHRASE, **keywords):
    return [hit.id for hit in index.search(text, **{"mode": "bm25", "raw": False} | keywords)]


def test_documents_with_the_phrase_are_found_titles_first(index):
    assert ids(index) == ["titled", "twice", "hamlet"]
    assert ids(index, "To be, or not to BE?") == ["titled", "twice", "hamlet"]
    assert ids(index, k=1) == ["titled"]
    assert ids(index, raw=True) == ["titled", "twice", "hamlet"]
    assert ids(index, where="n > 5 and n < 7") == ["titled", "hamlet"]
    assert ids(index, f'{PHRASE} -"asked"') == ["titled", "twice"]
    assert ids(index, "be the of") == []
    assert ids(index, "?!") == []


def test_hits_have_scores_and_hold_no_term(index):
    hits = index.search(PHRASE, mode="bm25", k1=1.0)
    assert [hit.score for hit in hits] == [1.0, 2 / 3, 0.5]
    assert {(hit.bm25, hit.bm25_rank, hit.dense) for hit in hits} == {(0.0, None, None)}
    assert list(index.rank([PHRASE, "boat"], mode="bm25", k1=1.0)) == [
        [("titled", 1.0), ("twice", 2 / 3), ("hamlet", 0.5)],
        list(next(index.rank(["boat"], mode="bm25", k1=1.0))),
    ]


def test_other_modes_rank_by_the_embeddings(index):
    dense = [hit.id for hit in index.search(PHRASE, mode="dense")]
    assert [hit.id for hit in index.search(PHRASE)] == dense
    assert index.search_note(index.search(PHRASE)) is None


def test_the_reason_of_no_hits_is_a_phrase_or_what_is_left_out(index):
    for text, where, reason in (
        (f"{PHRASE} -asked", 'id = "hamlet"', "has what the query leaves out (-asked)"),
        ('"to be or not to be or"', None, "which as a phrase are in no title"),
        (f'"{PHRASE}"', 'id = "hamlet"', f'has "{PHRASE}" as written: '),
        ("be the of -asked", None, "which as a phrase are in no title"),
    ):
        assert ids(index, text, where=where) == [], text
        assert reason in index.no_hits_reason(text, mode="bm25", where=where, raw=False)
    reason = index.no_hits_reason(PHRASE, mode="bm25", where='id = "hamlet"', exclude=["asked"])
    assert reason.endswith('has what the query leaves out ("asked"): take one out of exclude')


def test_a_note_says_how_many_texts_were_read(index, monkeypatch):
    hits = index.search(PHRASE, mode="bm25")
    assert "in the texts of 6 documents" in index.search_note(hits, mode="bm25")
    monkeypatch.setattr(stop_words, "_MOST_TEXTS", 2)
    note = index.search_note(hits, mode="bm25", where="n > 5")
    assert "in the texts of 2 of 3 documents" in note
    # By id, and titles of all.
    assert ids(index) == ["titled", "hamlet"]
    assert index.search_note(index.search("boat", mode="bm25"), mode="bm25") is None
    assert index.search_note([], mode="bm25") is None
    reason = index.no_hits_reason("the of", mode="bm25")
    assert "in none of the texts of 2 of 6 documents" in reason


def test_a_phrase_over_two_passages_and_adjacent_repetitions_count(tmp_path, fake_encoder):
    with Index.create(tmp_path / "long") as index:
        text = "word. " * 30 + "it is it is it is. " + "word. " * 30
        index.add([{"id": "a", "text": text}, {"id": "b", "text": "is it"}])
        (hit,) = index.search("it is", mode="bm25", k1=1.0)
        assert (hit.id, hit.score) == ("a", 3 / 4)


@pytest.mark.parametrize(
    "store", ["postgres_url", pytest.param("milvus_url", marks=pytest.mark.milvus)]
)
def test_query_of_stop_words_has_same_hits_in_other_stores(index, request, store, fake_encoder):
    with Index.create(request.getfixturevalue(store)) as other:
        other.add(index)
        for where in (None, "n > 5"):
            assert ids(other, where=where) == ids(index, where=where)
