"""Searching a FAISS structure: candidates from FAISS, exact scores from the kept vectors.

What comes back keeps the contract of `search_flat`, whatever the type of the structure: a filter
acts before the best are chosen, and wherever the structure may not have found enough, the exact
scan answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.files.checksums import UNGUARDED, BlockGuard
from indexes.filters.allowed import Allowed
from indexes.vectors.flat import at_least, exact_scores, search_flat
from indexes.vectors.library import faiss_reason, load_faiss
from indexes.vectors.search.list_search import ListSearch
from indexes.vectors.search.lists import ListGuard
from indexes.vectors.search.neighbor_search import NeighborSearch
from indexes.vectors.unwrapped import Unwrapped

Found = TypeVar("Found")


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
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """About the `k` vectors of largest inner product for each query.

        Args:
            vectors: (n, d) float32, C-contiguous: the vectors that the structure was built from.
            queries: (q, d) float32.
            k: at least 1; may exceed n.
            allowed: some of them, or None for all; only these can be returned.
            effort: at least 1, see `efforts`; None for `default_effort`.
            guard: checks what is read of the vectors.

        Returns:
            For each query (positions int64, scores float32), exactly min(k, allowed) entries
            (fewer only if vectors or queries hold NaN). Each score is the inner product with
            the kept vector. Higher scores first; among equal scores of candidates the lower
            position first.

        Raises:
            DamagedIndexError: what is read was altered, or the structure holds a
                position that does not exist.
            MissingExtraError: FAISS is not installed.
            ValueError: shapes that do not fit, or an effort below 1.
        """
        queries = self._checked(vectors, queries, effort)
        if not len(queries):
            return []
        candidates = self._try(
            lambda: self._structure.candidates(queries, k, allowed, effort or self.default_effort)
        )
        if candidates is None:
            return search_flat(vectors, queries, k, allowed, guard)
        for positions in candidates:
            guard.check_rows(positions)
        found = [
            _rescored(vectors, query, positions, k)
            for query, positions in zip(queries, candidates, strict=True)
        ]
        # They may be all allowed ones, which only the exact scan can confirm.
        short = [i for i, (ids, _) in enumerate(found) if len(ids) < min(k, len(vectors))]
        if short:
            exact = search_flat(vectors, queries[short], k, allowed, guard)
            for i, answer in zip(short, exact, strict=True):
                found[i] = answer
        return found

    def at_least(
        self,
        vectors: NDArray[np.float32],
        query: NDArray[np.float32],
        floor: float,
        k: int,
        allowed: Allowed | None = None,
        effort: int | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> NDArray[np.int64]:
        """The positions that a search for `k` meets and that score `floor` or more, about.

        Vectors equal to one that `search` finds are all among them.

        Args:
            vectors: as of `search`.
            query: (d,) float32.
            floor: the score.
            k: at least 1.
            allowed: as of `search`.
            effort: as of `search`.
            guard: as of `search`.

        Returns:
            (m,) int64, ascending; some may score less.

        Raises:
            What `search` raises.
        """
        queries = self._checked(vectors, query[None], effort)
        structure = self._structure
        if isinstance(structure, ListSearch):
            found = self._try(
                lambda: structure.at_least(
                    vectors, queries[0], floor, k, allowed, effort or self.default_effort
                )
            )
            if found is not None:
                return found
        return at_least(vectors, query, floor, allowed, guard)

    def _checked(
        self, vectors: NDArray[np.float32], queries: NDArray[np.float32], effort: int | None
    ) -> NDArray[np.float32]:
        n, d = self._index.n, self._index.d
        if vectors.shape != (n, d):
            raise ValueError(f"expected vectors of shape {(n, d)}, found {vectors.shape}")
        if queries.ndim != 2 or queries.shape[1] != d:
            raise ValueError(f"expected queries of shape (q, {d}), found {queries.shape}")
        if effort is not None and effort < 1:
            raise ValueError(f"expected an effort of at least 1, found {effort}")
        return np.ascontiguousarray(queries, np.float32)

    def _try(self, search: Callable[[], Found]) -> Found | None:
        """What a search finds; None, with a warning, if the type cannot do it."""
        try:
            return search()
        except RuntimeError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._path}: FAISS cannot search this type of structure "
                    f"({faiss_reason(error)}); all vectors are scanned instead, which is slower",
                    stacklevel=3,
                )
            return None


def _rescored(
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    positions: NDArray[np.int64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    scores = exact_scores(vectors, positions, query).astype(np.float32)
    # The exact scan returns nothing whose score is not a number.
    positions, scores = positions[~np.isnan(scores)], scores[~np.isnan(scores)]
    best = np.argsort(-scores, kind="stable")[:k]
    return positions[best], scores[best]
