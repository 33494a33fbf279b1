"""Triples of a batch: against brute force, and what must hold of every draw."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import BadInputError
from retriever.training.sampling import (
    JudgedPools,
    Reservoir,
    batches_in_epoch,
    epoch_batches,
)
from retriever.training.settings import SamplingSettings

PASSAGES = 12


@st.composite
def judged(draw):
    """Positives and negatives of some questions; a passage is at most one of them."""
    grades = draw(
        st.lists(st.lists(st.sampled_from("pn-"), min_size=PASSAGES, max_size=PASSAGES), max_size=7)
    )
    positives = [[row for row, one in enumerate(pool) if one == "p"] for pool in grades]
    negatives = [[row for row, one in enumerate(pool) if one == "n"] for pool in grades]
    return positives, negatives


def triples(batch):
    """(question, positive, negative) as rows, of which both pairs must have the same question."""
    assert (batch.question[batch.positive] == batch.question[batch.negative]).all()
    columns = (
        batch.question[batch.positive],
        batch.passage[batch.positive],
        batch.passage[batch.negative],
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def epoch(pools, settings, seed=0):
    return list(epoch_batches(pools, settings, np.random.default_rng(seed)))


@given(judged(), st.integers(1, 4), st.integers(0, 9))
def test_without_limits_an_epoch_is_every_triple_once(lists, questions, seed):
    positives, negatives = lists
    expected = [
        (question, right, wrong)
        for question, pool in enumerate(positives)
        for right in pool
        for wrong in negatives[question]
    ]
    pools = JudgedPools.of(positives, negatives, PASSAGES)
    settings = SamplingSettings(batch=questions)
    if not expected:
        with pytest.raises(BadInputError, match="found none"):
            epoch(pools, settings, seed)
        return
    batches = epoch(pools, settings, seed)
    assert len(batches) == batches_in_epoch(pools, settings)
    assert sorted(one for batch in batches for one in triples(batch)) == sorted(expected)


@given(judged(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))
def test_limits_hold_and_no_passage_is_drawn_twice(lists, count, most, seed):
    positives, negatives = lists
    pools = JudgedPools.of(positives, negatives, PASSAGES)
    settings = SamplingSettings(count=count, positives=most, batch=2)
    if not len(pools.trainable("pool")):
        return
    for batch in epoch(pools, settings, seed):
        assert len(set(batch.question.tolist())) <= 2
        pairs = list(zip(batch.question.tolist(), batch.passage.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        found = triples(batch)
        for question in set(batch.question.tolist()):
            own = [one for one in found if one[0] == question]
            right, wrong = {one[1] for one in own}, {one[2] for one in own}
            assert right <= set(positives[question])
            assert wrong <= set(negatives[question])
            assert len(right) == min(most, len(positives[question]))
            assert len(wrong) == min(count, len(negatives[question]))
            assert len(own) == len(right) * len(wrong)


@given(judged(), st.integers(1, 5), st.integers(0, 9))
def test_random_negatives_never_answer_and_questions_without_a_pool_are_used(lists, count, seed):
    positives, negatives = lists
    pools = JudgedPools.of(positives, negatives, PASSAGES)
    expected = {question for question, pool in enumerate(positives) if pool}
    assert set(pools.trainable("random").tolist()) == expected
    if not expected:
        return
    settings = SamplingSettings("random", count=count)
    met = set()
    for batch in epoch(pools, settings, seed):
        met |= set(batch.question.tolist())
        for question, right, wrong in triples(batch):
            assert right in positives[question]
            assert wrong not in positives[question]
            assert 0 <= wrong < PASSAGES
    assert met == expected


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
    rows = list(range(9))
    pools = JudgedPools.of([[row] for row in rows], [[row + 1] for row in rows], PASSAGES)
    orders = [
        [one for batch in epoch(pools, SamplingSettings(batch=2), seed) for one in batch.passage]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]


@given(judged(), st.sampled_from(["pool", "batch"]), st.integers(0, 9))
def test_a_loss_over_the_batch_needs_positives_alone(lists, negatives, seed):
    positives, others = lists
    pools = JudgedPools.of(positives, others, PASSAGES)
    settings = SamplingSettings(negatives, positives=1, batch=3)
    answered = [row for row, pool in enumerate(positives) if pool]
    assert batches_in_epoch(pools, settings, in_batch=True) == -(-len(answered) // 3)
    if not answered:
        return
    chance = np.random.default_rng(seed)
    seen = []
    for batch in epoch_batches(pools, settings, chance, in_batch=True):
        pairs = list(zip(batch.question.tolist(), batch.passage.tolist(), strict=True))
        right = [question for question, passage in pairs if passage in positives[question]]
        wrong = {(question, passage) for question, passage in pairs} - {
            (question, passage) for question in right for passage in positives[question]
        }
        seen += right
        expected = {(row, one) for row in right for one in others[row]}
        assert wrong == (expected if negatives == "pool" else set())
    assert sorted(seen) == answered


@given(judged(), st.integers(1, 3), st.integers(0, 9))
def test_a_pointwise_loss_takes_every_pair_also_of_questions_with_one_kind(lists, questions, seed):
    positives, negatives = lists
    pools = JudgedPools.of(positives, negatives, PASSAGES)
    settings = SamplingSettings(batch=questions)
    expected = [
        (question, passage, relevant)
        for relevant, side in ((True, positives), (False, negatives))
        for question, listed in enumerate(side)
        for passage in listed
    ]
    if not expected:
        return
    chance = np.random.default_rng(seed)
    batches = list(epoch_batches(pools, settings, chance, pointwise=True))
    assert len(batches) == batches_in_epoch(pools, settings, pointwise=True)
    found = [
        one
        for batch in batches
        for one in zip(
            batch.question.tolist(), batch.passage.tolist(), batch.relevant.tolist(), strict=True
        )
    ]
    assert sorted(found) == sorted(expected)
    for batch in batches:
        assert batch.relevant[batch.positive].all()
        assert not batch.relevant[batch.negative].any()
        assert (np.diff(batch.positive) >= 0).all()


def test_random_negatives_serve_questions_without_a_relevant_passage():
    pools = JudgedPools.of([[0], []], [[], []], PASSAGES)
    settings = SamplingSettings("random", count=3, batch=2)
    (batch,) = epoch_batches(pools, settings, np.random.default_rng(0), pointwise=True)
    assert np.count_nonzero(batch.question == 1) == 3
    (batch,) = epoch_batches(pools, settings, np.random.default_rng(0))
    assert set(batch.question.tolist()) == {0}


@given(judged())
def test_relevant_is_what_the_lists_say(lists):
    positives, negatives = lists
    pools = JudgedPools.of(positives, negatives, PASSAGES)
    questions = np.arange(len(positives))[::-1]
    passages = np.array([3, 0, 11, 7])
    found = pools.relevant(questions, passages)
    assert found.tolist() == [[one in positives[row] for one in passages] for row in questions]
