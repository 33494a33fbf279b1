"""Triples of a batch: against brute force, and what must hold of every draw."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retriever.errors import BadInputError
from retriever.training import JudgedPools, Reservoir, SamplingSettings
from retriever.training.sampling import batches_in_epoch, epoch_batches

PASSAGES = 12


@st.composite
def judged(draw):
    """Positives and negatives of some questions; a passage is at most one of them."""
    grades = draw(
        st.lists(st.lists(st.sampled_from("pn-"), min_size=PASSAGES, max_size=PASSAGES), max_size=7)
        | st.lists(st.sampled_from(["p-", "n-", "pn", "pnpn", "-"]), max_size=7)
    )
    positives = [[row for row, one in enumerate(pool) if one == "p"] for pool in grades]
    negatives = [[row for row, one in enumerate(pool) if one == "n"] for pool in grades]
    return positives, negatives


LIMIT = st.none() | st.integers(1, 3)
SAMPLING = st.builds(
    SamplingSettings, st.sampled_from(["pool", "batch"]), LIMIT, LIMIT, st.integers(1, 4)
) | st.builds(SamplingSettings, st.just("random"), st.integers(1, 5), LIMIT, st.integers(1, 4))


def triples(batch):
    """(question, positive, negative) as rows, of which both pairs must have the same question."""
    assert (batch.question[batch.positive] == batch.question[batch.negative]).all()
    columns = (
        batch.question[batch.positive],
        batch.passage[batch.positive],
        batch.passage[batch.negative],
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=150)
@given(judged(), SAMPLING, st.booleans(), st.integers(0, 9))
def test_an_epoch_has_each_question_that_can_be_trained_on_once(lists, sampling, in_batch, seed):
    positives, negatives = lists
    pools = JudgedPools.of(*lists, PASSAGES)
    source, most, count = sampling.negatives, sampling.positives, sampling.count
    free = in_batch or source in ("random", "batch")
    usable = [row for row, pool in enumerate(negatives) if positives[row] and (pool or free)]
    chance = np.random.default_rng(seed)
    if not usable:
        with pytest.raises(BadInputError, match="found none"):
            list(epoch_batches(pools, sampling, chance, in_batch=in_batch))
        return
    batches = list(epoch_batches(pools, sampling, chance, in_batch=in_batch))
    assert len(batches) == batches_in_epoch(pools, sampling, in_batch=in_batch)
    assert len(batches) == -(-len(usable) // sampling.batch)
    met = []
    for batch in batches:
        pairs = list(zip(batch.question.tolist(), batch.passage.tolist(), strict=True))
        relevant = np.array([passage in positives[row] for row, passage in pairs], bool)
        # Positives first, then negatives, both by question.
        assert (np.diff(relevant.astype(int)) <= 0).all()
        assert (np.diff(batch.positive) >= 0).all()
        found = triples(batch)
        asked = set(batch.question.tolist())
        met += asked
        for row in asked:
            own = batch.question == row
            right = batch.passage[own & relevant].tolist()
            wrong = batch.passage[own & ~relevant].tolist()
            assert sorted(found_ for found_ in found if found_[0] == row) == sorted(
                product([row], right, wrong)
            )
            assert set(right) <= set(positives[row])
            assert len(set(right)) == len(right) == min(most or PASSAGES, len(positives[row]))
            if source == "random":
                assert not set(wrong) & set(positives[row])
                assert len(wrong) <= count
                assert all(0 <= one < PASSAGES for one in wrong)
            else:
                known = negatives[row] if source == "pool" else []
                assert set(wrong) <= set(known)
                assert len(set(wrong)) == len(wrong) == min(count or PASSAGES, len(known))
    assert sorted(met) == usable


def test_every_negative_is_drawn_equally_often():
    pools = JudgedPools.of([[0], [1]], [[2, 3, 4, 5], [6, 7, 8]], PASSAGES)
    chance = np.random.default_rng(0)
    drawn = Counter()
    for _ in range(2000):
        for batch in epoch_batches(pools, SamplingSettings(count=2), chance):
            drawn.update(wrong for _, _, wrong in triples(batch))
    # Five standard deviations of 2,000 draws with probability 1/2 or 2/3.
    for row, share in dict.fromkeys((2, 3, 4, 5), 1 / 2).items() | {(6, 2 / 3), (7, 2 / 3)}:
        assert abs(drawn[row] - 2000 * share) < 5 * np.sqrt(2000 * share * (1 - share))


def test_every_item_of_a_stream_has_the_same_chance():
    counts = np.zeros(60)
    for seed in range(400):
        sample = Reservoir(15, seed)
        for item in range(60):
            sample.add(item)
        assert (len(set(sample.items)), sample.seen) == (15, 60)
        counts[sample.items] += 1
    # The expected number is 100, with a standard deviation of 8.7.
    assert 60 < counts.min() <= counts.max() < 140


def test_the_order_of_questions_belongs_to_the_seed():
    pools = JudgedPools.of([[row] for row in range(9)], [[row + 1] for row in range(9)], PASSAGES)
    sampling = SamplingSettings(batch=9)
    orders = []
    for seed in (0, 0, 1):
        (batch,) = epoch_batches(pools, sampling, np.random.default_rng(seed))
        orders.append(batch.passage.tolist())
    assert orders[0] == orders[1] != orders[2]


@given(judged())
def test_relevance_matrix_equals_judgment_lists(lists):
    positives, negatives = lists
    pools = JudgedPools.of(positives, negatives, PASSAGES)
    questions = np.arange(len(positives))[::-1]
    passages = np.array([3, 0, 11, 7])
    found = pools.relevant(questions, passages)
    assert found.tolist() == [
        [passage in positives[row] for passage in passages] for row in questions
    ]
