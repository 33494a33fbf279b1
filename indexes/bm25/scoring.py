"""BM25 over segments, scored at query time from statistics of all live passages.

So the scores do not depend on how passages are spread over segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import (
    LABEL,
    LABEL_WEIGHT,
    BM25Settings,
    BM25Variant,
    Formula,
    formula_of,
    idf,
    mean_okapi_idf,
    weights,
)
from indexes.bm25.postings import Postings, Read
from indexes.compiled import compiled
from indexes.protocol import AnyTerm, Expansion, Term

if TYPE_CHECKING:
    from indexes.filters.columns import Allowed


class Matches(NamedTuple):
    """Passages found: three arrays of one length, by segment, each segment's scores descending."""

    segments: NDArray[np.int64]  # ascending, into the segments searched
    positions: NDArray[np.int64]  # within the segment
    scores: NDArray[np.float64]  # zero or less for some matches (robertson, atire, okapi)


_USUAL = BM25Settings()
# Queries whose postings are remembered.
_QUERIES = 64


class BM25Query(NamedTuple):
    """One query whose postings were found, by `BM25.query`."""

    segments: Sequence[SearchableSegment]
    found: Sequence[Read]  # of each segment
    # (n,) how many live passages hold each distinct term, and each plain one of them in a label.
    frequencies: NDArray[np.int64]
    factors: NDArray[np.float64]  # (n,) by `term_factors`
    formula: Formula

    def matching(self) -> list[NDArray[np.uint32]]:
        """For each segment, (m,) the positions of live passages with a query term, ascending."""
        matching = []
        for segment, read in zip(self.segments, self.found, strict=True):
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
        read = self.found[segment]
        wanted = positions.astype(np.uint32)
        live = self.segments[segment].live
        postings = self.segments[segment].postings
        alive = True if live is None else live[positions]
        # Which of the wanted hold each term, and by which posting.
        rows = [np.empty(0, np.intp)]
        places = [np.empty(0, np.intp)]
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
        row = np.concatenate(rows)
        place = np.concatenate(places)
        matches[row] = True
        if not len(row):
            return np.zeros(len(positions)), matches
        frequencies = read.frequencies[place]
        lengths = postings.lengths_of(wanted[row], frequencies)
        values = np.repeat(self.factors, counts) * weights(self.formula, frequencies, lengths)
        scores: NDArray[np.float64] = np.bincount(row, values, len(positions)).astype(np.float64)
        return scores, matches

    def search(self, k: int, allowed: Sequence[Allowed | None] | None = None) -> Matches:
        """The `k` best live passages that hold a query term, exactly; of equal scores the first."""
        chosen = allowed or [None] * len(self.segments)
        found = [
            best_passages(segment, read, self.factors, self.formula, k, some)
            for segment, read, some in zip(self.segments, self.found, chosen, strict=True)
        ]
        if not found:
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        if len(found) == 1:
            return Matches(np.zeros(len(found[0].scores), np.int64), *found[0])
        segments = np.repeat(np.arange(len(found)), [len(best.scores) for best in found])
        positions = np.concatenate([best.positions for best in found])
        scores = np.concatenate([best.scores for best in found])
        if len(scores) > k:
            kept = np.sort(top_places(scores, k))
            segments = segments[kept]
            positions = positions[kept]
            scores = scores[kept]
        return Matches(segments, positions, scores)


@dataclass(frozen=True, slots=True)
class SearchableSegment:
    """The postings of one segment, and which of its passages are live."""

    postings: Postings
    live: NDArray[np.bool_] | None = None  # (n,) False for deleted passages; None without any

    def of_live(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Those of (n, ...) rows, one for each passage, whose passages are live."""
        return rows if self.live is None else rows[self.live]

    def of_live_positions(self, positions: NDArray[Any]) -> NDArray[Any]:
        """The positions among some whose passages are live."""
        return positions if self.live is None else positions[self.live[positions]]


class CorpusStatistics(NamedTuple):
    """What BM25 needs of the corpus as a whole."""

    passages: int  # live ones
    mean_length: float  # terms of each of them; 0 if there are none


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
        self.settings = settings or _USUAL
        if statistics is None:
            passages = total_length = 0
            for segment in self.segments:
                lengths = segment.postings.lengths
                passages += len(lengths)
                total_length += segment.postings.total_length
                if segment.live is not None:
                    dead = lengths[~segment.live]
                    passages -= len(dead)
                    total_length -= int(dead.sum(dtype=np.int64))
            statistics = CorpusStatistics(passages, total_length / passages if passages else 0.0)
        self.statistics = statistics
        self._formula = formula_of(self.settings, statistics.mean_length)
        # A search asks for the same terms several times.
        self._known: dict[tuple[Term, ...], BM25Query] = {}

    def query(self, query_terms: Iterable[Term]) -> BM25Query:
        """Find the postings of a query's terms, in their order, once for all later calls."""
        terms = tuple(query_terms)
        # In one step: another thread may clear them.
        if (known := self._known.get(terms)) is not None:
            return known
        repetitions = Counter(terms)
        distinct = with_labels(repetitions)
        passages = self.statistics.passages
        is_expanded = len(distinct) < 2 * len(repetitions)
        names = plain_terms(distinct) if is_expanded else cast("list[str]", distinct)
        postings = [segment.postings.read(names) for segment in self.segments]
        df = np.zeros(len(names), np.int64)
        for segment, read in zip(self.segments, postings, strict=True):
            live = segment.live
            df += read.counts if live is None else _live_counts(segment.postings, read, live)
        if df.max(initial=0) > passages:
            # More than there can be: no formula takes that.
            for segment, read in zip(self.segments, postings, strict=True):
                segment.postings.check(read.joined())
        if is_expanded:
            postings, df = _expanded(self.segments, postings, names, distinct)
        frequencies = dict(zip(distinct, df.tolist(), strict=True))
        by_term = term_factors(
            self.settings.variant, repetitions, frequencies, passages, lambda: self._floor
        )
        factors = np.array([by_term.get(term, 0.0) for term in distinct], np.float64)
        if len(self._known) >= _QUERIES:
            self._known.clear()
        query = BM25Query(self.segments, postings, df, factors, self._formula)
        self._known[terms] = query
        return query

    def document_frequencies(self, terms: Iterable[AnyTerm]) -> dict[AnyTerm, int]:
        """Count the live passages with each of the terms, in the order of the terms.

        A passage that holds a term both in its text and in a label may count twice.
        """
        distinct = dict.fromkeys(terms)
        frequencies = self.query([*distinct]).frequencies.tolist()
        counts = dict(zip(with_labels(distinct), frequencies, strict=True))
        return text_and_label_counts(distinct, counts, self.statistics.passages)

    def terms_beginning(self, prefix: str, limit: int) -> list[str]:
        """The `limit` most frequent terms that begin with a text; equal ones by code point."""
        counts: Counter[str] = Counter()
        for segment in self.segments:
            counts.update(dict(segment.postings.beginning(prefix)))
        return nsmallest(limit, counts, key=lambda term: (-counts[term], term))

    @cached_property
    def _floor(self) -> float:
        """Okapi's replacement for negative idf; reads the whole vocabulary."""
        df = _vocabulary_frequencies(self.segments)
        return self.settings.epsilon * mean_okapi_idf(df, self.statistics.passages)


def with_labels(terms: Iterable[Term]) -> list[Term]:
    """Return the distinct terms of a query, and behind them the plain ones as terms of labels."""
    distinct = dict.fromkeys(terms)
    return [*distinct, *(LABEL + term for term in distinct if isinstance(term, str))]


def text_and_label_counts(
    terms: Iterable[AnyTerm], frequencies: Mapping[Term, int], most: int
) -> dict[AnyTerm, int]:
    """Add the frequencies of terms in texts and in labels, up to a number of passages."""
    counts = {}
    for term in terms:
        of_labels = frequencies[LABEL + term] if isinstance(term, str) else 0
        counts[term] = min(most, frequencies[term] + of_labels)
    return counts


def term_factors(
    variant: BM25Variant,
    repetitions: Mapping[Term, int],
    frequencies: Mapping[Term, int],
    passages: int,
    floor: Callable[[], float],
) -> dict[Term, float]:
    """Return idf times repetitions of each term of a query, and of the same terms of labels.

    That of an expansion is multiplied by its weight. `frequencies` counts the live passages with
    each of them; a term that none has is left out. `floor` gives what replaces a negative idf.
    """
    factors: dict[Term, float] = {}

    def add(term: Term, own_df: int, df: int, times: float) -> None:
        if own_df:
            value = idf(variant, df, passages)
            factors[term] = times * (floor() if value < 0 else value)

    for term, times in repetitions.items():
        df = frequencies[term]
        if isinstance(term, Expansion):
            add(term, df, df, times * term.weight)
            continue
        label = LABEL + term
        label_df = frequencies[label]
        add(term, df, max(df, label_df), float(times))
        add(label, label_df, max(df, label_df), times * LABEL_WEIGHT)
    return factors


def plain_terms(terms: Iterable[Term]) -> dict[str, None]:
    """The distinct terms of the index among the terms of a query and in its expansions."""
    return dict.fromkeys(
        chain.from_iterable(
            term.names() if isinstance(term, Expansion) else (term,) for term in terms
        )
    )


def _expanded(
    segments: Sequence[SearchableSegment],
    reads: Sequence[Read],
    names: Iterable[str],
    terms: Collection[Term],
) -> tuple[list[Read], NDArray[np.int64]]:
    """The postings and document frequencies of terms and expansions, from those of `names`."""
    df = np.zeros(len(terms), np.int64)
    expanded = []
    for segment, read in zip(segments, reads, strict=True):
        postings = segment.postings
        joined = read.joined()
        postings.check(joined)
        postings_of = {
            name: (joined.positions[start:stop], joined.frequencies[start:stop])
            for name, (start, stop) in zip(names, joined.ranges.tolist(), strict=True)
        }
        columns: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for place, term in enumerate(terms):
            if isinstance(term, Expansion):
                positions, frequencies, either = merge_alternatives(term, postings_of)
                lengths = postings.lengths_of(positions, np.ones(len(positions), np.uint32))
                # A term of two alternatives counts twice.
                columns.append((positions, np.minimum(frequencies, lengths)))
            else:
                columns.append(postings_of[term])
                either = columns[-1][0]
            df[place] += len(segment.of_live_positions(either))
        expanded.append(
            Read.of(
                np.concatenate([positions.astype("<u4") for positions, _ in columns]),
                np.concatenate([frequencies.astype("<u4") for _, frequencies in columns]),
                np.array([len(positions) for positions, _ in columns], np.int64),
            )
        )
    return expanded, df


def merge_alternatives(
    expansion: Expansion, postings: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
    """The passages that hold an alternative of an expansion.

    `postings` has, for each term, the passages that hold it, ascending, and how often.

    Returns:
        (n,) passages, ascending; (n,) the added frequencies of their alternatives; and the
        passages that hold an alternative or the word itself, ascending.
    """
    parts = [_holding_all(alternative, postings) for alternative in expansion.alternatives]
    together = np.concatenate([positions for positions, _ in parts])
    passages, places = np.unique(together, return_inverse=True)
    values = np.concatenate([frequencies for _, frequencies in parts])
    frequencies = np.bincount(places, values, len(passages)).astype(np.int64)
    own = [_holding_all(alternative, postings)[0] for alternative in expansion.terms]
    return passages, frequencies, np.unique(np.concatenate([passages, *own]))


def _holding_all(
    terms: Sequence[str], postings: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The passages that hold all of some terms, ascending, and how often the rarest."""
    passages, frequencies = postings[terms[0]]
    for term in terms[1:]:
        other_passages, other_frequencies = postings[term]
        passages, own, theirs = np.intersect1d(
            passages, other_passages, assume_unique=True, return_indices=True
        )
        frequencies = np.minimum(frequencies[own], other_frequencies[theirs])
    return passages, frequencies


def _live_counts(postings: Postings, read: Read, live: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(terms,) how many live passages hold each of the terms."""
    try:
        counts = [np.count_nonzero(live[read.positions[a:b]]) for a, b in read.ranges.tolist()]
    except IndexError:
        postings.check(read.joined())
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


_NO_BITS = np.empty(0, np.uint8)


class Best(NamedTuple):
    """Passages of one segment, scores descending, equal ones by position."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


def best_passages(
    segment: SearchableSegment,
    read: Read,
    factors: NDArray[np.float64],
    formula: Formula,
    k: int,
    allowed: Allowed | None = None,
) -> Best:
    """The `k` best passages that hold a term, exactly; fewer if fewer do."""
    if compiled is not None:
        segment.postings.check_lengths(read)
        most = min(k, int(read.counts.sum())) or 1
        best = Best(np.empty(most, np.int64), np.empty(most))
        mask = _NO_BITS if segment.live is None else segment.live
        bits = _NO_BITS if allowed is None else allowed.bits
        lengths = segment.postings.lengths
        found = compiled.best(*read[:3], factors, lengths, *formula, mask, bits, *best)
        if found >= 0:
            return Best(best.positions[:found], best.scores[:found])
        # Impossible postings are named below.
    return best_by_numpy(segment, read, factors, formula, k, allowed)


def best_by_numpy(
    segment: SearchableSegment,
    read: Read,
    factors: NDArray[np.float64],
    formula: Formula,
    k: int,
    allowed: Allowed | None = None,
) -> Best:
    """As `best_passages`, without a compiler."""
    postings = segment.postings
    joined = read.joined()
    postings.check(joined)
    lengths = postings.lengths_of(joined.positions, joined.frequencies)
    values = np.repeat(factors, joined.counts) * weights(formula, joined.frequencies, lengths)
    # bincount returns integers for an empty array.
    scores = np.bincount(joined.positions, values, len(postings)).astype(np.float64, copy=False)
    matches = np.zeros(len(postings), np.bool_)
    matches[joined.positions] = True
    if segment.live is not None:
        matches &= segment.live
    if allowed is not None:
        matches &= allowed.at(np.arange(len(postings)))
    held = np.flatnonzero(matches)
    top = held[top_places(scores[held], k)]
    return Best(top, scores[top])


def top_places(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """The places of the `k` largest of (n,) scores, descending; equal ones by place, ascending."""
    chosen = np.arange(len(scores))
    if len(scores) > k:
        threshold = np.partition(scores, -k)[-k]
        above = np.flatnonzero(scores > threshold)
        level = np.flatnonzero(scores == threshold)
        chosen = np.sort(np.concatenate([above, level[: k - len(above)]]))
    return chosen[np.argsort(-scores[chosen], kind="stable")]
