"""Documents like one, excerpts, and queries that were encoded before, against plain searches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from retriever import BadInputError, ConfigError, EncoderMismatchError, Index, QueryVectors
from tests.conftest import FakeEncoder

WORDS = [f"w{number}" for number in range(40)]


@pytest.fixture
def index(tmp_path, fake_encoder):
    chance = np.random.default_rng(2)
    with Index.create(tmp_path / "index") as index:
        index.add(
            {
                "id": f"d{number:02}",
                "text": " ".join(chance.choice(WORDS, 70 if number % 5 == 0 else 8)),
                "even": number % 2 == 0,
            }
            for number in range(60)
        )
        yield index


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
@pytest.mark.parametrize("where", [None, "even = true", "even = false"])
def test_more_like_equals_search_for_passage_without_its_document(index, mode, where):
    for id_ in ("d00", "d01"):
        for start, stop in index.spans(id_):
            # The title is part of what is encoded; these have none.
            text = index[id_].text[start:stop]
            hits = index.search(text, k=12, mode=mode, where=where, depth=200)
            expected = [hit for hit in hits if hit.id != id_][:11]
            others = index.more_like(id_, start=start, k=11, mode=mode, where=where, depth=200)
            assert [hit.id for hit in others] == [hit.id for hit in expected]
            assert [hit.rank for hit in others] == list(range(1, len(others) + 1))
            np.testing.assert_allclose(
                [hit.score for hit in others], [hit.score for hit in expected], atol=1e-4
            )


def test_more_like_stored_document_encodes_nothing(index, monkeypatch):
    monkeypatch.setattr(FakeEncoder, "encode", None)
    assert len(index.more_like("d03", k=5)) == 5
    for method in (index.more_like, index.spans):
        with pytest.raises(KeyError, match="zz"):
            method("zz")


def test_queries_that_were_encoded_before_have_the_same_hits(index):
    texts = [f"{WORDS[number % 40]} {WORDS[number // 40]}" for number in range(300)]
    encoder = index.encoder
    ready = QueryVectors(encoder.encode(texts, query=True), encoder.spec)
    assert list(index.search_many(texts, ready=ready)) == list(index.search_many(texts))
    with pytest.raises(ConfigError, match="one for each query"):
        list(index.search_many([*texts, "w1"], ready=ready))
    other = replace(encoder.spec, weights="1" * 64)
    with pytest.raises(EncoderMismatchError, match="encode them with the encoder of the index"):
        list(index.search_many(texts, ready=ready._replace(made_by=other)))


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_query_vectors_that_are_no_vectors_are_refused(index, mode):
    encoder, texts = index.encoder, ["w1", "w2 w3"]
    vectors = encoder.encode(texts, query=True)
    width = vectors.shape[1]
    wrong = {
        "vector 2: expected numbers that float32 holds": [
            np.where([[False], [True]], value, vectors.astype(np.float64))
            for value in (np.nan, np.inf, 1e300)
        ],
        "one for each query, 2 in all, found 3": [np.ones((3, width), np.float32)],
        "one for each query, 2 in all, found 1": [vectors[:1]],
        rf"expected numbers of shape \(2, {width}\)": [vectors[:, 1:], vectors.astype(str)],
        "found float32 of shape": [vectors[0], np.float32(1)],
    }
    for message, cases in wrong.items():
        for case in cases:
            with pytest.raises(ConfigError, match=message):
                list(index.search_many(texts, mode=mode, ready=QueryVectors(case, encoder.spec)))
    with pytest.raises(TypeError, match="QueryVectors"):
        list(index.search_many(texts, ready=vectors))
    many = QueryVectors(np.tile(vectors[:1], (257, 1)), encoder.spec)
    with pytest.raises(ConfigError, match="256 in all, found 257"):
        list(index.rank(["w1"] * 256, ready=many))


def test_lengths_of_query_vectors_do_not_matter(index):
    encoder, texts = index.encoder, ["w1", "w2 w3"]
    vectors = encoder.encode(texts, query=True)
    expected = list(index.search_many(texts, mode="dense"))
    for scaled in (vectors * 2, vectors.astype(np.float64) / 7, (vectors * 1e20).tolist()):
        hits = list(
            index.search_many(texts, mode="dense", ready=QueryVectors(scaled, encoder.spec))
        )
        assert [[hit.id for hit in row] for row in hits] == [
            [hit.id for hit in row] for row in expected
        ]
        assert hits[0][0].score == pytest.approx(expected[0][0].score, abs=1e-5)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (0, 2), (1, 1), (99, 99)])
def test_an_excerpt_reaches_over_the_neighboring_passages(index, before, after):
    passages, text = index.spans("d00"), index["d00"].text
    assert len(passages) > 2
    for place, (start, stop) in enumerate(passages):
        (hit,) = index.search(text[start:stop], k=1, mode="dense")
        first, last = passages[max(0, place - before)], passages[place:][: after + 1][-1]
        found = index.excerpt(hit, before, after)
        assert found == ("d00", first[0], last[1], text[first[0] : last[1]], len(text))
    with pytest.raises(BadInputError, match="-1"):
        index.excerpt(hit, before=-1)
    index.add([{"id": "d00", "text": "w1"}])
    with pytest.raises(KeyError):
        index.excerpt(hit)
    index.delete(["d00"])
    with pytest.raises(KeyError):
        index.excerpt(hit)
