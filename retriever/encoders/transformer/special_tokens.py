"""Where a tokenizer puts its special tokens: around every text, always the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_PROBE = "a"


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens around a text.

    Attributes:
        before, after: how many there are.
        cls: the place of [CLS], from the end where negative; None if there is none.
        sep: the place of the last [SEP], likewise.
        types: the token types of those before and those after; empty if all types are 0.
    """

    before: int
    after: int
    cls: int | None
    sep: int | None
    types: tuple[int, ...]

    def token_types(self, length: int) -> list[int]:
        """The token types of a text of `length` word pieces, special tokens included."""
        inside = [0] * (length - self.before - self.after)
        return [*self.types[: self.before], *inside, *self.types[self.before :]][:length]


def read_special_tokens(tokenizer: Any) -> SpecialTokens:
    """Find out by comparing a text with and without them."""
    encoded = tokenizer(_PROBE, return_token_type_ids=True)
    ids = list(encoded["input_ids"])
    bare = list(tokenizer(_PROBE, add_special_tokens=False)["input_ids"])
    before = next(
        (start for start in range(len(ids)) if ids[start : start + len(bare)] == bare), len(ids)
    )
    after = max(0, len(ids) - before - len(bare))
    ends = [(place, ids[place]) for place in range(before)]
    ends += [(place, ids[place]) for place in range(-after, 0)]
    types = list(encoded.get("token_type_ids", []))
    kinds = [types[place] for place, _ in ends] if types else []
    if "token_type_ids" not in tokenizer.model_input_names:
        kinds = []
    return SpecialTokens(
        before,
        after,
        _place(ends, tokenizer.cls_token_id),
        _place(ends[::-1], tokenizer.sep_token_id),
        tuple(kinds) if any(kinds) else (),
    )


def _place(ends: Sequence[tuple[int, int]], wanted: int | None) -> int | None:
    return next((place for place, id_ in ends if id_ == wanted), None)
