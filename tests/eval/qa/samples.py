"""A made question set whose answers share words with their questions."""

from __future__ import annotations

import json

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
        corpus += [{"id": f"{one.split}-{id_}", "text": text} for id_, text in one.passages.items()]
        queries = [{"id": question.id, "text": question.text} for question in one.questions]
        pools = [
            {
                "qid": question.id,
                "candidates": [f"{one.split}-{id_}" for id_ in question.candidates],
            }
            for question in one.questions
        ]
        for name, rows in (("queries", queries), ("candidates", pools)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}.{one.split}.jsonl").write_text(text)
        qrels = [
            f"{question.id} 0 {one.split}-{id_} {grade}\n"
            for question in one.questions
            for id_, grade in question.grades.items()
        ]
        (folder / f"qrels.{one.split}.tsv").write_text("".join(qrels))
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    return folder
