"""The pairs of a question set as vectors, and their cosines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import QuestionSet
from eval.metrics.comparison import Run
from eval.metrics.cosines import RANKED_DECIMALS, cosines
from eval.vectors.cache import embed
from retriever.encoders.encoder import Encoder

_PAIRS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedPairs:
    """Vectors of questions and of the passages of their pools, each once.

    Attributes:
        questions: (q, d) float32, in the order of the set.
        passages: (p, d) float32.
        question_rows: (pairs,) int64, in the order of `QuestionSet.pairs`.
        passage_rows: (pairs,) int64.
        cut: how many questions and passages were longer than the encoder's window.
    """

    questions: NDArray[np.float32]
    passages: NDArray[np.float32]
    question_rows: NDArray[np.int64]
    passage_rows: NDArray[np.int64]
    cut: int

    def cosines(self) -> NDArray[np.float64]:
        """(pairs,) cosines, rounded to six decimals so that noise does not rank."""
        found = np.empty(len(self.question_rows))
        for start in range(0, len(found), _PAIRS_AT_ONCE):
            rows = slice(start, start + _PAIRS_AT_ONCE)
            found[rows] = cosines(
                self.questions[self.question_rows[rows]], self.passages[self.passage_rows[rows]]
            )
        return np.round(found, RANKED_DECIMALS)


def embed_pairs(
    encoder: Encoder,
    questions: QuestionSet,
    cache: Path | None,
    begin: Callable[[int], Callable[[int], object]] = lambda texts: lambda done: None,
) -> EmbeddedPairs:
    """Encode the questions, and each passage of their pools once.

    Args:
        encoder: of both.
        questions: with pools.
        cache: where vectors are kept; None keeps none.
        begin: told the number of texts, and gives what is told of those that are done.
    """
    ids = list(dict.fromkeys(one for each in questions.questions for one in each.candidates))
    row = {id_: number for number, id_ in enumerate(ids)}
    done = begin(len(questions) + len(ids))
    asked = embed(encoder, [one.text for one in questions.questions], cache, query=True, done=done)
    found = embed(encoder, [questions.passages[one] for one in ids], cache, done=done)
    sizes = [len(one.candidates) for one in questions.questions]
    places = [row[one] for each in questions.questions for one in each.candidates]
    return EmbeddedPairs(
        asked.vectors,
        found.vectors,
        np.repeat(np.arange(len(sizes)), sizes),
        np.array(places, np.int64),
        asked.cut + found.cut,
    )


def as_run(questions: QuestionSet, scores: NDArray[np.floating]) -> Run:
    """(pairs,) scores, in the order of `QuestionSet.pairs`, by question and passage."""
    values = iter(scores.tolist())
    return {
        question.id: {one: next(values) for one in question.candidates}
        for question in questions.questions
    }
