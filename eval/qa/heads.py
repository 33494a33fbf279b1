"""Training a head on the vectors of a question set, and trying it as a map of query vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import QuestionSet
from eval.metrics.comparison import compare_values
from eval.metrics.correlation import RANKED_DECIMALS
from eval.metrics.measures import PoolMeasures
from eval.qa.pools import DEV_MEASURE, EmbeddedPairs
from eval.qa.resources import Ranked, Resources, ranked
from eval.qa.systems import HeadPlan
from eval.settings import Resampling
from eval.vectors import embed
from retriever.rerankers.head import QueryMap, Scorer, TrainedHead, train_head

Floats = NDArray[np.float32]
# Ranks a whole corpus for questions with their vectors, which a map may change.
_Search = Callable[[QuestionSet, Floats, QueryMap | None], Ranked]

_FOLDS = 5
_QUESTIONS_AT_ONCE = 64


class HeadTrainer:
    """Trains heads of one plan on the questions of a training split, or on some of them."""

    def __init__(self, plan: HeadPlan, resources: Resources, encoder: str = "") -> None:
        self.resources = resources
        self.encoder = encoder
        self._plan = plan
        train = resources.training_set(plan.training.sampling.negatives)
        model, cache = resources.encoder(encoder), resources.settings.loading.cache
        texts = len(train.questions) + len(train.passages)
        done = resources.progress("encoding the training split", texts)
        self.questions = embed(model, train.questions, cache, query=True, done=done).vectors
        self._passages = embed(model, train.passages, cache, done=done).vectors
        self._pools = train.pools
        self.trainable = len(train.pools.trainable(plan.training.sampling.negatives))
        self._dev = resources.pairs(resources.dev.questions, encoder)

    def __call__(self, seed: int, rows: NDArray[np.int64] | None = None) -> TrainedHead:
        """A head trained on all questions, or on those with these numbers, by the best dev AP."""
        training = replace(self._plan.training, seed=seed)
        questions, pools = self.questions, self._pools
        if rows is not None:
            questions, pools = questions[rows], pools.part(rows)
        dev = self.resources.dev

        def dev_score(score: Scorer) -> float:
            return dev(head_scores(score, self._dev))

        return train_head(training, self._plan.head, questions, self._passages, pools, dev_score)


def fit_heads(trainer: HeadTrainer, seeds: int, name: str) -> list[TrainedHead]:
    """Train a head with each seed, and keep the epoch with the best AP on dev."""
    advance = trainer.resources.progress(f"training {name}", seeds)
    trained = []
    for seed in range(seeds):
        trained.append(trainer(seed))
        advance(1)
    return trained


def head_scores(score: Scorer, pairs: EmbeddedPairs) -> Floats:
    """(pairs,) scores of a head."""
    return score(pairs.questions, pairs.passages, pairs.question_rows, pairs.passage_rows)


def try_query_map(trainer: HeadTrainer) -> Mapping[str, Any] | None:
    """Search the whole corpus for each training question with a map that was not trained on it.

    The questions are divided into five parts, always in the same way. A head that is trained on
    four of them, with its epoch chosen on dev, maps the questions of the fifth.

    Returns:
        JSON values: mean AP without and with a map, the difference, and whether it is better; None
        of too few questions.
    """
    if trainer.trainable < 2 * _FOLDS:
        return None
    questions = trainer.resources.train_questions.answered()
    folds = np.random.default_rng(0).permutation(len(questions)) % _FOLDS
    search = _first_stage(trainer, questions)
    advance = trainer.resources.progress("trying the query map", _FOLDS)
    values = {name: np.zeros(len(questions)) for name in ("mapped", "plain")}
    for fold in range(_FOLDS):
        rest, rows = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        part = replace(questions, questions=tuple(questions.questions[row] for row in rows))
        query_map = QueryMap(trainer(0, rest).head.matrix.detach().numpy())
        # Without a map last, as an index was before.
        for name, used in (("mapped", query_map), ("plain", None)):
            pools, scores = search(part, trainer.questions[rows], used)
            values[name][rows] = PoolMeasures(pools, [DEV_MEASURE])(scores)[DEV_MEASURE]
        advance(1)
    found = compare_values(values, "plain", Resampling())
    difference = found["mapped"].difference
    assert difference is not None
    return {
        "better": difference.significant and difference.value > 0,
        "measure": DEV_MEASURE,
        "questions": len(questions),
        "difference": asdict(difference),
        **{name: score.value for name, score in found.items()},
    }


def _first_stage(trainer: HeadTrainer, questions: QuestionSet) -> _Search:
    resources = trainer.resources
    if (corpus := resources.corpus) is not None:

        def ask(part: QuestionSet, vectors: Floats, query_map: QueryMap | None) -> Ranked:
            corpus.index.query_map = query_map
            return corpus.ranked(part, "dense")

        return ask
    ids, texts = list(questions.passages), list(questions.passages.values())
    done = resources.progress("encoding all passages", len(set(texts)))
    model, cache = resources.encoder(trainer.encoder), resources.settings.loading.cache
    passages = embed(model, texts, cache, done=done).vectors
    depth = min(resources.settings.data.depth, len(ids))

    def search(part: QuestionSet, vectors: Floats, query_map: QueryMap | None) -> Ranked:
        asked = vectors if query_map is None else query_map(vectors)
        hits = []
        for start in range(0, len(asked), _QUESTIONS_AT_ONCE):
            products = asked[start : start + _QUESTIONS_AT_ONCE] @ passages.T
            for scores in np.round(products, RANKED_DECIMALS):
                best = np.argpartition(-scores, depth - 1)[:depth].tolist()
                hits.append([(ids[place], float(scores[place])) for place in best])
        return ranked(part.questions, hits)

    return search
