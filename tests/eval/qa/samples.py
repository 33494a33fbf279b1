"""A made question set whose answers share words with their questions."""

import json
from dataclasses import replace

import numpy as np

from eval.datasets.question_set import Question, QuestionSet


def sentence(chance, words=8):
    return " ".join(f"w{word}" for word in chance.integers(0, 200, words))


def made_set(split="test", count=12, pool=6, seed=0, answered=1.0):
    """Each question repeats some words of its first candidate, which answers it."""
    chance = np.random.default_rng([seed, sum(map(ord, split))])
    passages = {f"d{number}": sentence(chance) for number in range(5 * pool)}
    questions = []
    for number in range(count):
        ids = [str(one) for one in chance.choice(list(passages), pool, replace=False)]
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
    for one in sets:
        prefix = f"{one.split}-"
        corpus += [{"id": prefix + id_, "text": text} for id_, text in one.passages.items()]
        queries = [{"id": question.id, "text": question.text} for question in one.questions]
        pools = [
            {"qid": question.id, "candidates": [prefix + id_ for id_ in question.candidates]}
            for question in one.questions
        ]
        write_rows(folder / f"queries.{one.split}.jsonl", queries)
        write_rows(folder / f"candidates.{one.split}.jsonl", pools)
        qrels = [
            f"{question.id} 0 {prefix}{id_} {grade}\n"
            for question in one.questions
            for id_, grade in question.grades.items()
        ]
        (folder / f"qrels.{one.split}.tsv").write_text("".join(qrels))
    write_rows(folder / "corpus.jsonl", corpus)
    return folder


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def without_pools(questions, path):
    """The set without pools, over a corpus file of its passages, which is written."""
    passages = questions.passages.items()
    write_rows(path, ({"id": id_, "text": text} for id_, text in passages))
    bare = tuple(replace(one, candidates=()) for one in questions.questions)
    return replace(questions, passages={}, corpus=(path,), questions=bare)
