"""One query whose postings were read: its scores, its best passages, its score of any passage.

BM25 over segments, scored at query time from statistics of all live passages.

Nothing in a segment depends on the others, so adding and deleting passages changes the statistics
exactly, and the scores do not depend on how passages are spread over segments.

The formulas are in `indexes.bm25.formulas`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.contributions import Addends, accumulate, counts_of, permitted
from indexes.bm25.formulas import BM25Settings, idf, posting_values
from indexes.bm25.postings import Postings, Read
from indexes.bm25.top_k import best_passages, top_places
from indexes.errors import ConfigError, DamagedIndexError
from indexes.filters.allowed import Allowed


class Matches(NamedTuple):
    """Passages found: three arrays of one length, scores descending, ties by (segment, position).

    Attributes:
        segments: int64 index into the segments searched.
        positions: int64 position within that segment.
        scores: float64; a match can score zero or less (robertson, atire, okapi).
    """

    segments: NDArray[np.int64]
    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


class BM25Query:
    """Made by `BM25.query`; all methods give a passage the same score, bit by bit.

    Args:
        addends: one entry for each segment.
        sizes: the number of passages of each segment, dead ones included.
    """

    def __init__(self, addends: Sequence[Addends], sizes: Sequence[int]) -> None:
        self._addends = addends
        self._sizes = sizes

    def scores(self) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
        """The score of every passage, and which passages match.

        Returns:
            Two lists with an (n,) array for each segment: float64 scores, and True where the
            passage is alive and holds a query term. Those that do not match score 0.
        """
        pairs = [accumulate(*pair) for pair in zip(self._addends, self._sizes, strict=True)]
        return [scores for scores, _ in pairs], [matches for _, matches in pairs]

    def at(
        self, segment: int, positions: NDArray[np.integer]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The scores of chosen passages of one segment, and which of them match.

        Args:
            segment: index into the segments.
            positions: (m,) positions below n, in any order.

        Returns:
            (m,) float64 scores, 0 for those that do not match, and (m,) bool matches.
        """
        scores, matches = np.zeros(len(positions)), np.zeros(len(positions), np.bool_)
        wanted = positions.astype(np.uint32)
        addends = self._addends[segment]
        ends = np.cumsum(addends.counts).tolist()
        for start, stop in zip([0, *ends], ends, strict=False):
            if start == stop:
                continue
            held, values = addends.positions[start:stop], addends.values[start:stop]
            places = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
            holds = held[places] == wanted
            scores[holds] += values[places[holds]]
            matches |= holds
        return scores, matches

    def search(self, k: int, allowed: Sequence[Allowed | None] | None = None) -> Matches:
        """The `k` best live passages that hold a query term, exactly; fewer where fewer match.

        Args:
            k: 1 or more.
            allowed: for each segment some passages, or None for all; only these are
                returned. Statistics, and so scores, stay those of all live passages.

        Raises:
            ConfigError: k is below 1, or what is allowed does not fit the segments.
        """
        if k < 1:
            raise ConfigError(f"k: expected 1 or more, found {k}")
        chosen = self._fitting(allowed)
        best = Matches(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
        for index, addends in enumerate(self._addends):
            positions, scores = best_passages(
                permitted(addends, chosen[index]), self._sizes[index], k
            )
            if len(best.scores) == k:
                # An equal score loses to the earlier segment, so only better ones can enter.
                better = scores > best.scores[-1]
                positions, scores = positions[better], scores[better]
            found = Matches(np.full(len(scores), index), positions, scores)
            if not len(best.scores):
                best = found
            elif len(scores):
                best = _better(best, found, k)
        return best

    def _fitting(self, allowed: Sequence[Allowed | None] | None) -> list[Allowed | None]:
        if allowed is None:
            return [None] * len(self._sizes)
        found = [None if some is None else len(some) for some in allowed]
        if len(found) != len(self._sizes) or any(
            size not in (None, wanted) for size, wanted in zip(found, self._sizes, strict=True)
        ):
            raise ConfigError(
                f"allowed: expected some of {list(self._sizes)} passages, found of {found}"
            )
        return list(allowed)


def _better(first: Matches, second: Matches, k: int) -> Matches:
    """The `k` best of both, those of `first` before equal ones of `second`."""
    segments, positions, scores = (np.concatenate(both) for both in zip(first, second, strict=True))
    top = top_places(scores, k)
    return Matches(segments[top], positions[top], scores[top])


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

    def document_frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """How many live passages hold each of the terms, in the order of the terms."""
        # Term by term, since the postings of a single one are views.
        return {
            term: sum(int(_postings(segment, [term]).counts[0]) for segment in self.segments)
            for term in dict.fromkeys(terms)
        }

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
