"""Ranking the documents of an index for a query: dense, BM25 or both.

Scores belong to passages; a hit is a document, ranked by its best passage. Candidates are the
best passages of each component, those with the lower numbers where scores are equal; in the hybrid
mode every candidate is scored by both before the two are fused. Higher scores are better
everywhere; documents with equal ones are ordered by id.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.documents.outline import Place, place, read_outline
from retriever.errors import MissingExtraError, RetrieverError, unknown_name
from retriever.search.fusion import DEFAULT_WEIGHT, FIT, fuse, ranks
from retriever.search.settings import SearchSettings

if TYPE_CHECKING:
    from indexes import Candidates, Passage, Query, View, Where

# Whether nobody waits any more for the search that a thread does; None where it is not said.
_IS_CANCELLED: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)

_IN_JSON = (
    *("rank", "score", "id", "title", "passage", "start", "stop"),
    *("dense", "dense_rank", "bm25", "bm25_rank"),
)
_VALUES = attrgetter(*_IN_JSON)
_NOWHERE = Place()


@dataclass(slots=True)
class Hit:
    """A document found, with the passage that scored best.

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
        bm25_rank: likewise; None if the passage holds no query term.
        passage_number: the passage's stable number in the index.
        first_rank: the rank before reranking; None without a reranker.
        copies: ids of the documents that `collapse` has folded into this one, best first.
        place: the pages, headings, lines or message of the passage; None where the document has no
            outline.
        probability: that the document is relevant; None where nothing was learned of it, beyond
            the first ten hits, and with a reranker or a query map; see
            `retriever.search.calibration`.
        answer_probability: likewise, that one of the first ten hits of the query is.
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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_name(self, name)

    def keys(self) -> Iterable[str]:
        """Return the names that `hit[name]` takes, so that `dict(hit)` is `to_json()`."""
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
        """As JSON values, without `passage_number`; the last four only where there are any."""
        found = dict(zip(_IN_JSON, _VALUES(self), strict=True))
        if self.first_rank is not None:
            found["first_rank"] = self.first_rank
        if self.copies:
            found["copies"] = list(self.copies)
        if self.place is not None:
            found["place"] = self.place.to_json()
        if self.probability is not None:
            found["probability"] = self.probability
        found["metadata"] = self.metadata
        return found


def hit_of(
    passage: Passage, rank: int, score: float = 0.0, components: tuple[Any, ...] = (None,) * 4
) -> Hit:
    """The hit of a stored passage; components are its dense score and rank, and those of BM25."""
    span = (passage.start, passage.stop)
    text = passage.text
    shown = text[slice(*span)]
    metadata = passage.metadata
    dense, dense_rank, bm25, bm25_rank = components
    # An outline may hold labels alone.
    hit_place = place(read_outline(passage.outline), text, span) if passage.outline else _NOWHERE
    return Hit(
        *(rank, score, passage.id, passage.title, shown, *span, metadata),
        *(dense, dense_rank, bm25, bm25_rank, passage.passage),
        place=None if hit_place == _NOWHERE else hit_place,
    )


class Hits(list[Hit]):
    """The hits of one query, a list."""

    def to_list(self) -> list[dict[str, Any]]:
        """Return the hits as JSON values, each as `Hit.to_json`."""
        return [hit.to_json() for hit in self]

    def to_pandas(self) -> Any:
        """A DataFrame with a row per hit and the columns of `Hit.to_json`; needs pandas."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingExtraError("to_pandas needs pandas: pip install pandas") from error
        columns = None if self else [*_IN_JSON, "metadata"]
        return pandas.DataFrame([hit.to_json() for hit in self], columns=columns)


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


class _Ranked(NamedTuple):
    candidates: Candidates
    # (n,) float64, what they are ranked by.
    scores: NDArray[np.float64]
    # By id of a document, best first, the place of its hit among the candidates.
    chosen: dict[str, int]


def ranked_hits(
    view: View,
    settings: SearchSettings,
    queries: Sequence[Query],
    where: Where | None = None,
    demands: Callable[[str, int], bool] | None = None,
) -> list[list[Hit]]:
    """The best `k` documents of each query; ``bm25`` ranks only those that hold a term.

    `demands` says whether a passage of a document may be a hit.
    """
    hits = []
    for found, scores, places in _ranked(view, settings, queries, where, demands):
        chosen = np.array([*places.values()], np.intp)
        numbers = found.passages[chosen].tolist()
        dense, dense_ranks, bm25, bm25_ranks = ([None] * len(numbers),) * 4
        if settings.mode != "bm25":
            dense = found.dense[chosen].tolist()
            dense_ranks = ranks(found.dense)[chosen].tolist()
        if settings.mode != "dense":
            bm25 = found.bm25[chosen].tolist()
            # The rank of what is not ranked is 0.
            own = ranks(found.bm25, found.matches)[chosen].tolist()
            bm25_ranks = [rank or None for rank in own]
        stored = view.passages(numbers)
        components = zip(dense, dense_ranks, bm25, bm25_ranks, strict=True)
        rows = zip(numbers, scores[chosen].tolist(), components, strict=True)
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
    demands: Callable[[str, int], bool] | None = None,
) -> list[list[tuple[str, float]]]:
    """Ids and scores alone of what `ranked_hits` finds."""
    return [
        list(zip(places, scores[[*places.values()]].tolist(), strict=True))
        for _, scores, places in _ranked(view, settings, queries, where, demands)
    ]


def scored_passages(
    view: View, settings: SearchSettings, queries: Sequence[Query]
) -> list[ScoredPassages]:
    """What the mode ``hybrid`` fuses for each query, which does not depend on the fusion."""
    found = []
    for one, _, _ in _ranked(view, settings, queries):
        passages = one.passages.tolist()
        documents = view.documents_of(passages)
        ids = tuple(documents[passage] for passage in passages)
        found.append(ScoredPassages(ids, one.dense, one.bm25, one.matches))
    return found


@contextmanager
def cancellable(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Searches of this thread end with a RetrieverError once `is_cancelled` returns True."""
    token = _IS_CANCELLED.set(is_cancelled)
    try:
        yield
    finally:
        _IS_CANCELLED.reset(token)


def check_cancelled() -> None:
    """End the search of this thread if nobody waits for it any more."""
    is_cancelled = _IS_CANCELLED.get()
    if is_cancelled is not None and is_cancelled():
        raise RetrieverError("the search was given up: nobody waits for it any more")


def _ranked(
    view: View,
    settings: SearchSettings,
    queries: Sequence[Query],
    where: Where | None = None,
    demands: Callable[[str, int], bool] | None = None,
) -> list[_Ranked]:
    """How the candidates of each query rank."""
    mode = settings.mode
    k = settings.k
    depth = 2 * k
    fusion = settings.fusion
    if mode == "hybrid":
        depth = max(depth, settings.depth)
        fusion = fusion.completed(view.setting(FIT, {}).get("weight", DEFAULT_WEIGHT))
    ranking = view.ranking(settings.bm25, where, settings.recall)
    final = dict[int, _Ranked]()
    open_queries = list(range(len(queries)))
    while open_queries:
        candidates = ranking.candidates([queries[i] for i in open_queries], mode, depth)
        deeper = []
        for i, found in zip(open_queries, candidates, strict=True):
            scores = found.dense if mode == "dense" else found.bm25
            if mode == "hybrid":
                scores = fuse(found.dense, found.bm25, found.matches, fusion)
            chosen = _chosen(view, found, scores, k, demands)
            if len(chosen) < k and not found.complete:
                deeper.append(i)
            else:
                final[i] = _Ranked(found, scores, chosen)
        open_queries = deeper
        # The best passages belong to fewer than `k` documents.
        depth *= 4
    return [final[i] for i in range(len(queries))]


def _chosen(
    view: View,
    found: Candidates,
    scores: NDArray[np.float64],
    k: int,
    demands: Callable[[str, int], bool] | None,
) -> dict[str, int]:
    """The best candidates' places by document, of `k`; equal scores by id, then passage."""
    best = dict[str, int]()
    order = np.argsort(-scores)
    # Lists, since there are few.
    negated = (-scores[order]).tolist()
    passages = found.passages[order].tolist()
    places = order.tolist()
    start = 0
    # A few at a time, since most candidates are no hits; equal scores together.
    while len(best) < k and start < len(places):
        check_cancelled()
        stop = bisect_right(negated, negated[min(start + k, len(places)) - 1])
        part = passages[start:stop]
        documents = view.documents_of(part)
        ids = [documents[passage] for passage in part]
        rows = zip(negated[start:stop], ids, part, places[start:stop], strict=True)
        for _, document, passage, i in sorted(rows):
            if demands is None or demands(document, passage):
                best.setdefault(document, i)
        start = stop
    return dict(islice(best.items(), k))
