"""Batches: each text once, longest first, within the budget, none smaller than necessary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders.computing import token_batches

LENGTHS = st.lists(st.integers(1, 300), max_size=120)


@given(LENGTHS, st.integers(1, 1000))
def test_every_text_is_in_exactly_one_batch(lengths, budget):
    rows = [int(row) for batch in token_batches(lengths, budget) for row in batch]
    assert sorted(rows) == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 1000))
def test_padded_batches_keep_the_budget_unless_one_text_exceeds_it(lengths, budget):
    for batch in token_batches(lengths, budget):
        longest = max(lengths[row] for row in batch)
        assert len(batch) * longest <= budget or len(batch) == 1


@given(LENGTHS, st.integers(1, 1000))
def test_the_longest_texts_come_first_and_equal_ones_in_order(lengths, budget):
    rows = [int(row) for batch in token_batches(lengths, budget) for row in batch]
    assert rows == sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))


@given(LENGTHS, st.integers(1, 1000))
def test_no_batch_but_the_last_has_room_for_another_text(lengths, budget):
    batches = list(token_batches(lengths, budget))
    for batch in batches[:-1]:
        assert (len(batch) + 1) * max(lengths[row] for row in batch) > budget


@pytest.mark.parametrize("lengths", [[], np.empty(0, np.int64)])
def test_nothing_makes_no_batch(lengths):
    assert list(token_batches(lengths, 1536)) == []
