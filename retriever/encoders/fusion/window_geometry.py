"""The geometry of each hidden state of a word piece among those of neighboring layers.

Everything is a function of the cosines between the layers of one piece. They are computed in
float64: where layers are nearly parallel, what SBERT-WK measures are small differences of cosines,
and in float32 those are rounding noise. After one batched matrix product, the last axis of every
array is the pieces, so each step runs over all of them at once.

Edges: a cosine with a zero vector is 0. A vector whose distance from the span of others is below
1e-6 of its length is in that span: it adds nothing new, and as a neighbor it is left out of
the basis. A mean cosine, or a projection of a unit vector, below 1e-6 counts as 1e-6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Squared; float32 states that are equal up to rounding are about 1e-14 apart.
SPANNED = 1e-12
FLOOR = 1e-6
# Cosines of states that differ by float32 rounding alone deviate by less than 1e-14.
NO_VARIANCE = 1e-28

# What one step works on stays in a core's caches; an accelerator wants longer steps.
_STATES_BYTES = 4 * 2**20
_WINDOWS_BYTES = 2**20
_ACCELERATOR_FACTOR = 64


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The window of each of `count` layers.

    Attributes:
        count: how many layers are fused, at least 2.
        reach: how many layers on each side a window holds where they exist, at least 1.
        cut_left: whether the first `reach` layers have no left neighbors even where they exist.
        projected: whether alignment is with the projection on the window's span, and its weight
            divided by the size plus one, as the published code has it.
    """

    count: int
    reach: int
    cut_left: bool
    projected: bool

    def groups(self) -> list[tuple[range, list[int]]]:
        """Runs of layers that have the same window, as offsets; some may not exist."""
        reach = min(self.reach, self.count - 1)
        right = list(range(1, reach + 1))
        both = [-offset for offset in reversed(right)] + right
        if not self.cut_left:
            return [(range(self.count), both)]
        return [(range(reach), right), (range(reach, self.count), both)]

    def sizes(self) -> list[int]:
        """How many neighbors each layer has."""
        return [
            sum(0 <= layer + offset < self.count for offset in offsets)
            for layers, offsets in self.groups()
            for layer in layers
        ]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What SBERT-WK measures of each word piece.

    Attributes:
        beta: (layers, pieces) float64, how well a layer's vector aligns with its window; the
            alignment weight is proportional to its inverse. Positive; infinite for zero vectors.
        nu: (layers, pieces) float64 in [0, 1], the part of its length that is outside the
            window's span; 0 for zero vectors.
        present: (layers, pieces) float64, 0 for zero vectors, else 1.
        variance: (pieces,) float64, population variance of the adjacent-layer cosines.
    """

    beta: torch.Tensor
    nu: torch.Tensor
    present: torch.Tensor
    variance: torch.Tensor


def measure(
    states: Sequence[torch.Tensor], places: torch.Tensor | None, neighbors: Neighbors
) -> Geometry:
    """Measure some pieces.

    Args:
        states: each (rows, d) of any floating type; the last `neighbors.count` of them are fused,
            all of them enter the variance.
        places: (pieces,) int64, the rows that are measured; None for all, in order.
        neighbors: the windows.
    """
    import torch

    gram = _gram(states, places)
    widest = max(len(offsets) for _, offsets in neighbors.groups()) + 1
    triangle = widest * (widest + 1) // 2
    chunk = _chunk(_WINDOWS_BYTES, neighbors.count * triangle, gram.device)
    parts = [
        _measure(gram[first : first + chunk].permute(1, 2, 0).contiguous(), neighbors)
        for first in range(0, max(1, len(gram)), chunk)
    ]
    beta, nu, present, variance = (torch.cat(column, dim=-1) for column in zip(*parts, strict=True))
    return Geometry(beta, nu, present, variance)


def _chunk(limit: int, numbers: int, device: torch.device) -> int:
    """The number of pieces per step, each of which takes `numbers` float64 numbers."""
    factor = 1 if device.type == "cpu" else _ACCELERATOR_FACTOR
    return max(1, factor * limit // (8 * numbers))


def _gram(states: Sequence[torch.Tensor], places: torch.Tensor | None) -> torch.Tensor:
    """The inner products between the layers of each piece, (pieces, layers, layers) float64."""
    import torch

    count, width, device = len(states), states[0].shape[-1], states[0].device
    pieces = len(states[0]) if places is None else len(places)
    chunk = max(1, min(pieces, _chunk(_STATES_BYTES, count * width, device)))
    buffer = torch.empty((chunk, count, width), dtype=torch.float64, device=device)
    gram = torch.empty((pieces, count, count), dtype=torch.float64, device=device)
    for first in range(0, pieces, chunk):
        last = min(first + chunk, pieces)
        part = buffer[: last - first]
        for layer, state in enumerate(states):
            if places is None:
                part[:, layer] = state[first:last]
            else:
                part[:, layer] = state.index_select(0, places[first:last])
        torch.bmm(part, part.transpose(1, 2), out=gram[first:last])
    return gram


def _measure(
    gram: torch.Tensor, neighbors: Neighbors
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The fields of `Geometry`, from inner products with the pieces last."""
    import torch

    squares = _diagonal(gram, 0)
    inverse = torch.where(squares > 0, squares.rsqrt(), 0.0)
    adjacent = _diagonal(gram, 1) * inverse[1:] * inverse[:-1]
    variance = (adjacent - adjacent.mean(dim=0)).square().mean(dim=0)
    variance = torch.where(variance > NO_VARIANCE, variance, 0.0)

    skip = len(gram) - neighbors.count
    groups = neighbors.groups()
    band = _Band(gram[skip:, skip:], inverse[skip:], groups)
    present = (inverse[skip:] > 0).double()
    parts = [band.compare(layers, offsets) for layers, offsets in groups]
    total, outside = (torch.cat(column) for column in zip(*parts, strict=True))
    sizes = torch.tensor(neighbors.sizes(), dtype=torch.float64, device=gram.device)[:, None]
    beta = total / sizes
    if neighbors.projected:
        inside = (present - outside).clamp(min=0).sqrt()
        beta = (beta / inside.clamp(min=FLOOR)).clamp(min=FLOOR) * (2 * (sizes + 1))
    else:
        beta = beta.clamp(min=FLOOR)
    beta = torch.where(present > 0, beta, torch.inf)
    nu = torch.where(outside > SPANNED, outside.sqrt(), 0.0)
    return beta, nu, present, variance


def _diagonal(gram: torch.Tensor, offset: int) -> torch.Tensor:
    """A diagonal over the layers, (layers, pieces)."""
    diagonal: torch.Tensor = gram.diagonal(offset, 0, 1).T
    return diagonal


class _Band:
    """Cosines between layers that share a window; 0 if a layer does not exist.

    The cosines of all layers with their neighbors at some offset lie beside each other, so that
    a block of any two places of the window, over all layers, is a view.
    """

    def __init__(
        self,
        gram: torch.Tensor,
        inverse: torch.Tensor,
        groups: Sequence[tuple[range, Sequence[int]]],
    ) -> None:
        count = len(gram)
        self._margin = max(max(offsets) for _, offsets in groups)
        farthest = max(max(offsets) - min(0, *offsets) for _, offsets in groups)
        self._cosines = gram.new_zeros((farthest + 1, count + 2 * self._margin, gram.shape[-1]))
        inner = self._cosines[:, self._margin : self._margin + count]
        inner[0] = inverse > 0
        for offset in range(1, min(farthest, count - 1) + 1):
            inner[offset, : count - offset] = (
                _diagonal(gram, offset) * inverse[offset:] * inverse[: count - offset]
            )

    def _between(self, layers: range, one: int, other: int) -> torch.Tensor:
        """The cosines of the neighbors at two offsets, for a run of layers."""
        first = self._margin + min(one, other)
        return self._cosines[abs(one - other), first + layers.start : first + layers.stop]

    def compare(self, layers: range, offsets: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Each layer's unit vector against its window.

        The rows of the Cholesky factor of the cosines of the window and the vector, unrolled; a
        neighbor in the span of those before it gets a column of zeros.

        Returns:
            The sum of the cosines with the window, and the squared length of what is outside the
            window's span; both (layers, pieces).
        """
        import torch

        factor: list[list[torch.Tensor]] = []
        inverse: list[torch.Tensor] = []
        pivot = self._between(layers, 0, 0)
        for place in (*offsets, 0):
            row: list[torch.Tensor] = []
            pivot = self._between(layers, place, place)
            for column, done in enumerate(factor):
                value = self._between(layers, offsets[column], place)
                for one, other in zip(row, done, strict=True):
                    value = torch.addcmul(value, one, other, value=-1)
                value = value * inverse[column]
                pivot = torch.addcmul(pivot, value, value, value=-1)
                row.append(value)
            factor.append(row)
            inverse.append(torch.where(pivot > SPANNED, pivot.rsqrt(), 0.0))
        total = torch.stack([self._between(layers, offset, 0) for offset in offsets]).sum(dim=0)
        return total, pivot
