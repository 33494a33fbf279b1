"""Scores of pools: BM25, ours and rank-bm25's, cosines, and both fused."""

from dataclasses import replace

import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from eval.metrics.correlation import cosines
from eval.qa.pools import WEIGHTS, Components, PoolBM25, RankBM25, best_weight, embed_pairs
from retriever.documents.analyzer import Analyzer, AnalyzerSettings
from retriever.search import BM25Settings
from retriever.search.fusion import FusionSettings, fuse
from tests.eval.qa.samples import made_set

PLAIN = Analyzer(AnalyzerSettings(language="none"))


def okapi(questions, **parameters):
    """(pairs,) scores of the package itself."""
    reference = BM25Okapi([text.split() for text in questions.passages.values()], **parameters)
    row = {id_: number for number, id_ in enumerate(questions.passages)}
    return [
        reference.get_scores(question.text.split())[row[one]]
        for question in questions.questions
        for one in question.candidates
    ]


def test_pools_are_scored_with_the_statistics_of_all_passages():
    questions = made_set()
    bm25 = PoolBM25(questions.passages, PLAIN, BM25Settings(variant="okapi"))
    found, matches = bm25.scores(questions.questions)
    np.testing.assert_allclose(found, okapi(questions, k1=1.2, b=0.75), atol=1e-12)
    shared = [
        bool(set(left.split()) & set(right.split()))
        for left, right in zip(*questions.pairs(), strict=True)
    ]
    assert matches.tolist() == shared


def test_hard_negatives_are_the_best_passages_that_are_not_relevant():
    passages = {"a": "x y z", "b": "x y", "c": "x", "d": "q"}
    bm25 = PoolBM25(passages, PLAIN)
    assert bm25.hardest("x y z", 2, {"a"}) == ["b", "c"]
    assert bm25.hardest("x y z", 5, set()) == ["a", "b", "c"]
    assert bm25.hardest("nothing", 5, set()) == []


class TestRankBM25:
    def test_scores_are_those_of_the_package_with_its_own_defaults(self):
        questions = made_set()
        bm25 = RankBM25(questions.passages, PLAIN)
        np.testing.assert_allclose(bm25.scores(questions.questions), okapi(questions), atol=1e-12)
        assert bm25.note == "BM25Okapi of rank-bm25 with k1 1.5, b 0.75, epsilon 0.25"

    def test_the_best_texts_of_a_corpus_are_by_score_then_id(self):
        bm25 = RankBM25({"b": "x y", "a": "x y", "c": "y y y", "d": "q", "e": "r"}, PLAIN)
        best = bm25.best("x", 4)
        assert [id_ for id_, _ in best] == ["a", "b", "c", "d"]
        assert best[0][1] == best[1][1] > best[2][1] == 0

    @pytest.mark.parametrize("passages", [{"a": "?"}, {"a": "", "b": "!"}])
    def test_texts_without_a_term_score_zero(self, passages):
        question = replace(made_set().questions[0], candidates=tuple(passages))
        bm25 = RankBM25(passages, PLAIN)
        assert bm25.scores([question]).tolist() == [0] * len(passages)
        assert bm25.best("x", 1) == [("a", 0)]


def test_cosines_are_those_of_the_vectors_in_the_order_of_the_pairs(fake_encoder):
    questions = made_set()
    found = embed_pairs([fake_encoder], questions, None)[0].cosines()
    left, right = (fake_encoder.encode(texts) for texts in questions.pairs())
    np.testing.assert_allclose(found, cosines(left, right), atol=5.1e-7)
    np.testing.assert_array_equal(found, np.round(found, 6))
    same = dict.fromkeys(questions.passages, "the same text")
    one = replace(questions, questions=questions.questions[:1], passages=same)
    assert len(set(embed_pairs([fake_encoder], one, None)[0].cosines())) == 1


class TestFusion:
    @pytest.mark.parametrize("settings", [FusionSettings(), FusionSettings("rrf")], ids=str)
    def test_each_pool_is_fused_by_itself(self, settings):
        questions = made_set()
        chance = np.random.default_rng(0)
        sizes = tuple(len(one.candidates) for one in questions.questions)
        dense, bm25 = chance.random(sum(sizes)), chance.random(sum(sizes))
        found = Components(sizes, dense, bm25, bm25 > 0.5).fused(settings)
        for start in range(0, sum(sizes), 6):
            rows = slice(start, start + 6)
            expected = fuse(dense[rows], bm25[rows], bm25[rows] > 0.5, settings)
            np.testing.assert_array_equal(found[rows], expected)

    def test_the_best_weight_is_tried_among_all_and_the_greatest_of_equal_ones(self):
        asked = []

        def quality(weight):
            asked.append(weight)
            return -abs(weight - 0.325)

        assert best_weight(quality) == 0.35
        assert tuple(asked) == WEIGHTS
        assert best_weight(lambda weight: 1.0) == 1.0
