"""BM25 over segments, scored at query time from statistics of all live passages.

Nothing in a segment depends on the others, so adding and deleting passages changes the statistics
exactly, and the scores do not depend on how passages are spread over segments.

The formulas are in `indexes.bm25_variants`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.bm25_query import Addends, BM25Query, Matches, counts_of
from indexes.bm25_variants import BM25Settings, idf, weights
from indexes.errors import DamagedIndexError
from indexes.postings import Postings

__all__ = [
    "BM25",
    "BM25Query",
    "BM25Settings",
    "CorpusStatistics",
    "Matches",
    "SearchableSegment",
]


@dataclass(frozen=True, slots=True)
class SearchableSegment:
    """The postings of one segment and which of its passages are not deleted.

    Attributes:
        postings: n passages.
        alive: (n,) bool, or None where nothing was deleted.

    Raises:
        DamagedIndexError: `alive` is for another number of passages.
    """

    postings: Postings
    alive: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        alive, n = self.alive, len(self.postings)
        if alive is not None and (alive.shape != (n,) or alive.dtype != np.bool_):
            raise DamagedIndexError(
                f"alive: expected {n} booleans, one for each passage of the postings, found "
                f"{alive.dtype} {alive.shape}; restore the index from a backup or index again"
            )


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """What BM25 needs of the corpus as a whole: live passages and the sum of their lengths."""

    passages: int
    total_length: int

    @classmethod
    def of(cls, segments: Iterable[SearchableSegment]) -> CorpusStatistics:
        """Count live passages; reads lengths only of segments with deletions.

        Raises:
            DamagedIndexError: the lengths of deleted passages exceed the stored total.
        """
        passages = total_length = 0
        for segment in segments:
            lengths = segment.postings.lengths
            passages += len(lengths)
            total_length += segment.postings.total_length
            if segment.alive is not None:
                dead = lengths[~segment.alive]
                passages -= len(dead)
                total_length -= int(dead.sum(dtype=np.int64))
        if total_length < 0:
            raise DamagedIndexError(
                f"passage lengths: expected at most the stored total, found {-total_length} more; "
                "restore the index from a backup or index again"
            )
        return cls(passages, total_length)

    @property
    def mean_length(self) -> float:
        """Tokens per live passage; 0 where there are none."""
        return self.total_length / self.passages if self.passages else 0.0


class BM25:
    """Scores and searches a fixed set of segments.

    Args:
        segments: in the order that breaks ties.
        settings: defaults to Lucene's variant and parameters.
        statistics: those of `segments` unless given, where these are part of a larger corpus.

    Every method raises DamagedIndexError where the postings that it reads are impossible.
    """

    def __init__(
        self,
        segments: Sequence[SearchableSegment],
        settings: BM25Settings | None = None,
        statistics: CorpusStatistics | None = None,
    ) -> None:
        self.segments = tuple(segments)
        self.settings = settings or BM25Settings()
        self.statistics = statistics or CorpusStatistics.of(self.segments)
        self._okapi_floor: float | None = None

    def query(self, query_terms: Iterable[str]) -> BM25Query:
        """Read the postings of a query's terms, once for all that is then asked about them.

        Args:
            query_terms: from the analyser that made the postings; repetitions count.
        """
        sizes = [len(segment.postings) for segment in self.segments]
        return BM25Query(self._addends(query_terms), sizes)

    def scores(
        self, query_terms: Iterable[str]
    ) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
        """The score of every passage, and which match: see `BM25Query.scores`."""
        return self.query(query_terms).scores()

    def search(
        self,
        query_terms: Iterable[str],
        k: int,
        allowed: Sequence[NDArray[np.bool_] | None] | None = None,
    ) -> Matches:
        """The `k` best passages: see `BM25Query.search`."""
        return self.query(query_terms).search(k, allowed)

    def _addends(self, query_terms: Iterable[str]) -> list[Addends]:
        """For each segment, what each distinct query term adds to the live passages that hold it.

        Terms keep their order in the query, so that sums round alike in every segment layout.
        """
        repetitions = Counter(query_terms)
        found = [_postings(segment, repetitions) for segment in self.segments]
        df = sum((counts for _, _, counts in found), np.zeros(len(repetitions), np.int64))
        factors = np.array(
            [
                times * self._idf(held) if held else 0.0
                for times, held in zip(repetitions.values(), df.tolist(), strict=True)
            ]
        )
        addends = []
        for segment, (positions, frequencies, counts) in zip(self.segments, found, strict=True):
            values = np.repeat(factors, counts)
            if len(positions):
                lengths = segment.postings.lengths_of(positions, frequencies)
                relative = lengths / self.statistics.mean_length
                values *= weights(self.settings, frequencies, relative)
            addends.append(Addends(positions, values, counts))
        return addends

    def _idf(self, df: int) -> float:
        value = idf(self.settings.variant, df, self.statistics.passages)
        return self._floor() if value < 0 else value

    def _floor(self) -> float:
        """Okapi's replacement for negative idf; reads the whole vocabulary, once."""
        if self._okapi_floor is None:
            df = _vocabulary_frequencies(self.segments)
            mean = np.log((self.statistics.passages - df + 0.5) / (df + 0.5)).mean()
            self._okapi_floor = self.settings.epsilon * float(mean)
        return self._okapi_floor


def _postings(
    segment: SearchableSegment, terms: Iterable[str]
) -> tuple[NDArray[np.uint32], NDArray[np.unsignedinteger], NDArray[np.int64]]:
    """The live positions of each term, one term's after the other's; frequencies; (t,) counts."""
    found = [segment.postings.lookup(term) for term in terms]
    counts = np.array([len(positions) for positions, _ in found], np.int64)
    if not counts.any():
        return np.empty(0, np.uint32), np.empty(0, np.uint8), counts
    positions = np.concatenate([positions for positions, _ in found])
    frequencies = np.concatenate([frequencies for _, frequencies in found])
    if segment.alive is not None:
        live = segment.alive[positions]
        counts = counts_of(live, counts)
        positions, frequencies = positions[live], frequencies[live]
    return positions, frequencies, counts


def _vocabulary_frequencies(segments: Sequence[SearchableSegment]) -> NDArray[np.int64]:
    """The document frequency over all segments of each term that a live passage holds."""
    if len(segments) == 1:
        totals = segments[0].postings.document_frequencies(segments[0].alive)
    else:
        counts: Counter[bytes] = Counter()
        for segment in segments:
            frequencies = segment.postings.document_frequencies(segment.alive).tolist()
            for term, df in zip(segment.postings.vocabulary(), frequencies, strict=True):
                counts[term] += df
        totals = np.fromiter(counts.values(), np.int64, len(counts))
    return totals[totals > 0]
