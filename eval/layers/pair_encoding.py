"""Pairs of texts through an encoder, kept as nothing but the products between their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eval.layers.grams import PairGrams, join_grams, pair_grams

_PAIRS_AT_ONCE = 1024
_KEPT_BYTES = 256 * 2**20

# A text, and whether it is a query.
_Text = tuple[str, bool]


class LayerEncoder(Protocol):
    """What is asked of `retriever.encoders.encoder.Encoder`."""

    def layer_vectors(
        self, texts: Sequence[str], done: Callable[[int, int], None] = ..., *, query: bool = ...
    ) -> NDArray[np.float32]:
        """(texts, hidden states, width) float32: pooled, not fused, not normalised."""
        ...


def encode_pairs(
    encoder: LayerEncoder,
    left: Sequence[str],
    right: Sequence[str],
    done: Callable[[int], None] = lambda texts: None,
    *,
    queries: bool = False,
) -> PairGrams:
    """The products between the layers of pairs of texts, encoded a block of pairs at a time.

    A text is encoded once: where a later block has it again, its vectors stay until then, as long
    as such vectors take no more than 256 MB.

    Args:
        encoder: what gives the vectors of the layers.
        left: each pair's first text; at least one.
        right: its second.
        done: called with the number of texts after each batch.
        queries: whether the first texts are queries, which may have another prompt.
    """
    firsts = [(text, queries) for text in left]
    seconds = [(text, False) for text in right]
    last_use: dict[_Text, int] = {}
    for pair, both in enumerate(zip(firsts, seconds, strict=True)):
        last_use.update(dict.fromkeys(both, pair))
    kept: dict[_Text, NDArray[np.float32]] = {}
    parts = []
    for start in range(0, len(left), _PAIRS_AT_ONCE):
        stop = min(start + _PAIRS_AT_ONCE, len(left))
        texts = list(dict.fromkeys([*firsts[start:stop], *seconds[start:stop]]))
        new = [text for text in texts if text not in kept]
        found = kept | _encoded(encoder, new, done)
        vectors = np.stack([found[text] for text in texts])
        row = {text: number for number, text in enumerate(texts)}
        parts.append(
            pair_grams(
                vectors[[row[text] for text in firsts[start:stop]]],
                vectors[[row[text] for text in seconds[start:stop]]],
            )
        )
        kept = {text: vector for text, vector in kept.items() if last_use[text] >= stop}
        room = _KEPT_BYTES // vectors[0].nbytes - len(kept)
        later = [text for text in new if last_use[text] >= stop]
        # A copy, so that the rest of the block is released.
        kept.update({text: found[text].copy() for text in later[: max(room, 0)]})
    return join_grams(parts)


def _encoded(
    encoder: LayerEncoder, texts: Sequence[_Text], done: Callable[[int], None]
) -> dict[_Text, NDArray[np.float32]]:
    found: dict[_Text, NDArray[np.float32]] = {}
    for query in (False, True):
        chosen = [text for text in texts if text[1] == query]
        if chosen:
            plain = [text for text, _ in chosen]
            vectors = encoder.layer_vectors(plain, lambda texts, _: done(texts), query=query)
            found.update(zip(chosen, vectors, strict=True))
    return found
