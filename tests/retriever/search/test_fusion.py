"""Fusion against scipy and the formulas written out, and the ranges that are promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, zscore

from retriever.errors import ConfigError
from retriever.search import FusionSettings, SearchSettings, fuse, search_settings
from retriever.search.fusion import ComponentScores, best_passages, min_max, ranks, z_score
from tests.retriever.ranges import check_ranges

RRF = FusionSettings("rrf")
COSINES = st.floats(-1, 1).map(lambda value: round(value, 3))


@st.composite
def candidates(draw):
    """Cosines, BM25 scores and matches of the same candidates; ties are frequent."""
    n = draw(st.integers(1, 30))
    dense = np.array(draw(st.lists(COSINES, min_size=n, max_size=n)))
    matches = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    bm25 = np.array(draw(st.lists(st.integers(0, 40), min_size=n, max_size=n))) / 4.0
    return dense, np.where(matches, bm25, 0.0), matches


@given(candidates())
def test_ranks_are_those_of_scipy_with_ties_sharing_the_best(case):
    _, bm25, matches = case
    expected = np.zeros(len(bm25), np.int64)
    if matches.any():
        expected[matches] = rankdata(-bm25[matches], method="min")
    np.testing.assert_array_equal(ranks(bm25, matches), expected)


@given(candidates())
def test_z_score_is_that_of_scipy(case):
    dense, _, _ = case
    if dense.std() > 1e-6:
        np.testing.assert_allclose(z_score(dense), zscore(dense), atol=1e-9)


@given(candidates(), st.floats(0, 1))
def test_convex_min_max_is_the_written_formula_and_within_zero_and_one(case, alpha):
    dense, bm25, matches = case
    fused = fuse(dense, bm25, matches, FusionSettings(alpha=alpha))

    def scaled(scores):
        low, high = min(scores), max(scores)
        if low == high:
            return [float(high > 0)] * len(scores)
        return [(score - low) / (high - low) for score in scores]

    expected = [
        alpha * d + (1 - alpha) * b for d, b in zip(scaled(dense), scaled(bm25), strict=True)
    ]
    np.testing.assert_allclose(fused, expected, atol=1e-12)
    assert ((fused >= 0) & (fused <= 1 + 1e-12)).all()


@given(candidates(), st.floats(0.5, 200))
def test_rrf_is_the_written_formula_and_within_its_range(case, constant):
    dense, bm25, matches = case
    fused = fuse(dense, bm25, matches, FusionSettings(method="rrf", rrf_k=constant))
    expected = []
    for i in range(len(dense)):
        score = 1 / (constant + 1 + sum(dense > dense[i]))
        if matches[i]:
            score += 1 / (constant + 1 + sum(bm25[matches] > bm25[i]))
        expected.append(score)
    np.testing.assert_allclose(fused, expected, rtol=1e-12)
    assert ((fused > 0) & (fused <= 2 / (constant + 1) + 1e-12)).all()


@pytest.mark.parametrize("normalization", ["min-max", "z-score"])
def test_a_query_without_known_words_keeps_the_dense_order(normalization):
    dense = np.array([0.3, -0.2, 0.9, 0.1])
    settings = FusionSettings(normalization=normalization)
    fused = fuse(dense, np.zeros(4), np.zeros(4, np.bool_), settings)
    assert list(np.argsort(-fused)) == list(np.argsort(-dense))


@pytest.mark.parametrize(
    ("scores", "mapped", "z"),
    [([], [], []), ([2.0, 2.0], [1, 1], [0, 0]), ([0.0, 0.0], [0, 0], [0, 0]), ([-1.0], [0], [0])],
)
def test_equal_scores_are_zero_or_one_where_they_are_positive(scores, mapped, z):
    assert list(min_max(np.array(scores))) == mapped
    assert list(z_score(np.array(scores))) == z


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "rrf", "alpha": 0.9},
        {"method": "rrf", "normalization": "z-score"},
        {"method": "convex", "rrf_k": 10.0},
        {"rrf_k": 10.0},
    ],
    ids=str,
)
def test_a_setting_that_the_method_does_not_use_is_refused(settings):
    (name,) = settings.keys() - {"method"}
    expected = f"^{name}: it belongs to .* fusion, found fusion .*; leave one"
    with pytest.raises(ConfigError, match=expected):
        FusionSettings(**settings)
    with pytest.raises(ConfigError, match=expected):
        search_settings(None, settings)
    # Also the default, and where other settings have the method.
    for own, keywords in ((None, {"fusion": "rrf"}), (SearchSettings(fusion=RRF), {})):
        with pytest.raises(ConfigError, match="alpha: it belongs to convex fusion"):
            search_settings(own, {**keywords, "alpha": 0.6})


def test_another_method_leaves_the_settings_of_the_first_behind():
    tuned = SearchSettings(k=3, fusion=FusionSettings(alpha=0.9, normalization="z-score"))
    wanted = SearchSettings(k=3, fusion=FusionSettings("rrf", rrf_k=10))
    assert search_settings(tuned, {"fusion": "rrf", "rrf_k": 10}) == wanted
    assert search_settings(wanted, {"fusion": "convex"}) == SearchSettings(k=3)


def test_settings_have_ranges_and_choices():
    check_ranges(
        SearchSettings,
        {"at least 1": "k depth", "above 0 to 1": "recall", "above 0": "recency"},
    )
    check_ranges(FusionSettings, {"0 to 1": "alpha", "above 0": "rrf_k"})
    refused = {"mode": SearchSettings, "method": FusionSettings, "normalization": FusionSettings}
    for name, kind in refused.items():
        with pytest.raises(ConfigError, match=f"^{name}: expected"):
            kind(**{name: "borda"})


@given(st.lists(candidates(), max_size=4), st.sampled_from([FusionSettings(), RRF]))
def test_component_scores_of_several_queries_are_fused_query_by_query(cases, settings):
    sizes = [len(dense) for dense, _, _ in cases]
    columns = [np.concatenate([*column, np.zeros(0)]) for column in zip(*cases, strict=True)]
    dense, bm25, matches = columns or [np.zeros(0)] * 3
    components = ComponentScores(sizes, dense, bm25, matches.astype(np.bool_))
    expected = [fuse(*case, settings) for case in cases]
    np.testing.assert_array_equal(components.fused(settings), np.concatenate([*expected, []]))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 99)), max_size=12)
)
def test_best_passages_order_ties_by_document_then_passage(rows):
    rows = list({passage: row for row in rows for passage in row[2:]}.values())
    columns = [[row[i] for row in rows] for i in range(3)]
    best = best_passages(*columns)
    scores = {document: max(row[0] for row in rows if row[1] == document) for document in best}
    assert {row[1] for row in rows} == best.keys()
    assert list(best) == sorted(best, key=lambda document: (-scores[document], document))
    for document, position in best.items():
        ties = [row for row in rows if row[:2] == (scores[document], document)]
        assert rows[position] == min(ties, key=lambda row: row[2])
