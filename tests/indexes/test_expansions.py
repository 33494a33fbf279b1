"""Expansions of query terms, in every store, against their definition written out."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import NewDocument, Query, open_store
from indexes.bm25 import BM25, BM25Settings, Expansion, Postings, SearchableSegment
from tests.indexes.store_samples import DIMENSIONS, SETTINGS, open_view

WORDS = list("abcdef")
ALTERNATIVE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def expansions(draw):
    alternatives = draw(st.lists(ALTERNATIVE, min_size=1, max_size=5, unique=True))
    split = draw(st.integers(0, len(alternatives) - 1))
    weight = draw(st.floats(0.05, 1))
    return Expansion("x", tuple(alternatives[:split]), tuple(alternatives[split:]), weight)


TERMS = st.lists(st.sampled_from([*WORDS, "unknown"]) | expansions(), max_size=5)
PASSAGES = st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=20)


def frequency(passage, term):
    alternatives = [(term,)] if isinstance(term, str) else term.alternatives
    added = sum(min(map(passage.count, alternative)) for alternative in alternatives)
    return min(added, len(passage))


def document_frequency(passages, term):
    alternatives = [(term,)] if isinstance(term, str) else (*term.terms, *term.alternatives)
    return sum(any(set(terms) <= set(passage) for terms in alternatives) for passage in passages)


def brute_force(passages, terms, k1=1.2, b=0.75, mean=None):
    """Score one passage and one term at a time by Lucene's formula."""
    mean = mean or sum(map(len, passages)) / (len(passages) or 1) or 1
    scores = np.zeros(len(passages))
    for term in terms:
        df = document_frequency(passages, term)
        weight = 1 if isinstance(term, str) else term.weight
        for place, passage in enumerate(passages):
            if f := frequency(passage, term):
                length = 1 - b + b * len(passage) / mean
                odds = (len(passages) - df + 0.5) / (df + 0.5)
                scores[place] += weight * math.log(1 + odds) * f / (f + k1 * length)
    return scores


@given(PASSAGES, TERMS, st.data())
def test_scores_of_expansions_equal_their_definition_over_segments_and_deletions(
    passages, terms, data
):
    flags = st.lists(st.booleans(), min_size=len(passages), max_size=len(passages))
    live = np.array(data.draw(flags), np.bool_)
    cut = data.draw(st.integers(0, len(passages)))
    living = [passage for passage, is_live in zip(passages, live, strict=True) if is_live]
    engine = BM25(
        [
            SearchableSegment(Postings.build(passages[:cut]), live[:cut]),
            SearchableSegment(Postings.build(passages[cut:]), live[cut:]),
        ]
    )
    query = engine.query(terms)
    expected = np.zeros(len(passages))
    expected[live] = brute_force(living, terms)
    matches = np.zeros(len(passages), np.bool_)
    matches[live] = [any(frequency(passage, term) for term in terms) for passage in living]
    ends = (0, cut), (cut, len(passages))
    for segment, (start, stop) in enumerate(ends):
        scores, matched = query.at(segment, np.arange(stop - start))
        np.testing.assert_allclose(scores, expected[start:stop], rtol=1e-9)
        assert matched.tolist() == matches[start:stop].tolist()
        assert query.matching()[segment].tolist() == np.flatnonzero(matches[start:stop]).tolist()
    best = query.search(3)
    np.testing.assert_allclose(
        np.sort(best.scores), np.sort(expected[matches])[-3:], rtol=1e-9, atol=1e-12
    )
    assert engine.document_frequencies(terms) == {
        term: document_frequency(living, term) for term in terms
    }


@pytest.mark.parametrize("variant", ["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"])
def test_an_expansion_adds_at_most_its_weight_of_the_word_in_every_variant(variant):
    passages = [["mueller", "x"], ["müller", "x"], ["y", "x"], ["y", "z"], ["z", "x"]]
    engine = BM25([SearchableSegment(Postings.build(passages))], BM25Settings(variant))
    expansion = Expansion("Mueller", (("mueller",),), (("müller",),), 0.5)
    scores, _ = engine.query(["mueller", expansion]).at(0, np.arange(2))
    assert 0 < scores[1] <= 0.5 * scores[0]


def test_terms_without_expansions_have_the_same_scores_to_the_bit_beside_expansions():
    chance = random.Random(3)
    passages = [chance.choices(WORDS, k=chance.randint(1, 9)) for _ in range(200)]
    engine = BM25([SearchableSegment(Postings.build(passages))])
    absent = Expansion("absent", (), (("absent",),))
    plain, _ = engine.query(["a", "b", "a"]).at(0, np.arange(200))
    beside, _ = engine.query(["a", "b", "a", absent]).at(0, np.arange(200))
    assert plain.tolist() == beside.tolist()


EXACT_STORES = ["folder", "postgres_url"]
STORES = [*EXACT_STORES, pytest.param("milvus_url", marks=pytest.mark.milvus)]


@pytest.fixture
def store(request, tmp_path):
    """An empty index in the store of the parameter."""
    is_folder = request.param == "folder"
    location = tmp_path / "index" if is_folder else request.getfixturevalue(request.param)
    opened = open_store(location)
    opened.create(SETTINGS)
    return opened


def document_of(place, terms):
    text = " ".join(terms)
    return NewDocument(f"{place:03}", None, text, {"n": place % 3}, b"h", [(0, len(text))])


def fill(store, passages):
    documents = [document_of(place, terms) for place, terms in enumerate(passages)]
    vectors = np.random.default_rng(0).standard_normal((len(passages), DIMENSIONS))
    with store.writer() as writer:
        writer.commit(documents, vectors.astype(np.float32), passages)


@pytest.mark.parametrize("store", EXACT_STORES, indirect=True)
def test_every_exact_store_scores_and_counts_expansions_as_defined(store):
    chance = random.Random(5)
    passages = [chance.choices(WORDS, k=chance.randint(2, 9)) for _ in range(60)]
    fill(store, passages)
    queries = [
        ["a", Expansion("a", (("a",),), (("b",), ("c", "d")), 0.5)],
        [Expansion("a b", (("a", "b"),), (("e",), ("f",), ("absent",)), 0.25), "c", "c"],
        [Expansion("absent", (("absent",),), (("a", "b", "c"),), 1.0)],
    ]
    with open_view(store) as view:
        for terms in queries:
            expected = brute_force(passages, terms)
            matches = [any(frequency(passage, term) for term in terms) for passage in passages]
            query = Query(terms, np.eye(DIMENSIONS, dtype=np.float32)[0])
            for mode in ("bm25", "hybrid"):
                (candidates,) = view.ranking().candidates([query], mode, 100)
                ids = view.documents_of(candidates.passages.tolist())
                scores = {
                    int(ids[passage]): score
                    for passage, score, match in zip(
                        candidates.passages.tolist(),
                        candidates.bm25.tolist(),
                        candidates.matches,
                        strict=True,
                    )
                    if match
                }
                assert scores.keys() == set(np.flatnonzero(matches))
                for place, score in scores.items():
                    assert score == pytest.approx(expected[place], rel=1e-5), (terms, place)
            facets = view.facets(["n"], None, terms, 5)
            assert facets.matches == sum(matches)
            assert view.document_frequencies(terms) == {
                term: document_frequency(passages, term) for term in terms
            }


@pytest.mark.parametrize("store", EXACT_STORES, indirect=True)
def test_terms_with_a_beginning_come_by_frequency(store):
    fill(store, [["config", "configur", "conf"], ["configur", "confa"], ["con", "%_", "configü"]])
    # Another segment, of a term that is there and one that is not.
    with store.writer() as writer:
        terms = ["confa", "confa", "conz"]
        vectors = np.ones((1, DIMENSIONS), np.float32)
        writer.commit([document_of(9, terms)], vectors, [terms])
    with open_view(store) as view:
        expected = ["confa", "configur", "conf", "config", "configü"]
        assert view.terms_beginning("conf", 10) == expected
        assert view.terms_beginning("conf", 2) == ["confa", "configur"]
        assert view.terms_beginning("configü", 2) == ["configü"]
        assert view.terms_beginning("%", 2) == ["%_"]
        assert view.terms_beginning("zzz", 2) == []
        assert view.terms_beginning("", 1) == ["confa"]


@pytest.mark.parametrize("store", EXACT_STORES, indirect=True)
def test_empty_index_has_no_terms_with_a_prefix(store):
    with open_view(store) as view:
        assert view.terms_beginning("a", 10) == []
