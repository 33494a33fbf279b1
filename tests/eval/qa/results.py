"""Made-up results of an evaluation on a question set."""

import numpy as np

from eval.qa.result import QAResult, SystemResult
from eval.qa.systems import QASettings
from eval.settings import Resampling
from tests.eval.qa.samples import made_set

MEASURES = ("AP", "P@1", "nDCG@10")
ODD = "$x^{2$|<b>*_`@/%s"


def noise(questions, strength, seed):
    """(pairs,) scores: the relevant passage is this much above the others; some are equal."""
    chance = np.random.default_rng(seed)
    relevant = [one.grades.get(id_, 0) > 0 for one in questions.questions for id_ in one.candidates]
    return np.round(chance.normal(size=len(relevant)) + strength * np.array(relevant), 1)


def system(name, questions, *scores, **more):
    """A system that ranks the pools of the questions by these scores, one array a seed."""
    return SystemResult(name, questions.questions, scores, **more)


def result(systems=None, *, without_positive="exclude", questions=None, baseline=None, top=3):
    questions = questions or made_set(count=24, pool=8, answered=0.75)
    systems = systems or [
        system("bm25", questions, noise(questions, 0, 1)),
        system(
            "uv:mlp",
            questions,
            *(noise(questions, 3, seed) for seed in (2, 3, 4)),
            note="dev AP 80.00",
            curves=((0.1, 0.5), (0.2, 0.4, 0.6), (0.3, 0.3)),
            seconds=12.5,
        ),
    ]
    settings = QASettings(
        without_positive=without_positive, baseline=baseline, resampling=Resampling(500), top=top
    )
    return QAResult.of(questions, systems, MEASURES, settings, command="retriever eval qa set")


def runs_of(one):
    """The rankings of a system, for each seed query to document to score."""
    return [
        {query: dict(ranked) for query, ranked in one.run(seed).items()}
        for seed in range(len(one.scores))
    ]


def qrels_of(found):
    return {
        one.id: one.grades
        for one in found.questions.questions
        if one.answered or not found.comparison.excluded
    }
