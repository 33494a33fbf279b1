"""The parts of the formulas that postings have no part in."""

import math
from statistics import fmean

import numpy as np
import pytest

from indexes.bm25.formulas import mean_okapi_idf


def test_the_mean_idf_of_a_vocabulary_does_not_depend_on_the_order_of_its_terms():
    chance = np.random.default_rng(0)
    df = chance.integers(1, 900, 50)
    orders = [chance.permutation(df) for _ in range(20)]
    # Added in their order, they differ in the last bits.
    assert len({float(np.log((1000 - one + 0.5) / (one + 0.5)).mean()) for one in orders}) > 1
    assert len({mean_okapi_idf(one, 1000) for one in orders}) == 1
    plain = fmean(math.log((1000 - one + 0.5) / (one + 0.5)) for one in df.tolist())
    assert mean_okapi_idf(df, 1000) == pytest.approx(plain, rel=1e-12)
