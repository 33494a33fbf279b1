"""Cosines of two texts for any set of layers, from the scalar products between their layers.

Let a_l and b_l be the vectors of two texts in layer l, and D a set of layers with indicator z.
The cosine of their means over D is z'G_ab z / sqrt(z'G_aa z · z'G_bb z), where G_ab holds the
products a_i · b_j (Hosseini et al. 2023, Eq. 1, without computing any of its vectors). A quadratic
form of an indicator is a product of the matrix's upper triangle (both halves added) with the
indicator of pairs of layers, so all sets and all pairs of texts are three matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.layers.subsets import pair_indicators

_AT_ONCE = 64
_THREADS = 2
# A mean over layers whose squared length is below this part of the longest layer's is rounding.
_NOTHING = 1e-12
_PAIRS_AT_ONCE = 1024
_KEPT_BYTES = 256 * 2**20

EncodeLayers = Callable[[Sequence[str], bool], NDArray[np.float32]]
"""Distinct texts, and whether they are queries, to (texts, hidden states, width) pooled vectors."""
# A text, and whether it is a query.
_Text = tuple[str, bool]


@dataclass(frozen=True, slots=True, eq=False)
class PairGrams:
    """Everything that the cosines of pairs of texts depend on under any set of layers.

    Attributes:
        hidden_states: n.
        triangles: (3, n(n+1)/2, pairs) float64: G_ab, G_aa and G_bb of each pair, in the order of
            `pair_indicators`, each text's longest layer scaled to length 1.
    """

    hidden_states: int
    triangles: NDArray[np.float64]

    @property
    def pairs(self) -> int:
        """Number of pairs of texts."""
        return int(self.triangles.shape[2])

    def take(self, pairs: NDArray[np.int64]) -> PairGrams:
        """The pairs at these positions, in this order."""
        return PairGrams(self.hidden_states, np.ascontiguousarray(self.triangles[:, :, pairs]))

    def cosines(self, masks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cosines under each set of layers.

        Args:
            masks: (subsets,) bit masks of the sets.

        Returns:
            (subsets, pairs) float64 in [-1, 1] up to rounding; 0 where a mean over the layers is
            zero.
        """
        indicators = pair_indicators(masks, self.hidden_states)
        return to_cosines(*(indicators @ self.triangles))


def to_cosines(
    products: NDArray[np.float64], left: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Cosines from z'G_ab z, z'G_aa z and z'G_bb z, which are overwritten; 0 with a zero vector."""
    nothing = None
    if left.size and min(left.min(), right.min()) < _NOTHING:
        nothing = np.minimum(left, right) < _NOTHING
        left[nothing] = right[nothing] = 1.0
    np.multiply(left, right, out=left)
    np.sqrt(left, out=left)
    np.divide(products, left, out=products)
    if nothing is not None:
        products[nothing] = 0.0
    return products


def pair_grams(left: NDArray[np.floating], right: NDArray[np.floating]) -> PairGrams:
    """The scalar products between the layers of pairs of texts, in float64.

    Args:
        left: (pairs, n, d) the pooled vectors of each pair's first text.
        right: (pairs, n, d) of its second.
    """
    pairs, hidden_states, _ = left.shape
    first, second = np.triu_indices(hidden_states)
    triangles = np.empty((3, len(first), pairs))

    def fill(start: int) -> None:
        part = slice(start, start + _AT_ONCE)
        both = np.concatenate([left[part], right[part]], axis=1, dtype=np.float64)
        grams = both @ both.transpose(0, 2, 1)
        n = hidden_states
        a, b = slice(0, n), slice(n, 2 * n)
        longest = [_longest(grams[:, side, side]) for side in (a, b)]
        for kind, (row, column) in enumerate(((0, 1), (0, 0), (1, 1))):
            gram = grams[:, (a, b)[row], (a, b)[column]]
            scale = np.sqrt(longest[row] * longest[column])
            summed = (gram + gram.transpose(0, 2, 1))[:, first, second] / scale[:, None]
            triangles[kind, :, part] = summed.T

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(fill, range(0, pairs, _AT_ONCE)))
    triangles[:, first == second] /= 2
    return PairGrams(hidden_states, triangles)


def _longest(grams: NDArray[np.float64]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = np.diagonal(grams, axis1=1, axis2=2).max(axis=1)
    return np.where(squares > 0, squares, 1.0)


def join_grams(parts: list[PairGrams]) -> PairGrams:
    """The pairs of all parts (at least one, of the same n), in their order."""
    if len(parts) == 1:
        return parts[0]
    triangles = np.concatenate([part.triangles for part in parts], axis=2)
    return PairGrams(parts[0].hidden_states, triangles)


def encode_pairs(
    encode: EncodeLayers,
    left: Sequence[str],
    right: Sequence[str],
    *,
    queries: bool = False,
) -> PairGrams:
    """The products between the layers of pairs of texts, encoded a block of pairs at a time.

    A text is encoded once: the vectors of a text that is in a later block too are kept until then,
    up to 256 MB of them.

    Args:
        encode: gives the vectors of the layers.
        left: each pair's first text; at least one.
        right: its second text.
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
        found = kept | encode_texts(encode, new)
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


def encode_texts(
    encode: EncodeLayers, texts: Sequence[tuple[str, bool]]
) -> dict[tuple[str, bool], NDArray[np.float32]]:
    """(hidden states, width) of each distinct text, given with whether it is a query."""
    found: dict[_Text, NDArray[np.float32]] = {}
    for query in (False, True):
        chosen = [text for text in texts if text[1] == query]
        if chosen:
            found.update(zip(chosen, encode([text for text, _ in chosen], query), strict=True))
    return found
