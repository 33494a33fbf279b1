"""Rankings whose first documents a cross-encoder scores again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from eval.progress import Progress
from eval.qa.pools import Floats
from eval.settings import Loading
from eval.tuning.budget import Budget
from eval.tuning.caches import RecentValues
from eval.tuning.candidates import CandidateLists
from eval.tuning.pipeline import Pipeline
from eval.tuning.texts import CollectionTexts, PassageTexts
from retriever.documents import passage_text
from retriever.errors import ConfigError
from retriever.search import Reranker, best_passages, load_reranker

# Rerankers that stay loaded, and divisions into passages whose scores stay in memory.
_LOADED = 2
_REMEMBERED = 6


class Reranking:
    """Scores of candidates by the reranker of a pipeline."""

    def __init__(
        self, texts: CollectionTexts, loading: Loading, budget: Budget, progress: Progress
    ) -> None:
        self._texts = texts
        self._loading = loading
        self._budget = budget
        self._progress = progress
        self._rerankers = RecentValues(_LOADED)
        self._pair_scores = RecentValues(_REMEMBERED)

    def load(self, name: str) -> Reranker:
        """Load a cross-encoder by its folder or hub id; ConfigError if it is a head on vectors."""
        loading = self._loading
        reranker = self._rerankers.get_or_make(
            name, lambda: load_reranker(name, device=loading.device, download=loading.download)
        )
        if reranker.reads_vectors:
            raise ConfigError(
                f"{name}: expected a cross-encoder, found a head on the vectors of one encoder; "
                "name a cross-encoder (`tune` trains a query map, a kind of head, by itself)"
            )
        return reranker

    def document_scores(self, candidates: CandidateLists, pipeline: Pipeline) -> Floats:
        """Return (ranked documents,) scores with the first `search.depth` documents reranked.

        The other documents stay behind these in their order.
        """
        name = str(pipeline.rerank)
        passages = self._texts.passages(pipeline)
        search = pipeline.search
        ranking_scores = candidates.components.ranking_scores(search.mode, search.fusion)
        pair_scores = self._pair_scores.get_or_make(
            (name, self._texts.passage_key(pipeline)), dict[tuple[int, int], float]
        )
        sizes = candidates.components.sizes
        done = self._budget.watch(self._progress(f"reranking with {name}", len(sizes)))
        scores = np.empty(len(candidates.starts))
        first_candidate = 0
        first_document = 0
        for question, size in enumerate(sizes):
            of_question = slice(first_candidate, first_candidate + size)
            documents = candidates.documents[of_question]
            # Documents have descending ids, so their negative positions order as ids do.
            best = best_passages(
                ranking_scores[of_question].tolist(), (-documents).tolist(), range(size)
            )
            order = first_document + np.searchsorted(
                np.unique(documents), [-negative for negative in best]
            )
            positions = first_candidate + np.fromiter(best.values(), np.int64, len(best))
            is_ranked = np.isfinite(ranking_scores[positions])
            rows = candidates.rows[positions[is_ranked][: search.depth]].tolist()
            new = [row for row in rows if (question, row) not in pair_scores]
            new_scores = self.score_pairs(name, question, passages, new)
            pair_scores.update(
                ((question, row), score) for row, score in zip(new, new_scores, strict=True)
            )
            reranked = [pair_scores[question, row] for row in rows]
            scores[order] = min(reranked, default=0.0) - 1.0 - np.arange(len(order))
            scores[order[: len(reranked)]] = reranked
            first_candidate += size
            first_document += len(best)
            done(1)
        return scores

    def score_pairs(
        self, name: str, question: int, passages: PassageTexts, rows: Sequence[int]
    ) -> list[float]:
        """Score a question with passages, which the reranker reads with their titles."""
        documents = self._texts.collection.documents
        texts = [
            passage_text(documents[passages.documents[row]], passages.spans[row]) for row in rows
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = self.load(name).score(self._texts.questions[question], None, texts, None)
        return [float(score) for score in scores]
