"""What is allowed, one by one and all at once."""

from __future__ import annotations

import numpy as np
import pytest

from indexes.errors import ConfigError
from indexes.filters.allowed import Allowed


def test_a_mask_says_what_is_allowed() -> None:
    mask = np.array([True, False, True])
    some = Allowed.of(mask)
    assert len(some) == 3
    assert some.at(np.array([2, 1, 2], np.uint32)).tolist() == [True, False, True]
    assert some.mask.tolist() == [True, False, True]
    with pytest.raises(ValueError, match="read-only"):
        some.mask[0] = False
    assert mask.flags.writeable


def test_all_are_judged_at_once_and_no_more_than_once() -> None:
    asked = []

    def judge(at):  # type: ignore[no-untyped-def]
        asked.append(None if at is None else at.tolist())
        return np.arange(4) % 2 == 0 if at is None else at % 2 == 0

    some = Allowed(4, judge)
    assert some.at(np.array([3])).tolist() == [False]
    assert some.mask is some.mask
    assert some.at(np.array([2, 3])).tolist() == [True, False]
    assert asked == [[3], None]


@pytest.mark.parametrize("mask", [np.ones(3, np.int8), np.ones((3, 1), np.bool_)])
def test_other_arrays_are_refused(mask: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="expected one boolean a passage, found "):
        Allowed.of(mask)


def test_few_are_found_and_not_looked_for() -> None:
    def judge(at: object) -> np.ndarray:
        raise AssertionError("judged")

    some = Allowed(320, judge, 10, lambda: np.array([3, 7, 300]))
    assert some.is_few
    assert some.count == 3
    assert some.positions.tolist() == [3, 7, 300]
    with pytest.raises(ValueError, match="read-only"):
        some.positions[0] = 1
    assert not Allowed(319, judge, 10).is_few
    assert Allowed.of(np.arange(64) == 5).is_few
