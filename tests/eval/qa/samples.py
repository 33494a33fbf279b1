"""A made question set whose answers share words with their questions, and made results on it."""

import json
from dataclasses import replace

import numpy as np

from eval.datasets.question_set import Question, QuestionSet
from eval.qa.result import QAResult, SystemResult
from eval.qa.systems import QASettings
from eval.settings import Resampling

MEASURES = ("AP", "P@1", "nDCG@10")
ODD = "$x^{2$|<b>*_`@/%s"


def sentence(chance, words=8):
    return " ".join(f"w{word}" for word in chance.integers(0, 200, words))


def made_set(split="test", count=12, pool=6, seed=0, answered=1.0):
    """Return a set whose questions repeat words of their first candidate, the answer."""
    chance = np.random.default_rng([seed, sum(map(ord, split))])
    passages = {f"d{number}": sentence(chance) for number in range(5 * pool)}
    questions = []
    for number in range(count):
        ids = [str(id_) for id_ in chance.choice(list(passages), pool, replace=False)]
        words = passages[ids[0]].split()[:3]
        grade = int(number < answered * count)
        questions.append(
            Question(
                f"q{number}",
                " ".join([*words, sentence(chance, 3)]),
                tuple(sorted(ids, reverse=True)),
                {ids[0]: grade, ids[1]: 0},
            )
        )
    return QuestionSet("made", split, tuple(questions), passages)


def write_set(folder, *sets):
    """Write sets in the project's own form; their passages get the split's name before the id."""
    folder.mkdir(exist_ok=True)
    corpus = []
    for questions in sets:
        prefix = f"{questions.split}-"
        corpus += [{"id": prefix + id_, "text": text} for id_, text in questions.passages.items()]
        queries = [{"id": question.id, "text": question.text} for question in questions.questions]
        pools = [
            {"qid": question.id, "candidates": [prefix + id_ for id_ in question.candidates]}
            for question in questions.questions
        ]
        write_rows(folder / f"queries.{questions.split}.jsonl", queries)
        write_rows(folder / f"candidates.{questions.split}.jsonl", pools)
        qrels = [
            f"{question.id} 0 {prefix}{id_} {grade}\n"
            for question in questions.questions
            for id_, grade in question.grades.items()
        ]
        (folder / f"qrels.{questions.split}.tsv").write_text("".join(qrels))
    write_rows(folder / "corpus.jsonl", corpus)
    return folder


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def without_pools(questions, path):
    """Write the passages as a corpus file and return the set without pools over it."""
    passages = questions.passages.items()
    write_rows(path, ({"id": id_, "text": text} for id_, text in passages))
    bare = tuple(replace(question, candidates=()) for question in questions.questions)
    return replace(questions, passages={}, corpus=(path,), questions=bare)


def noise(questions, strength, seed):
    """Return noisy scores (pairs,) that rank relevant passages higher by `strength`."""
    chance = np.random.default_rng(seed)
    relevant = [
        question.grades.get(id_, 0) > 0
        for question in questions.questions
        for id_ in question.candidates
    ]
    return np.round(chance.normal(size=len(relevant)) + strength * np.array(relevant), 1)


def system(name, questions, *scores, **more):
    """Return a system that ranks the pools by these scores, one array per seed."""
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


def runs_of(system_result):
    """List the runs of a system, one per seed: query to document to score."""
    return [
        {query: dict(ranked) for query, ranked in system_result.run(seed).items()}
        for seed in range(len(system_result.scores))
    ]


def qrels_of(qa_result):
    return {
        question.id: question.grades
        for question in qa_result.questions.questions
        if question.answered or not qa_result.comparison.excluded
    }
