"""Searching a FAISS structure: candidates from FAISS, exact scores from the kept vectors.

What comes back keeps the contract of `search_flat`, whatever the type of the structure: a filter
acts before the best are chosen, and wherever the structure may not have found enough, the exact
scan answers.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.checksums import UNGUARDED, BlockGuard
from indexes.filters.allowed import Allowed
from indexes.vectors.flat import Nearest, rescored, search_flat
from indexes.vectors.library import faiss_reason, load_faiss
from indexes.vectors.search.list_search import ListSearch
from indexes.vectors.search.lists import ListGuard
from indexes.vectors.search.neighbor_search import NeighborSearch
from indexes.vectors.unwrapped import Unwrapped


class Searcher:
    """A FAISS index over the vectors of one segment, ready to be searched by several threads.

    Attributes:
        efforts: the search efforts worth trying, ascending: numbers of lists read (nprobe) for
            inverted lists, lengths of the list of candidates (efSearch) for a graph, multiples of
            the candidates re-scored for any other type.
        default_effort: the effort where none is given.

    Args:
        index: a trained FAISS index of n vectors of d dimensions, by inner product.
        path: the file that it was read from, for errors.
        list_guard: checks inverted lists before they are read; None for other types, and where
            nothing is left to check.
    """

    def __init__(self, index: Any, path: Path, list_guard: ListGuard | None = None) -> None:
        self._path = path
        self._index = Unwrapped(index, path)
        self._warned = False
        self._structure: ListSearch | NeighborSearch
        if isinstance(self._index.core, load_faiss().IndexIVF):
            self._structure = ListSearch(self._index, list_guard)
        else:
            self._structure = NeighborSearch(self._index)
        self.efforts = self._structure.efforts
        self.default_effort = self._structure.default_effort

    def search(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        k: int,
        allowed: Allowed | None = None,
        effort: int | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> list[Nearest]:
        """About the `k` vectors of largest inner product for each query.

        Args:
            vectors: (n, d) float32, C-contiguous: the vectors that the structure was built from.
            queries: (q, d) float32.
            k: at least 1; may exceed n.
            allowed: some of them, or None for all; only these can be returned.
            effort: at least 1, see `efforts`; None for `default_effort`.
            guard: checks what is read of the vectors.

        Returns:
            For each query what `indexes.vectors.flat.nearest_of` says of the candidates, exactly
            min(k, allowed) entries (fewer only if vectors or queries hold NaN).

        Raises:
            DamagedIndexError: what is read was altered, or the structure holds a
                position that does not exist.
            MissingExtraError: FAISS is not installed.
            ValueError: shapes that do not fit, or an effort below 1.
        """
        n, d = self._index.n, self._index.d
        if vectors.shape != (n, d):
            raise ValueError(f"expected vectors of shape {(n, d)}, found {vectors.shape}")
        if queries.ndim != 2 or queries.shape[1] != d:
            raise ValueError(f"expected queries of shape (q, {d}), found {queries.shape}")
        if effort is not None and effort < 1:
            raise ValueError(f"expected an effort of at least 1, found {effort}")
        queries = np.ascontiguousarray(queries, np.float32)
        if not len(queries):
            return []
        candidates = self._candidates(queries, k, allowed, effort or self.default_effort)
        if candidates is None:
            return search_flat(vectors, queries, k, allowed, guard)
        for positions in candidates:
            guard.check_rows(positions)
        found = [
            rescored(vectors, positions, query, k)
            for query, positions in zip(queries, candidates, strict=True)
        ]
        # They may be all allowed ones, which only the exact scan can confirm.
        short = [i for i, (ids, _) in enumerate(found) if len(ids) < min(k, len(vectors))]
        if short:
            exact = search_flat(vectors, queries[short], k, allowed, guard)
            for i, answer in zip(short, exact, strict=True):
                found[i] = answer
        return found

    def _candidates(
        self, queries: NDArray[np.float32], k: int, allowed: Allowed | None, effort: int
    ) -> list[NDArray[np.int64]] | None:
        """As those of the structure; None too, with a warning, if the type cannot do it."""
        try:
            return self._structure.candidates(queries, k, allowed, effort)
        except RuntimeError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._path}: FAISS cannot search this type of structure "
                    f"({faiss_reason(error)}); all vectors are scanned instead, which is slower",
                    stacklevel=3,
                )
            return None
