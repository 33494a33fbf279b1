"""BM25 against rank-bm25, bm25s and the formulas written out for one passage at a time."""

import math
import random
from itertools import pairwise
from statistics import fmean

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from indexes.bm25.formulas import mean_okapi_idf
from indexes.bm25.postings import Postings
from indexes.bm25.scoring import BM25, BM25Settings, CorpusStatistics, SearchableSegment
from indexes.errors import ConfigError, DamagedIndexError
from indexes.passage_mask import PassageMask

VARIANTS = ["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]
WORDS = list("abcdefgh")
PASSAGES = st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=24)
QUERY = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=6)


def random_corpus(seed, n=300, vocabulary=60):
    chance = random.Random(seed)
    words = [f"w{i}" for i in range(vocabulary)]
    weights = [1 / (i + 1) for i in range(vocabulary)]
    return [chance.choices(words, weights, k=chance.randint(1, 30)) for _ in range(n)]


def segments_of(passages, cuts=(), alive=None):
    edges = [0, *sorted(cuts), len(passages)]
    return [
        SearchableSegment(
            Postings.build(passages[low:high]), None if alive is None else alive[low:high]
        )
        for low, high in pairwise(edges)
    ]


def flat_scores(passages, settings, query, cuts=(), alive=None):
    return score_all_passages(BM25(segments_of(passages, cuts, alive), settings), query)


def score_all_passages(engine, query):
    """Return the score of every passage, and a mask of the matching ones."""
    prepared = engine.query(query)
    places = [np.arange(len(segment.postings)) for segment in engine.segments]
    pairs = [prepared.at(segment, positions) for segment, positions in enumerate(places)]
    return tuple(map(np.concatenate, zip(*pairs, strict=True)))


def formula(variant, *, f, df, n, relative_length, k1, b, delta):
    """Return one term's score in one passage by the published formula, okapi excepted."""
    length = 1 - b + b * relative_length
    if variant == "lucene":
        return math.log(1 + (n - df + 0.5) / (df + 0.5)) * f / (f + k1 * length)
    if variant == "robertson":
        return max(0, math.log((n - df + 0.5) / (df + 0.5))) * f / (f + k1 * length)
    if variant == "atire":
        return math.log(n / df) * (k1 + 1) * f / (f + k1 * length)
    if variant == "bm25+":
        return math.log((n + 1) / df) * ((k1 + 1) * f / (f + k1 * length) + delta)
    c = f / length
    return math.log((n + 1) / (df + 0.5)) * (k1 + 1) * (c + delta) / (k1 + c + delta)


def reference_scores(passages, settings, query):
    if settings.variant == "okapi":
        if not any(passages):
            return np.zeros(len(passages))
        reference = BM25Okapi(passages, k1=settings.k1, b=settings.b, epsilon=settings.epsilon)
        return reference.get_scores(query)
    n, mean = len(passages), sum(map(len, passages)) / len(passages)
    delta = settings.delta
    if delta is None:
        delta = {"bm25+": 1.0, "bm25l": 0.5}.get(settings.variant)
    scores = np.zeros(n)
    for term in query:
        df = sum(term in passage for passage in passages)
        for i, passage in enumerate(passages):
            if f := passage.count(term):
                scores[i] += formula(
                    settings.variant,
                    f=f,
                    df=df,
                    n=n,
                    relative_length=len(passage) / mean,
                    k1=settings.k1,
                    b=settings.b,
                    delta=delta,
                )
    return scores


def rank_hits(hits, edges, k):
    """Return corpus positions and scores of the hits, best first, ties by position."""
    assert len(hits.scores) <= k
    places = [edges[s] + p for s, p in zip(hits.segments, hits.positions, strict=True)]
    best = sorted(zip((-hits.scores).tolist(), places, strict=True))
    return [place for _, place in best], [-score for score, _ in best]


@st.composite
def any_settings(draw):
    return BM25Settings(
        variant=draw(st.sampled_from(VARIANTS)),
        # rank-bm25 divides by zero where k1 is 0 and a term is absent.
        k1=draw(st.floats(0.01, 3)),
        b=draw(st.floats(0, 0.99)),
        delta=draw(st.none() | st.floats(0, 2)),
        epsilon=draw(st.floats(0, 1)),
    )


@given(PASSAGES, QUERY, any_settings())
def test_every_variant_scores_as_its_written_formula(passages, query, bm25_settings):
    scores, matches = flat_scores(passages, bm25_settings, query)
    np.testing.assert_allclose(
        scores, reference_scores(passages, bm25_settings, query), rtol=1e-9, atol=1e-9
    )
    assert matches.tolist() == [bool(set(query) & set(passage)) for passage in passages]


@given(PASSAGES, QUERY, any_settings(), st.data())
def test_search_over_segments_and_deletions_equals_sorting_a_fresh_index(
    passages, query, bm25_settings, data
):
    n = len(passages)
    flags = st.lists(st.booleans(), min_size=n, max_size=n)
    alive = np.array(data.draw(flags), np.bool_)
    allowed = np.array(data.draw(flags), np.bool_)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=3)))
    k = data.draw(st.integers(1, n + 2))
    living = np.flatnonzero(alive)
    fresh = np.zeros(n)
    if len(living):
        fresh[living] = flat_scores([passages[i] for i in living], bm25_settings, query)[0]
    expected = [i for i in living if allowed[i] and set(query) & set(passages[i])]
    expected = sorted(expected, key=lambda i: (-fresh[i], i))[:k]

    edges = [0, *cuts, n]
    masks = [allowed[low:high] for low, high in pairwise(edges)]
    engine = BM25(segments_of(passages, cuts, alive), bm25_settings)
    hits = engine.query(query).search(k, [PassageMask(mask) for mask in masks])
    flat, best = rank_hits(hits, edges, k)
    np.testing.assert_allclose(best, fresh[expected], rtol=1e-9, atol=1e-12)
    if bm25_settings.variant == "okapi":
        # The mean idf is summed in another order, so equal scores may differ in the last bit.
        assert set(flat) <= set(np.flatnonzero(alive & allowed))
    else:
        assert flat == expected
    scores, matches = score_all_passages(engine, query)
    np.testing.assert_allclose(scores, fresh, rtol=1e-9, atol=1e-12)
    assert not matches[~alive].any()
    for index, first in enumerate(edges[:-1]):
        n = edges[index + 1] - first
        positions = np.array(data.draw(st.permutations(range(n))), np.int64)[: n // 2 + 1]
        at, match = engine.query(query).at(index, positions)
        assert at.tolist() == scores[first + positions].tolist()
        assert match.tolist() == matches[first + positions].tolist()


@pytest.mark.parametrize(
    "bm25_settings",
    [
        *(BM25Settings(name, k1=1.3, b=0.6) for name in ("lucene", "robertson", "atire")),
        *(BM25Settings("bm25+", delta=delta) for delta in (1.0, 0.3)),
        BM25Settings("bm25l", delta=0.5),
    ],
)
def test_scores_equal_bm25s_on_passages_that_hold_the_term(bm25_settings):
    """Elsewhere bm25s adds the weight at frequency zero to bm25+ and bm25l, unlike the papers."""
    corpus = random_corpus(5)
    reference = bm25s.BM25(
        method=bm25_settings.variant,
        k1=bm25_settings.k1,
        b=bm25_settings.b,
        delta=bm25_settings.delta or 0.5,
    )
    reference.index(corpus, show_progress=False)
    for term in ("w0", "w7", "w40"):
        scores, matches = flat_scores(corpus, bm25_settings, [term])
        expected = reference.get_scores([term])
        np.testing.assert_allclose(scores[matches], expected[matches], rtol=2e-5, atol=2e-5)
        assert not scores[~matches].any()


@pytest.mark.parametrize("k", [1, 10, 500, 5000])
@pytest.mark.parametrize("terms", [["w0"], ["w0", "w1", "w2"], ["w58", "w59"]])
def test_the_best_k_are_exact_with_many_ties_at_the_boundary(k, terms):
    chance = random.Random(7)
    # Few distinct passages make hundreds of equal scores.
    kinds = random_corpus(8, n=12)
    corpus = [chance.choice(kinds) for _ in range(4000)]
    cuts = (300, 3500)
    scores, matches = flat_scores(corpus, BM25Settings(), terms)
    order = sorted(np.flatnonzero(matches), key=lambda i: (-scores[i], i))[:k]
    engine = BM25(segments_of(corpus, cuts))
    hits = engine.query(terms).search(k)
    assert rank_hits(hits, [0, *cuts], k) == (order, scores[order].tolist())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("passages", [[], [[]], [[], []]])
def test_search_of_passages_without_terms_has_no_hits(variant, passages):
    for segments in ([], segments_of(passages)):
        engine = BM25(segments, BM25Settings(variant))
        assert len(engine.query(["a"]).search(3).scores) == 0
        assert not segments or score_all_passages(engine, ["a"])[0].tolist() == [0.0] * len(
            passages
        )


def test_scores_use_given_statistics_of_a_larger_corpus():
    corpus = random_corpus(11)
    larger = CorpusStatistics(passages=10_000, mean_length=10.0)
    part, _ = score_all_passages(BM25(segments_of(corpus), statistics=larger), ["w0"])
    df = sum("w0" in passage for passage in corpus)
    i = next(i for i, passage in enumerate(corpus) if "w0" in passage)
    expected = formula(
        "lucene",
        f=corpus[i].count("w0"),
        df=df,
        n=10_000,
        relative_length=len(corpus[i]) / 10,
        k1=1.2,
        b=0.75,
        delta=None,
    )
    assert part[i] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variant": "bm42"}, "variant: expected lucene, robertson, .* found 'bm42'"),
        ({"k1": -0.1}, "k1: expected at least 0, found -0.1"),
        ({"k1": math.nan}, "k1"),
        ({"b": 1.01}, "b: expected 0 to 1, found 1.01"),
        ({"b": "0.5"}, "b: expected"),
        ({"delta": -1.0}, "delta"),
        ({"epsilon": math.inf}, "epsilon"),
    ],
)
def test_bm25_settings_out_of_range_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        BM25Settings(**change)


@pytest.mark.parametrize("alive", [None, np.array([True, False])])
@pytest.mark.parametrize("position", [0, 7])
def test_search_refuses_positions_that_do_not_ascend(alive, position):
    postings = Postings.build([["a"], ["a"]])
    postings._positions[1] = position
    engine = BM25([SearchableSegment(postings, alive)])
    with pytest.raises(DamagedIndexError, match="do not ascend below n"):
        engine.query(["a"]).search(1)


def test_the_mean_idf_of_a_vocabulary_does_not_depend_on_the_order_of_its_terms():
    chance = np.random.default_rng(0)
    df = chance.integers(1, 900, 50)
    orders = [chance.permutation(df) for _ in range(20)]
    # Added in their order, they differ in the last bits.
    assert (
        len({float(np.log((1000 - counts + 0.5) / (counts + 0.5)).mean()) for counts in orders}) > 1
    )
    assert len({mean_okapi_idf(counts, 1000) for counts in orders}) == 1
    plain = fmean(math.log((1000 - counts + 0.5) / (counts + 0.5)) for counts in df.tolist())
    assert mean_okapi_idf(df, 1000) == pytest.approx(plain, rel=1e-12)
