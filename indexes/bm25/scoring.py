"""BM25 over segments, scored at query time from statistics of all live passages.

So the scores do not depend on how passages are spread over segments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings, Weighting, idf, mean_okapi_idf
from indexes.bm25.postings import Postings, Read
from indexes.compiled import compiled
from indexes.errors import ConfigError, DamagedIndexError

if TYPE_CHECKING:
    from indexes.filters.allowed import Allowed


class Matches(NamedTuple):
    """Passages found: three arrays of one length, by segment, each segment's scores descending."""

    segments: NDArray[np.int64]  # ascending, into the segments searched
    positions: NDArray[np.int64]  # within the segment
    scores: NDArray[np.float64]  # zero or less for some matches (robertson, atire, okapi)


class BM25Query:
    """One query whose postings were found, by `BM25.query`."""

    def __init__(
        self, segments: Sequence[SearchableSegment], found: Sequence[Read], weighting: Weighting
    ) -> None:
        self._segments = segments
        self._found = found
        self.weighting = weighting
        self._sizes = [len(segment.postings) for segment in segments]

    def scores(self) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
        """The score of every passage, and which passages match."""
        pairs = []
        for segment, read in zip(self._segments, self._found, strict=True):
            contributions = contributions_of(segment.postings, read, self.weighting)
            pairs.append(accumulate(permitted(contributions, segment.live), len(segment.postings)))
        return [scores for scores, _ in pairs], [matches for _, matches in pairs]

    def matching(self) -> list[NDArray[np.uint32]]:
        """For each segment, (m,) the positions of live passages with a query term, ascending."""
        matching = []
        for segment, read in zip(self._segments, self._found, strict=True):
            joined = read.joined()
            segment.postings.check(joined)
            held = np.unique(joined.positions)
            matching.append(held if segment.live is None else held[segment.live[held]])
        return matching

    def at(
        self, segment: int, positions: NDArray[np.integer]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The scores of chosen passages of one segment, and which of them match."""
        matches = np.zeros(len(positions), np.bool_)
        read, wanted = self._found[segment], positions.astype(np.uint32)
        live = self._segments[segment].live
        alive = True if live is None else live[positions]
        # Which of the wanted hold each term, and by which posting.
        rows, places = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
        counts = np.zeros(len(read.ranges), np.int64)
        for term, (start, stop) in enumerate(read.ranges.tolist()):
            if start == stop:
                continue
            held = read.positions[start:stop]
            near = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
            holding = np.flatnonzero((held[near] == wanted) & alive)
            rows.append(holding)
            places.append(start + near[holding])
            counts[term] = len(holding)
        row, place = np.concatenate(rows), np.concatenate(places)
        matches[row] = True
        if not len(row):
            return np.zeros(len(positions)), matches
        frequencies = read.frequencies[place]
        lengths = self._segments[segment].postings.lengths_of(wanted[row], frequencies)
        values = self.weighting.values(frequencies, lengths, counts)
        return sums(row, values, len(positions)), matches

    def search(self, k: int, allowed: Sequence[Allowed | None] | None = None) -> Matches:
        """The `k` best live passages that hold a query term, exactly; of equal scores the first."""
        if k < 1:
            raise ConfigError(f"k: expected 1 or more, found {k}")
        chosen = self._fitting(allowed)
        found = [
            best_passages(segment.postings, read, self.weighting, k, segment.live, some)
            for segment, read, some in zip(self._segments, self._found, chosen, strict=True)
        ]
        if not found:
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        segments = np.repeat(np.arange(len(found)), [len(best.scores) for best in found])
        positions = np.concatenate([best.positions for best in found])
        scores = np.concatenate([best.scores for best in found])
        if len(scores) > k:
            kept = np.sort(top_places(scores, k))
            segments, positions, scores = segments[kept], positions[kept], scores[kept]
        return Matches(segments, positions, scores)

    def _fitting(self, allowed: Sequence[Allowed | None] | None) -> list[Allowed | None]:
        if allowed is None:
            return [None] * len(self._sizes)
        found = [None if some is None else len(some) for some in allowed]
        if len(found) != len(self._sizes) or any(
            size not in (None, wanted) for size, wanted in zip(found, self._sizes, strict=True)
        ):
            raise ConfigError(
                f"allowed: expected one for each segment, of {list(self._sizes)} passages, "
                f"found {found}"
            )
        return list(allowed)


@dataclass(frozen=True, slots=True)
class SearchableSegment:
    """The postings of one segment, and which of its passages are live."""

    postings: Postings
    live: NDArray[np.bool_] | None = None  # (n,) False for deleted passages; None without any

    def __post_init__(self) -> None:
        live, n = self.live, len(self.postings)
        if live is not None and (live.shape != (n,) or live.dtype != np.bool_):
            raise DamagedIndexError(
                f"live: expected {n} booleans, one for each passage of the postings, found "
                f"{live.dtype} {live.shape}; restore the index from a backup or index again"
            )


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """What BM25 needs of the corpus as a whole: live passages and the sum of their lengths."""

    passages: int
    total_length: int

    @classmethod
    def of(cls, segments: Iterable[SearchableSegment]) -> CorpusStatistics:
        """Count live passages; reads lengths only of segments with deletions."""
        passages = total_length = 0
        for segment in segments:
            lengths = segment.postings.lengths
            passages += len(lengths)
            total_length += segment.postings.total_length
            if segment.live is not None:
                dead = lengths[~segment.live]
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
        """Tokens per live passage; 0 if there are none."""
        return self.total_length / self.passages if self.passages else 0.0


class BM25:
    """Scores and searches a fixed set of segments, which can be part of a larger corpus.

    `statistics` are those of the corpus, by default of `segments`. Every method raises
    DamagedIndexError where the postings that it reads are impossible.
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
        """Find the postings of a query's terms, in their order, once for all later calls."""
        repetitions = Counter(query_terms)
        found = [segment.postings.read(repetitions) for segment in self.segments]
        df = np.zeros(len(repetitions), np.int64)
        for segment, read in zip(self.segments, found, strict=True):
            df += _live_counts(segment, read)
        if df.max(initial=0) > self.statistics.passages:
            # More than there can be: no formula takes that.
            for segment, read in zip(self.segments, found, strict=True):
                segment.postings.check(read.joined())
        # Postings of a term that no live passage holds are not read.
        found = [read._replace(ranges=read.ranges * (df > 0)[:, np.newaxis]) for read in found]
        factors = np.array(
            [
                times * self._idf(held) if held else 0.0
                for times, held in zip(repetitions.values(), df.tolist(), strict=True)
            ],
            np.float64,
        )
        weighting = Weighting(self.settings, self.statistics.mean_length, factors)
        return BM25Query(self.segments, found, weighting)

    def document_frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """How many live passages hold each of the terms, in the order of the terms."""
        distinct = list(dict.fromkeys(terms))
        df = np.zeros(len(distinct), np.int64)
        for segment in self.segments:
            df += _live_counts(segment, segment.postings.read(distinct))
        return dict(zip(distinct, df.tolist(), strict=True))

    def scores(
        self, query_terms: Iterable[str]
    ) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
        """The score of every passage, and which match: see `BM25Query.scores`."""
        return self.query(query_terms).scores()

    def search(
        self, query_terms: Iterable[str], k: int, allowed: Sequence[Allowed | None] | None = None
    ) -> Matches:
        """The `k` best passages: see `BM25Query.search`."""
        return self.query(query_terms).search(k, allowed)

    def _idf(self, df: int) -> float:
        value = idf(self.settings.variant, df, self.statistics.passages)
        return self._floor() if value < 0 else value

    def _floor(self) -> float:
        """Okapi's replacement for negative idf; reads the whole vocabulary, once."""
        if self._okapi_floor is None:
            df = _vocabulary_frequencies(self.segments)
            mean = mean_okapi_idf(df, self.statistics.passages)
            self._okapi_floor = self.settings.epsilon * mean
        return self._okapi_floor


def _live_counts(segment: SearchableSegment, read: Read) -> NDArray[np.int64]:
    """(terms,) how many live passages hold each of the terms."""
    live = segment.live
    if live is None:
        return read.counts
    try:
        counts = [np.count_nonzero(live[read.positions[a:b]]) for a, b in read.ranges.tolist()]
    except IndexError:
        segment.postings.check(read.joined())
        raise
    return np.array(counts, np.int64)


def _vocabulary_frequencies(segments: Sequence[SearchableSegment]) -> NDArray[np.int64]:
    """The document frequency over all segments of each term that a live passage holds."""
    if len(segments) == 1:
        totals = segments[0].postings.document_frequencies(segments[0].live)
    else:
        counts: Counter[bytes] = Counter()
        for segment in segments:
            frequencies = segment.postings.document_frequencies(segment.live).tolist()
            for term, df in zip(segment.postings.vocabulary(), frequencies, strict=True):
                counts[term] += df
        totals = np.fromiter(counts.values(), np.int64, len(counts))
    return totals[totals > 0]


class Contributions(NamedTuple):
    """What each posting of a query's terms adds to the score of its passage."""

    positions: NDArray[np.uint32]  # (p,) by term in the order of the query, ascending within a term
    values: NDArray[np.float64]  # (p,)
    counts: NDArray[np.int64]  # (terms,) how many postings each has


def contributions_of(postings: Postings, read: Read, weighting: Weighting) -> Contributions:
    """What postings add to the scores of their passages."""
    joined = read.joined()
    positions, frequencies, counts = joined.positions, joined.frequencies, joined.counts
    if not len(positions):
        return Contributions(positions, np.empty(0), counts)
    postings.check(joined)
    lengths = postings.lengths_of(positions, frequencies)
    return Contributions(positions, weighting.values(frequencies, lengths, counts), counts)


def permitted(
    contributions: Contributions, live: NDArray[np.bool_] | None, allowed: Allowed | None = None
) -> Contributions:
    """The contributions to the live passages that are allowed; None is for all."""
    if live is None and allowed is None:
        return contributions
    chosen = np.ones(len(contributions.positions), np.bool_)
    if live is not None:
        chosen &= live[contributions.positions]
    if allowed is not None:
        chosen &= allowed.at(contributions.positions)
    counts = counts_of(chosen, contributions.counts)
    return Contributions(contributions.positions[chosen], contributions.values[chosen], counts)


def counts_of(chosen: NDArray[np.bool_], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many are chosen of each of the runs of `counts` items; (runs,) int64."""
    before = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(chosen, out=before[1:])
    return np.diff(before[np.cumsum(counts)], prepend=0)


def accumulate(
    contributions: Contributions, n: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(n,) float64 the scores, added in the order of the terms, and (n,) bool which match."""
    matches = np.zeros(n, np.bool_)
    matches[contributions.positions] = True
    return sums(contributions.positions.astype(np.intp), contributions.values, n), matches


def sums(places: NDArray[np.intp], values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """What is added to each of `n` places, or of as many as occur, in the order given."""
    # bincount returns integers for an empty array.
    return np.bincount(places, values, n).astype(np.float64, copy=False)


# Sorting one posting costs about as much as clearing and scanning this many passages.
_SCAN_PER_POSTING = 24
_NO_BITS = np.empty(0, np.uint8)


class Best(NamedTuple):
    """Passages of one segment, scores descending, equal ones by position."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


def best_passages(
    postings: Postings,
    read: Read,
    weighting: Weighting,
    k: int,
    live: NDArray[np.bool_] | None = None,
    allowed: Allowed | None = None,
) -> Best:
    """The `k` best passages that hold a term, exactly; fewer if fewer do."""
    most = min(k, int(read.counts.sum()))
    if not most:
        return Best(np.empty(0, np.int64), np.empty(0, np.float64))
    if compiled is not None:
        postings.check_lengths(read)
        best = Best(np.empty(most, np.int64), np.empty(most))
        mask = _NO_BITS if live is None else live
        bits = _NO_BITS if allowed is None else allowed.bits
        found = compiled.best(
            *read, weighting.factors, postings.lengths, *weighting.constants(), mask, bits, *best
        )
        if found >= 0:
            return Best(best.positions[:found], best.scores[:found])
        # Impossible postings are named below.
    return best_by_numpy(postings, read, weighting, k, live, allowed)


def best_by_numpy(
    postings: Postings,
    read: Read,
    weighting: Weighting,
    k: int,
    live: NDArray[np.bool_] | None = None,
    allowed: Allowed | None = None,
) -> Best:
    """See `best_passages`."""
    contributions = permitted(contributions_of(postings, read, weighting), live, allowed)
    if not len(contributions.positions):
        return Best(np.empty(0, np.int64), np.empty(0, np.float64))
    positions, scores = _contenders(contributions, len(postings), k)
    top = top_places(scores, k)
    return Best(positions[top].astype(np.int64), scores[top])


def top_places(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """The places of the `k` largest of (n,) scores, descending; equal ones by place, ascending."""
    chosen = np.arange(len(scores))
    # The k-th largest of a sample bounds the k-th largest of all from below, so that most scores
    # need one comparison only.
    stride = math.isqrt(len(scores) // k)
    if stride > 1:
        chosen = np.flatnonzero(scores >= _kth_largest(scores[::stride], k))
    if len(chosen) > k:
        candidates = scores[chosen]
        threshold = _kth_largest(candidates, k)
        above = np.flatnonzero(candidates > threshold)
        level = np.flatnonzero(candidates == threshold)
        chosen = chosen[np.sort(np.concatenate([above, level[: k - len(above)]]))]
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _contenders(
    contributions: Contributions, n: int, k: int
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Positions, ascending, with the `k` best among them, and their scores, in the cheapest way."""
    positions, values, counts = contributions
    if len(counts) == 1:
        return positions, values
    if len(positions) * _SCAN_PER_POSTING >= n:
        scores, matches = accumulate(contributions, n)
        held = np.flatnonzero(matches)
        return held, scores[held]
    # A stable sort keeps the order of the terms, and is fast on concatenated ascending runs.
    order = np.argsort(positions, kind="stable")
    found = positions[order]
    first = np.empty(len(found), np.bool_)
    first[0] = True
    np.not_equal(found[1:], found[:-1], out=first[1:])
    return found[first], sums(np.cumsum(first) - 1, values[order], 0)


def _kth_largest(scores: NDArray[np.float64], k: int) -> np.float64:
    place = len(scores) - k
    smallest_kept: np.float64 = np.partition(scores, place)[place]
    return smallest_kept
