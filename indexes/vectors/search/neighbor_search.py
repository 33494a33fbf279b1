"""Candidates from a graph, or from any other structure without inverted lists.

It returns more neighbors than wanted, and the filter chooses among them. The best allowed ones of
the nearest C are the best allowed ones of all, if there are enough; if there are not, the exact
scan answers. A filter inside the walk through a graph would give no such sign, and lose neighbors
where the allowed vectors lie far from the query.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from indexes.filters.allowed import Allowed
from indexes.vectors.library import load_faiss
from indexes.vectors.unwrapped import WHOLE, Unwrapped

# How many vectors are scanned in the time that one candidate takes: in a graph, to compare the
# links of a node with the query; elsewhere, to fetch and re-score it.
_SCAN_PER_STEP, _SCAN_PER_CANDIDATE = 64, 16
_GRAPH_EFFORTS, _GRAPH_DEFAULT = (16, 32, 64, 128, 256, 512, 1024), 128
_OTHER_EFFORTS, _OTHER_DEFAULT = (1, 2, 4, 8, 16), 4


class NeighborSearch:
    """Finds candidates by their number.

    Attributes:
        efforts: lengths of the list of candidates (efSearch) for a graph; for any other type,
            multiples of the candidates re-scored.
        default_effort: the effort where none is given.
    """

    def __init__(self, index: Unwrapped) -> None:
        self._index = index
        self._graph = isinstance(index.core, load_faiss().IndexHNSW)
        self.efforts: tuple[int, ...] = _GRAPH_EFFORTS if self._graph else _OTHER_EFFORTS
        self.default_effort = _GRAPH_DEFAULT if self._graph else _OTHER_DEFAULT

    def candidates(
        self, queries: NDArray[np.float32], k: int, allowed: Allowed | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        """As `ListSearch.candidates`; none for a query whose best may not be among them."""
        n = self._index.n
        permitted = n if allowed is None else allowed.count
        if permitted == n:
            allowed = None
        if not permitted:
            return None
        oversampling = self._index.oversampling
        wanted = oversampling * (k if oversampling == WHOLE else max(k, 10))
        if not self._graph:
            # The effort was measured without a filter.
            wanted *= effort if allowed is None else max(effort, self.default_effort)
        asked = wanted if allowed is None else math.ceil(1.5 * wanted * n / permitted) + 32
        if permitted <= asked * (_SCAN_PER_STEP if self._graph else _SCAN_PER_CANDIDATE):
            return None
        parameters = None
        if self._graph:
            parameters = load_faiss().SearchParametersHNSW(efSearch=max(effort, asked))
        turned = self._index.transformed(queries)
        rows = self._index.core.search(turned, asked, params=parameters)[1]
        found = [self._index.positions(row) for row in rows]
        if allowed is None:
            return found
        chosen = [positions[allowed.at(positions)] for positions in found]
        # If they may not be the best, return none, so that the exact scan answers.
        return [positions if len(positions) >= wanted else positions[:0] for positions in chosen]
