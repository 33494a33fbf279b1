"""BM25 over segments, scored at query time from statistics of all live passages.

Scores do not depend on how passages are spread over segments.
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
    idf,
    make_formula,
    mean_okapi_idf,
    weights,
)
from indexes.bm25.postings import Postings, TermPostings
from indexes.compiled import compiled
from indexes.protocol import AnyTerm, Expansion, Term

if TYPE_CHECKING:
    from indexes.passage_mask import PassageMask


_DEFAULT_SETTINGS = BM25Settings()
_NO_BITS = np.empty(0, np.uint8)


class Matches(NamedTuple):
    """Passages that match a query, (m,) each, by segment; scores of a segment descend."""

    segments: NDArray[np.int64]  # numbers of the segments, ascending
    positions: NDArray[np.int64]  # within the segment
    scores: NDArray[np.float64]  # zero or less for some matches (robertson, atire, okapi)


class BM25Query(NamedTuple):
    """A query with the postings of its terms, as `BM25.query` finds them."""

    segments: Sequence[SearchableSegment]
    postings: Sequence[TermPostings]  # of each segment
    # (n,) number of live passages that hold each term of `with_labels`.
    frequencies: NDArray[np.int64]
    factors: NDArray[np.float64]  # (n,) by `term_factors`
    formula: Formula

    def matching(self) -> list[NDArray[np.uint32]]:
        """Return for each segment (m,) positions of live passages with a term, ascending."""
        matching = []
        for segment, postings in zip(self.segments, self.postings, strict=True):
            joined = postings.joined()
            segment.postings.check(joined)
            matching.append(segment.of_live_positions(np.unique(joined.positions)))
        return matching

    def at(
        self, segment: int, positions: NDArray[np.integer]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Score (m,) passages of one segment, and return which of them match.

        The score of a passage that does not match is zero.
        """
        matches = np.zeros(len(positions), np.bool_)
        postings = self.postings[segment]
        passages = positions.astype(np.uint32)
        live = self.segments[segment].live
        is_live = True if live is None else live[positions]
        # Which of the passages hold each term, and by which posting.
        row_parts = [np.empty(0, np.intp)]
        place_parts = [np.empty(0, np.intp)]
        counts = np.zeros(len(postings.ranges), np.int64)
        for term, (start, stop) in enumerate(postings.ranges.tolist()):
            if start == stop:
                continue
            of_term = postings.positions[start:stop]
            nearest = np.minimum(np.searchsorted(of_term, passages), len(of_term) - 1)
            rows_of_term = np.flatnonzero((of_term[nearest] == passages) & is_live)
            row_parts.append(rows_of_term)
            place_parts.append(start + nearest[rows_of_term])
            counts[term] = len(rows_of_term)
        rows = np.concatenate(row_parts)
        places = np.concatenate(place_parts)
        matches[rows] = True
        if not len(rows):
            return np.zeros(len(positions)), matches
        frequencies = postings.frequencies[places]
        lengths = self.segments[segment].postings.lengths_of(passages[rows], frequencies)
        values = np.repeat(self.factors, counts) * weights(self.formula, frequencies, lengths)
        scores: NDArray[np.float64] = np.bincount(rows, values, len(positions)).astype(np.float64)
        return scores, matches

    def search(self, k: int, masks: Sequence[PassageMask | None] | None = None) -> Matches:
        """Find exactly the `k` best live passages that hold a query term.

        Equal scores are ordered by segment, then position. `masks` has for each segment the
        passages that may be found; None for all.
        """
        best = [
            search_segment(segment, postings, self.factors, self.formula, k, mask)
            for segment, postings, mask in zip(
                self.segments, self.postings, masks or [None] * len(self.segments), strict=True
            )
        ]
        if not best:
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        if len(best) == 1:
            return Matches(np.zeros(len(best[0].scores), np.int64), *best[0])
        segments = np.repeat(np.arange(len(best)), [len(ranked.scores) for ranked in best])
        positions = np.concatenate([ranked.positions for ranked in best])
        scores = np.concatenate([ranked.scores for ranked in best])
        if len(scores) > k:
            top = np.sort(top_places(scores, k))
            segments = segments[top]
            positions = positions[top]
            scores = scores[top]
        return Matches(segments, positions, scores)


@dataclass(frozen=True, slots=True)
class SearchableSegment:
    """The postings of one segment, and which of its passages are live."""

    postings: Postings
    live: NDArray[np.bool_] | None = None  # (n,) False for deleted passages; None without any

    def of_live(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Select the rows of live passages from (n, ...) rows, one for each passage."""
        return rows if self.live is None else rows[self.live]

    def of_live_positions(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Select the positions of live passages."""
        return positions if self.live is None else positions[self.live[positions]]


class CorpusStatistics(NamedTuple):
    """The statistics of a whole corpus that BM25 needs."""

    passages: int  # number of live passages
    mean_length: float  # terms of a live passage; 0 if there is none


class BM25:
    """BM25 search over a fixed set of segments, which can be part of a larger corpus.

    `statistics` describe the corpus; None computes them from `segments`. Every method raises
    DamagedIndexError if the postings that it reads are impossible.
    """

    def __init__(
        self,
        segments: Sequence[SearchableSegment],
        settings: BM25Settings | None = None,
        statistics: CorpusStatistics | None = None,
    ) -> None:
        self.segments = tuple(segments)
        self.settings = settings or _DEFAULT_SETTINGS
        if statistics is None:
            passages = total_length = 0
            for segment in self.segments:
                lengths = segment.postings.lengths
                passages += len(lengths)
                total_length += segment.postings.total_length
                if segment.live is not None:
                    deleted = lengths[~segment.live]
                    passages -= len(deleted)
                    total_length -= int(deleted.sum(dtype=np.int64))
            statistics = CorpusStatistics(passages, total_length / passages if passages else 0.0)
        self.statistics = statistics
        self._formula = make_formula(self.settings, statistics.mean_length)

    def query(self, query_terms: Iterable[Term]) -> BM25Query:
        """Find the postings of a query's terms; a repeated term counts as often."""
        repetitions = Counter(query_terms)
        terms, postings, df = self._find(repetitions)
        frequencies = dict(zip(terms, df.tolist(), strict=True))
        by_term = term_factors(
            self.settings.variant,
            repetitions,
            frequencies,
            self.statistics.passages,
            lambda: self._floor,
        )
        factors = np.array([by_term.get(term, 0.0) for term in terms], np.float64)
        return BM25Query(self.segments, postings, df, factors, self._formula)

    def _find(
        self, distinct_terms: Collection[Term]
    ) -> tuple[list[Term], list[TermPostings], NDArray[np.int64]]:
        """Find distinct terms: `with_labels`, their postings by segment, and their frequencies."""
        terms = with_labels(distinct_terms)
        is_expanded = len(terms) < 2 * len(distinct_terms)
        names = plain_terms(terms) if is_expanded else cast("list[str]", terms)
        postings = [segment.postings.read(names) for segment in self.segments]
        df = np.zeros(len(names), np.int64)
        for segment, of_segment in zip(self.segments, postings, strict=True):
            df += _live_counts(segment, of_segment)
        if max(df.tolist(), default=0) > self.statistics.passages:
            # No formula takes a document frequency above the number of passages.
            for segment, of_segment in zip(self.segments, postings, strict=True):
                segment.postings.check(of_segment.joined())
        if is_expanded:
            postings, df = _expand(self.segments, postings, names, terms)
        return terms, postings, df

    def document_frequencies(self, terms: Iterable[AnyTerm]) -> dict[AnyTerm, int]:
        """Count the live passages that hold each term, in the order of the terms.

        A passage that holds a term both in its text and in a label may count twice.
        """
        distinct_terms = dict.fromkeys(terms)
        with_their_labels, _, df = self._find(distinct_terms)
        counts = dict(zip(with_their_labels, df.tolist(), strict=True))
        return text_and_label_counts(distinct_terms, counts, self.statistics.passages)

    def terms_beginning(self, prefix: str, limit: int) -> list[str]:
        """Return the `limit` most frequent terms that begin with a text; ties by code point."""
        counts: Counter[str] = Counter()
        for segment in self.segments:
            counts.update(dict(segment.postings.beginning(prefix)))
        return nsmallest(limit, counts, key=lambda term: (-counts[term], term))

    @cached_property
    def _floor(self) -> float:
        """The value that replaces a negative idf of Okapi; reads the whole vocabulary."""
        df = _vocabulary_frequencies(self.segments)
        return self.settings.epsilon * mean_okapi_idf(df, self.statistics.passages)


def with_labels(terms: Iterable[Term]) -> list[Term]:
    """Return the distinct terms of a query, then its plain terms as terms of labels."""
    distinct_terms = dict.fromkeys(terms)
    of_labels = (LABEL + term for term in distinct_terms if isinstance(term, str))
    return [*distinct_terms, *of_labels]


def text_and_label_counts(
    terms: Iterable[AnyTerm], frequencies: Mapping[Term, int], most: int
) -> dict[AnyTerm, int]:
    """Add the frequencies of terms in texts and in labels, up to `most` passages."""
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
    """Return idf times repetitions of each term of a query and of the same terms of labels.

    The factor of an expansion is multiplied by its weight. `frequencies` counts the live passages
    that hold each term; a term that no passage holds is left out. `floor` returns the value that
    replaces a negative idf.
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
    """Return the distinct terms of a query and of its expansions, as the index stores them."""
    return dict.fromkeys(
        chain.from_iterable(
            term.names() if isinstance(term, Expansion) else (term,) for term in terms
        )
    )


def _expand(
    segments: Sequence[SearchableSegment],
    postings: Sequence[TermPostings],
    names: Iterable[str],
    terms: Collection[Term],
) -> tuple[list[TermPostings], NDArray[np.int64]]:
    """Make postings and document frequencies of terms and expansions from the postings of names."""
    df = np.zeros(len(terms), np.int64)
    expanded = []
    for segment, of_segment in zip(segments, postings, strict=True):
        joined = of_segment.joined()
        segment.postings.check(joined)
        postings_by_name = {
            name: (joined.positions[start:stop], joined.frequencies[start:stop])
            for name, (start, stop) in zip(names, joined.ranges.tolist(), strict=True)
        }
        columns: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for place, term in enumerate(terms):
            if isinstance(term, Expansion):
                positions, frequencies, all_positions = merge_alternatives(term, postings_by_name)
                least = np.ones(len(positions), np.uint32)
                lengths = segment.postings.lengths_of(positions, least)
                # A term of two alternatives counts twice.
                columns.append((positions, np.minimum(frequencies, lengths)))
            else:
                columns.append(postings_by_name[term])
                all_positions = columns[-1][0]
            df[place] += len(segment.of_live_positions(all_positions))
        expanded.append(
            TermPostings.of(
                np.concatenate([positions.astype("<u4") for positions, _ in columns]),
                np.concatenate([frequencies.astype("<u4") for _, frequencies in columns]),
                np.array([len(positions) for positions, _ in columns], np.int64),
            )
        )
    return expanded, df


def merge_alternatives(
    expansion: Expansion, postings: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
    """Find the passages that hold an alternative of an expansion.

    `postings` has, for each term, the passages that hold it, ascending, and how often.

    Returns:
        (n,) passages, ascending; (n,) the summed frequencies of their alternatives; and the
        passages that hold an alternative or the word itself, ascending.
    """
    parts = [_intersect(alternative, postings) for alternative in expansion.alternatives]
    all_positions = np.concatenate([positions for positions, _ in parts])
    passages, places = np.unique(all_positions, return_inverse=True)
    values = np.concatenate([frequencies for _, frequencies in parts])
    frequencies = np.bincount(places, values, len(passages)).astype(np.int64)
    of_word = [_intersect(terms, postings)[0] for terms in expansion.terms]
    return passages, frequencies, np.unique(np.concatenate([passages, *of_word]))


def _intersect(
    terms: Sequence[str], postings: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the passages that hold all terms, ascending, and how often they hold the rarest."""
    passages, frequencies = postings[terms[0]]
    for term in terms[1:]:
        other_passages, other_frequencies = postings[term]
        passages, places, other_places = np.intersect1d(
            passages, other_passages, assume_unique=True, return_indices=True
        )
        frequencies = np.minimum(frequencies[places], other_frequencies[other_places])
    return passages, frequencies


def _live_counts(segment: SearchableSegment, postings: TermPostings) -> NDArray[np.int64]:
    """Return (terms,) how many live passages hold each term."""
    live = segment.live
    if live is None:
        return postings.counts
    try:
        counts = [
            np.count_nonzero(live[postings.positions[start:stop]])
            for start, stop in postings.ranges.tolist()
        ]
    except IndexError:
        segment.postings.check(postings.joined())
        raise
    return np.array(counts, np.int64)


def _vocabulary_frequencies(segments: Sequence[SearchableSegment]) -> NDArray[np.int64]:
    """Return the document frequency over all segments of each term that a live passage holds."""
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


class SegmentMatches(NamedTuple):
    """Passages of one segment, (m,) each: scores descend, equal ones are ordered by position."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]


def search_segment(
    segment: SearchableSegment,
    postings: TermPostings,
    factors: NDArray[np.float64],
    formula: Formula,
    k: int,
    mask: PassageMask | None = None,
) -> SegmentMatches:
    """Find exactly the `k` best live passages that hold a term; fewer if fewer do."""
    if compiled is not None:
        segment.postings.check_lengths(postings)
        most = min(k, sum(postings.counts.tolist())) or 1
        best = SegmentMatches(np.empty(most, np.int64), np.empty(most))
        count = compiled.best(
            postings.positions,
            postings.frequencies,
            postings.ranges,
            factors,
            segment.postings.lengths,
            *formula,
            _NO_BITS if segment.live is None else segment.live,
            _NO_BITS if mask is None else mask.bits,
            *best,
        )
        if count >= 0:
            return SegmentMatches(best.positions[:count], best.scores[:count])
        # NumPy's form names the impossible postings.
    return search_segment_by_numpy(segment, postings, factors, formula, k, mask)


def search_segment_by_numpy(
    segment: SearchableSegment,
    postings: TermPostings,
    factors: NDArray[np.float64],
    formula: Formula,
    k: int,
    mask: PassageMask | None = None,
) -> SegmentMatches:
    """Do the work of `search_segment` without compiled code."""
    joined = postings.joined()
    segment.postings.check(joined)
    lengths = segment.postings.lengths_of(joined.positions, joined.frequencies)
    values = np.repeat(factors, joined.counts) * weights(formula, joined.frequencies, lengths)
    size = len(segment.postings)
    # bincount returns integers for an empty array.
    scores = np.bincount(joined.positions, values, size).astype(np.float64, copy=False)
    matches = np.zeros(size, np.bool_)
    matches[joined.positions] = True
    if segment.live is not None:
        matches &= segment.live
    if mask is not None:
        matches &= mask.at(np.arange(size))
    positions = np.flatnonzero(matches)
    best = positions[top_places(scores[positions], k)]
    return SegmentMatches(best, scores[best])


def top_places(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Return the places of the `k` largest of (n,) scores, descending; ties by place."""
    places = np.arange(len(scores))
    if len(scores) > k:
        threshold = np.partition(scores, -k)[-k]
        above = np.flatnonzero(scores > threshold)
        tied = np.flatnonzero(scores == threshold)
        places = np.sort(np.concatenate([above, tied[: k - len(above)]]))
    return places[np.argsort(-scores[places], kind="stable")]
