"""Rank the documents of an index for a query: by dense scores, BM25 or both.

Scores belong to passages; a hit is a document, ranked by its best passage. Candidates are the
best passages of each component; equal scores at the cut go to the lower passage numbers. In the
mode ``hybrid`` every candidate is scored by both components before the two are fused. Higher
scores are better everywhere; documents with equal scores are ordered by id.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import compress, islice
from operator import attrgetter, neg
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.documents.outline import Place, place, read_outline
from retriever.errors import RetrieverError, unknown_name
from retriever.search.fusion import best_passages, ranking_scores, ranks
from retriever.search.settings import DEFAULT_WEIGHT, FIT, SearchSettings

if TYPE_CHECKING:
    from indexes import Candidates, Passage, Query, View
    from indexes.filters import Where

# Whether nobody waits any more for the search of this thread; None if it cannot be cancelled.
_IS_CANCELLED: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)

HIT_FIELDS = (
    *("rank", "score", "id", "title", "passage", "start", "stop"),
    *("dense", "dense_rank", "bm25", "bm25_rank"),
)
"""Names of the values that the JSON form of every hit begins with."""
_VALUES = attrgetter(*HIT_FIELDS)
_OPTIONAL_IN_JSON = ("probability", "date", "recency", "plain_score")
_NOWHERE = Place()
# Tells by document id and passage number whether a passage may be a hit.
PassageFilter = Callable[[str, int], bool]


@dataclass(slots=True)
class Hit:
    """A document with its best passage.

    Attributes:
        rank: 1 for the best.
        score: what the hit is ranked by; higher is better. Mode ``dense``: a cosine in [-1, 1],
            or an inner product if the encoder does not normalize. Mode ``bm25``: the BM25 score.
            Mode ``hybrid``: in [0, 1] for ``convex`` with ``min-max``, any number with
            ``z-score``, in (0, 2 / (rrf_k + 1)] for ``rrf``. With a reranker: its score.
        id: the document's id.
        title: the document's title; None if it has none.
        passage: the text of the best passage.
        start, stop: character offsets of the passage in the document's text.
        metadata: the document's metadata.
        dense: the dense score of the passage; None in mode ``bm25``.
        dense_rank: its rank by that score among the candidate passages; equal scores share the
            best rank.
        bm25: the BM25 score of the passage, 0 if it holds no query term; None in mode ``dense``.
        bm25_rank: its rank by BM25 among the candidates; None if it holds no query term.
        passage_number: the passage's stable number in the index.
        first_rank: the rank before reranking; None without a reranker.
        copies: ids of the documents that `collapse` folded into this one, best first.
        place: the pages, headings, lines or message of the passage; None without an outline.
        probability: probability in [0, 1] that the document is relevant; None without a
            calibration, beyond the first ten hits, and with a reranker or a query map; see
            `retriever.search.calibration`.
        answer_probability: probability in [0, 1] that one of the first ten hits is relevant; None
            where `probability` is.
        date: the date of the document, as its metadata has it; None without one, and unless the
            settings ask for recency or the order by date.
        recency: the factor of the score, 0.5 to 1; None unless the settings ask for recency.
        plain_score: the score before it was multiplied by `recency`, or None.
    """

    rank: int
    score: float
    id: str
    title: str | None
    passage: str
    start: int
    stop: int
    metadata: dict[str, Any]
    dense: float | None
    dense_rank: int | None
    bm25: float | None
    bm25_rank: int | None
    passage_number: int
    first_rank: int | None = None
    copies: tuple[str, ...] = ()
    place: Place | None = None
    probability: float | None = None
    answer_probability: float | None = None
    date: str | None = None
    recency: float | None = None
    plain_score: float | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_name(self, name)

    def keys(self) -> Iterable[str]:
        """Return the names that `hit[name]` takes; `dict(hit)` equals `to_json()`."""
        return self.to_json().keys()

    def __iter__(self) -> Iterator[str]:
        """Iterate over `keys()`, as a mapping does."""
        return iter(self.keys())

    def __getitem__(self, name: str) -> Any:
        """Return a value of `to_json()`, or the passage as ``text``; KeyError for another name."""
        if name == "text":
            return self.passage
        values = self.to_json()
        if name not in values:
            raise KeyError(str(unknown_name(self, name)))
        return values[name]

    @property
    def text(self) -> str:
        """The passage."""
        return self.passage

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; optional ones only if set, and no `passage_number`."""
        values = dict(zip(HIT_FIELDS, _VALUES(self), strict=True))
        if self.first_rank is not None:
            values["first_rank"] = self.first_rank
        if self.copies:
            values["copies"] = list(self.copies)
        if self.place is not None:
            values["place"] = self.place.to_json()
        for name in _OPTIONAL_IN_JSON:
            value = getattr(self, name)
            if value is not None:
                values[name] = value
        values["metadata"] = self.metadata
        return values


def hit_of(
    passage: Passage, rank: int, score: float = 0.0, components: tuple[Any, ...] = (None,) * 4
) -> Hit:
    """Return the hit of a stored passage.

    `components` are its dense score, dense rank, BM25 score and BM25 rank.
    """
    number, id_, title, text, metadata, start, stop, outline = passage
    dense, dense_rank, bm25, bm25_rank = components
    hit_place = None
    if outline:
        hit_place = place(read_outline(outline), text, (start, stop))
        # An outline may hold labels alone.
        if hit_place == _NOWHERE:
            hit_place = None
    return Hit(
        rank,
        score,
        id_,
        title,
        text[start:stop],
        start,
        stop,
        metadata,
        dense,
        dense_rank,
        bm25,
        bm25_rank,
        passage_number=number,
        place=hit_place,
    )


class ScoredPassages(NamedTuple):
    """The candidates of a query with both component scores, in no particular order."""

    # (n,) the id of each passage's document.
    documents: tuple[str, ...]
    # (n,) cosines, or inner products where the encoder does not normalize.
    dense: NDArray[np.float64]
    # (n,) 0 where `matches` is False.
    bm25: NDArray[np.float64]
    # (n,) whether the passage holds a query term.
    matches: NDArray[np.bool_]


class _RankedCandidates(NamedTuple):
    candidates: Candidates
    # (n,) what the candidates are ranked by.
    scores: NDArray[np.float64]
    # Id of a document to the position of its best candidate, best document first.
    best: dict[str, int]
    # Passages that were read to rank documents, by number.
    passages: dict[int, Passage]


def ranked_hits(
    view: View,
    settings: SearchSettings,
    queries: Sequence[Query],
    where: Where | None = None,
    is_allowed: PassageFilter | None = None,
) -> list[list[Hit]]:
    """Return the best `k` documents of each query; ``bm25`` ranks only those that hold a term.

    `is_allowed` tells which passages may be hits; None allows all.
    """
    hits = []
    rankings = _rank_candidates(view, settings, queries, where, is_allowed, reads_documents=True)
    for candidates, scores, best, passages in rankings:
        positions = np.array([*best.values()], np.intp)
        numbers = candidates.passages[positions].tolist()
        dense, dense_ranks, bm25, bm25_ranks = ([None] * len(numbers),) * 4
        if settings.mode != "bm25":
            dense = candidates.dense[positions].tolist()
            dense_ranks = ranks(candidates.dense)[positions].tolist()
        if settings.mode != "dense":
            bm25 = candidates.bm25[positions].tolist()
            # Candidates that do not match have rank 0.
            matching_ranks = ranks(candidates.bm25, candidates.matches)[positions].tolist()
            bm25_ranks = [rank or None for rank in matching_ranks]
        unread = [number for number in numbers if number not in passages]
        stored = passages | view.passages(unread) if unread else passages
        components = zip(dense, dense_ranks, bm25, bm25_ranks, strict=True)
        rows = zip(numbers, scores[positions].tolist(), components, strict=True)
        hits.append(
            [
                hit_of(stored[number], rank, score, parts)
                for rank, (number, score, parts) in enumerate(rows, start=1)
            ]
        )
    return hits


def ranked_ids(
    view: View,
    settings: SearchSettings,
    queries: Sequence[Query],
    where: Where | None = None,
    is_allowed: PassageFilter | None = None,
) -> list[list[tuple[str, float]]]:
    """Return ids and scores alone of the hits of `ranked_hits`."""
    return [
        list(zip(best, scores[[*best.values()]].tolist(), strict=True))
        for _, scores, best, _ in _rank_candidates(view, settings, queries, where, is_allowed)
    ]


def scored_passages(
    view: View, settings: SearchSettings, queries: Sequence[Query]
) -> list[ScoredPassages]:
    """Return the candidates that the mode ``hybrid`` fuses, which depend on no fusion."""
    lists = []
    for ranked in _rank_candidates(view, settings, queries):
        candidates = ranked.candidates
        passages = candidates.passages.tolist()
        documents = view.documents_of(passages)
        ids = tuple(documents[passage] for passage in passages)
        lists.append(ScoredPassages(ids, candidates.dense, candidates.bm25, candidates.matches))
    return lists


@contextmanager
def cancellable(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """End searches of this thread with a RetrieverError once `is_cancelled` returns True."""
    token = _IS_CANCELLED.set(is_cancelled)
    try:
        yield
    finally:
        _IS_CANCELLED.reset(token)


def check_cancelled() -> None:
    """Raise RetrieverError if nobody waits any more for the search of this thread."""
    is_cancelled = _IS_CANCELLED.get()
    if is_cancelled is not None and is_cancelled():
        raise RetrieverError("the search was canceled, because its client has gone")


def _rank_candidates(
    view: View,
    settings: SearchSettings,
    queries: Sequence[Query],
    where: Where | None = None,
    is_allowed: PassageFilter | None = None,
    *,
    reads_documents: bool = False,
) -> list[_RankedCandidates]:
    """Rank the candidates of each query, of more of them until they hold `k` documents.

    With `reads_documents`, the best passages are read as a whole, since most of them are hits.
    """
    mode = settings.mode
    k = settings.k
    depth = 2 * k
    fusion = settings.fusion
    if mode == "hybrid" or settings.reads_dates:
        depth = max(depth, settings.depth)
    if mode == "hybrid":
        fusion = fusion.completed(view.setting(FIT, {}).get("weight", DEFAULT_WEIGHT))
    ranking = view.ranking(settings.bm25, where, settings.recall)
    ranked = dict[int, _RankedCandidates]()
    open_queries = list(range(len(queries)))
    while open_queries:
        lists = ranking.candidates([queries[i] for i in open_queries], mode, depth)
        deeper = []
        for i, candidates in zip(open_queries, lists, strict=True):
            _, dense, bm25, matches, is_complete = candidates
            scores = ranking_scores(mode, dense, bm25, matches, fusion)
            # A newer document may rise from among the last candidates.
            limit = max(k, len(scores)) if settings.reads_dates else k
            best, passages = _best_documents(
                view, candidates, scores, limit, is_allowed, reads_documents
            )
            if len(best) < k and not is_complete:
                deeper.append(i)
            else:
                ranked[i] = _RankedCandidates(candidates, scores, best, passages)
        open_queries = deeper
        # The best passages belong to fewer than `k` documents.
        depth *= 4
    return [ranked[i] for i in range(len(queries))]


def _best_documents(
    view: View,
    candidates: Candidates,
    scores: NDArray[np.float64],
    k: int,
    is_allowed: PassageFilter | None,
    reads_documents: bool,
) -> tuple[dict[str, int], dict[int, Passage]]:
    """Return the positions of the best candidates of the best `k` documents, by document id.

    Ties are ordered as in `best_passages`. The second value has the passages that were read.
    """
    best = dict[str, int]()
    stored: dict[int, Passage] = {}
    order = np.argsort(-scores)
    # Lists, which are faster than arrays for a few values.
    descending = scores[order].tolist()
    passages = candidates.passages[order].tolist()
    positions = order.tolist()
    start = 0
    # Documents are looked up for some k candidates at a time, since most candidates are no hits.
    while len(best) < k and start < len(positions):
        check_cancelled()
        # Equal scores belong to one chunk.
        last = descending[min(start + k, len(positions)) - 1]
        stop = bisect_right(descending, -last, key=neg)
        numbers = passages[start:stop]
        chunk_scores = descending[start:stop]
        chunk_positions = positions[start:stop]
        if reads_documents and not stored:
            stored = view.passages(numbers[: 2 * k])
        ids = _document_ids(view, numbers, stored)
        if is_allowed is not None:
            allowed = list(map(is_allowed, ids, numbers))
            ids = list(compress(ids, allowed))
            numbers = list(compress(numbers, allowed))
            chunk_scores = list(compress(chunk_scores, allowed))
            chunk_positions = list(compress(chunk_positions, allowed))
        for document, i in best_passages(chunk_scores, ids, numbers).items():
            best.setdefault(document, chunk_positions[i])
        start = stop
    return dict(islice(best.items(), k)), stored


def _document_ids(view: View, numbers: list[int], stored: Mapping[int, Passage]) -> list[str]:
    """Return the id of each passage's document; look up the passages that `stored` lacks."""
    unread = [number for number in numbers if number not in stored]
    ids = view.documents_of(unread) if unread else {}
    return [stored[number].id if number in stored else ids[number] for number in numbers]
