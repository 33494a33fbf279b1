import numpy as np
import pytest

from eval.qa.hybrid import WEIGHTS, Components, best_weight, fixed_weight
from retriever.search.fusion import FusionSettings, fuse
from tests.eval.qa_samples import made_set


@pytest.mark.parametrize("settings", [FusionSettings(), FusionSettings("rrf")], ids=str)
def test_each_pool_is_fused_by_itself(settings):
    questions = made_set()
    chance = np.random.default_rng(0)
    pairs = sum(len(one.candidates) for one in questions.questions)
    dense, bm25 = chance.random(pairs), chance.random(pairs)
    found = Components.of(questions, dense, (bm25, bm25 > 0.5)).fused(settings)
    for start in range(0, pairs, 6):
        rows = slice(start, start + 6)
        expected = fuse(dense[rows], bm25[rows], bm25[rows] > 0.5, settings)
        np.testing.assert_array_equal(found[rows], expected)


def test_the_best_weight_is_tried_among_all_and_the_greatest_of_equal_ones():
    asked = []

    def quality(weight):
        asked.append(weight)
        return -abs(weight - 0.325)

    assert best_weight(quality) == 0.35
    assert tuple(asked) == WEIGHTS
    assert best_weight(lambda weight: 1.0) == 1.0


def test_a_variant_says_how_to_fuse():
    assert fixed_weight(FusionSettings(), "rrf").method == "rrf"
    assert fixed_weight(FusionSettings("rrf"), "0.25") == FusionSettings("convex", 0.25)
