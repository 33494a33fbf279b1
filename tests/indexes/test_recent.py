"""What is remembered of the keys that were asked for last."""

from __future__ import annotations

import pytest

from indexes.files.recent import Recent


def test_a_value_is_made_once_and_forgotten_when_it_was_not_asked_for_the_longest() -> None:
    made: list[str] = []

    def get(key: str) -> str:
        return recent.get(key, lambda: made.append(key) or key.upper())  # type: ignore[func-returns-value]

    recent: Recent[str, str] = Recent(2)
    assert [get(key) for key in "aabab"] == ["A", "A", "B", "A", "B"]
    assert made == ["a", "b"]
    assert get("a") == "A"
    # b is the oldest now.
    assert get("c") == "C"
    assert get("a") == "A"
    assert made == ["a", "b", "c"]
    assert get("b") == "B"
    assert made == ["a", "b", "c", "b"]


def test_what_cannot_be_made_is_not_remembered() -> None:
    recent: Recent[str, int] = Recent(1)

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        recent.get("a", fail)
    assert recent.get("a", lambda: 3) == 3
    assert recent.get("a", fail) == 3
