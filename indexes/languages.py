"""Counts of the passages of each language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self


class LanguageCounts(NamedTuple):
    """The languages of stored passages."""

    counted: Counter[str]  # number of passages of each language
    uncounted: int  # rows of earlier releases, which do not say

    @classmethod
    def of(cls, rows: Iterable[tuple[str | None, int]]) -> Self:
        """Add up rows: languages separated by spaces, None where unknown, and how often."""
        counted = Counter[str]()
        uncounted = 0
        for languages, number in rows:
            if languages is None:
                uncounted += number
                continue
            # Damage can make anything of a value.
            for language in str(languages).split():
                counted[language] += number
        return cls(counted, uncounted)

    def problem(self, setting: Any) -> str | None:
        """Why a stored `LANGUAGES` cannot be right; None if it can be.

        Earlier releases counted deleted passages too: where they stored passages, a number may be
        too high.
        """
        if not isinstance(setting, dict) or not all(type(n) is int for n in setting.values()):
            return f"expected the passages of each language, found {setting!r:.60}"
        if self.counted == setting or (self.uncounted and self.counted <= Counter(setting)):
            return None
        return (
            f"expected {dict(self.counted)} passages of each language, which is what the passages "
            f"add up to, found {setting}; `retriever compact` counts them again"
        )


def changed_counts(
    before: Mapping[str, int],
    added: Iterable[tuple[str | None, int]],
    deleted: Iterable[tuple[str | None, int]],
    stored: Callable[[], LanguageCounts],
) -> dict[str, int]:
    """The setting `LANGUAGES` after passages were added and deleted; `stored` counts all."""
    deleted_counts = LanguageCounts.of(deleted)
    if deleted_counts.uncounted and not (stored_counts := stored()).uncounted:
        # The last passage that an earlier release stored is gone, and with it what was too high.
        return dict(stored_counts.counted)
    return dict(Counter(before) + LanguageCounts.of(added).counted - deleted_counts.counted)
