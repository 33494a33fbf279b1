"""Which hidden states a person asks for: ``last``, ``last4``, ``all``, ``0,6``, ``1..4``, ``-1``.

A model of depth L has hidden states 0 to L: 0 is the embedding output, k the output of the k-th
transformer layer. Negative numbers count from the top: -1 is L, -(L + 1) is 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retriever.errors import ConfigError

_ITEM = re.compile(
    r"last(?P<count>[1-9][0-9]{0,8})?|all|(?P<low>-?[0-9]{1,9})(\.\.(?P<high>-?[0-9]{1,9}))?"
)
_SHORTEST_RANGE = 3


def check_layers(text: str) -> str:
    """The expression without white space.

    Raises:
        ConfigError: it is not a list of layers.
    """
    compact = "".join(text.split())
    for item in compact.split(","):
        if not _ITEM.fullmatch(item):
            raise ConfigError(
                f"layers: expected last, last4, all, numbers such as 0,6 or a range such as 1..4, "
                f"found {text[:60]!r}"
            )
    return compact


def resolve_layers(text: str, depth: int) -> tuple[int, ...]:
    """The hidden states that an expression names in a model of `depth` layers.

    Returns:
        Numbers in [0, depth], in the order of the expression, each once.

    Raises:
        ConfigError: it is not a list of layers, names one that does not exist, or one twice.
    """
    found: list[int] = []
    for item in check_layers(text).split(","):
        found += _item(item, depth)
    twice = sorted({layer for layer in found if found.count(layer) > 1})
    if twice:
        raise ConfigError(f"layers: {text!r} names hidden state {twice[0]} twice; name it once")
    return tuple(found)


def _item(item: str, depth: int) -> Sequence[int]:
    match = _ITEM.fullmatch(item)
    if item == "all":
        return range(depth + 1)
    if match is None or match["low"] is None:
        count = int(match["count"] or 1) if match else 1
        if count > depth + 1:
            raise ConfigError(f"layers: {item!r}, but this model has {depth + 1} hidden states")
        return range(depth + 1 - count, depth + 1)
    low = _one(match["low"], depth)
    if match["high"] is None:
        return [low]
    high = _one(match["high"], depth)
    if high < low:
        raise ConfigError(f"layers: {item!r} runs backwards; write the lower layer first")
    return range(low, high + 1)


def _one(number: str, depth: int) -> int:
    layer = int(number)
    if not -depth - 1 <= layer <= depth:
        raise ConfigError(
            f"layers: this model has hidden states 0 (embeddings) to {depth}, or -{depth + 1} "
            f"to -1, found {layer}"
        )
    return layer % (depth + 1)


def format_layers(layers: Sequence[int], depth: int) -> str:
    """The canonical expression of hidden states: ``last``, ``all``, else numbers and ranges."""
    if tuple(layers) == (depth,):
        return "last"
    if tuple(layers) == tuple(range(depth + 1)):
        return "all"
    parts: list[str] = []
    start = 0
    for end in range(1, len(layers) + 1):
        if end < len(layers) and layers[end] == layers[end - 1] + 1:
            continue
        if end - start >= _SHORTEST_RANGE:
            parts.append(f"{layers[start]}..{layers[end - 1]}")
        else:
            parts += map(str, layers[start:end])
        start = end
    return ",".join(parts)
