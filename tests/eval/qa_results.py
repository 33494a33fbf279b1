"""Made-up results of a question-answering evaluation."""

from __future__ import annotations

import numpy as np

from eval.datasets.qa.statistics import statistics
from eval.qa.result import QAResult, SystemResult
from tests.eval.qa_samples import made_set

MEASURES = ("AP", "P@1", "nDCG@10")
ODD = "$x^{2$|<b>*_`@/%s"


def noise(questions, strength, seed):
    """The relevant passage is this much above the others on average; some scores are equal."""
    chance = np.random.default_rng(seed)
    return {
        one.id: {
            passage: round(float(chance.normal() + strength * (one.grades.get(passage, 0) > 0)), 1)
            for passage in one.candidates
        }
        for one in questions.questions
    }


def result(systems=None, *, count_unanswered=False, questions=None, baseline=None):
    questions = questions or made_set(count=24, pool=8, answered=0.75)
    systems = systems or [
        SystemResult("bm25", (noise(questions, 0, 1),)),
        SystemResult(
            "uv:mlp",
            tuple(noise(questions, 3, seed) for seed in (2, 3, 4)),
            "dev MAP 80.00",
            ((0.1, 0.5), (0.2, 0.4, 0.6), (0.3, 0.3)),
            12.5,
        ),
    ]
    return QAResult.of(
        questions,
        statistics(questions),
        MEASURES,
        systems,
        baseline=baseline,
        count_unanswered=count_unanswered,
        resamples=500,
        seed=0,
        command="retriever eval qa set",
        environment={"python": "3.11", "torch": "2.9"},
    )


def qrels_of(found):
    return {
        one.id: one.grades
        for one in found.questions.questions
        if one.answered or not found.comparison.excluded
    }
