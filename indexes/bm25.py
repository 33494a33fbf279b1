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

from indexes.allowed import Allowed
from indexes.bm25_addends import Addends, counts_of
from indexes.bm25_query import BM25Query, Matches
from indexes.bm25_values import posting_values
from indexes.bm25_variants import BM25Settings, idf
from indexes.errors import DamagedIndexError
from indexes.postings import Postings, Read

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
        allowed: Sequence[Allowed | None] | None = None,
    ) -> Matches:
        """The `k` best passages: see `BM25Query.search`."""
        return self.query(query_terms).search(k, allowed)

    def _addends(self, query_terms: Iterable[str]) -> list[Addends]:
        """For each segment, what each distinct query term adds to the live passages that hold it.

        Terms keep their order in the query, so that sums round alike in every segment layout.
        """
        repetitions = Counter(query_terms)
        found = [_postings(segment, repetitions) for segment in self.segments]
        df = sum((read.counts for read in found), np.zeros(len(repetitions), np.int64))
        factors = np.array(
            [
                times * self._idf(held) if held else 0.0
                for times, held in zip(repetitions.values(), df.tolist(), strict=True)
            ]
        )
        addends = []
        for segment, read in zip(self.segments, found, strict=True):
            values = posting_values(
                self.settings, segment.postings, read, factors, self.statistics.mean_length
            )
            addends.append(Addends(read.positions, values, read.counts))
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


def _postings(segment: SearchableSegment, terms: Iterable[str]) -> Read:
    """Those of live passages."""
    read = segment.postings.read(terms)
    if segment.alive is None:
        return read
    segment.postings.check(read)
    live = segment.alive[read.positions]
    return Read(read.positions[live], read.frequencies[live], counts_of(live, read.counts))


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
