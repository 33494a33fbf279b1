"""The calibration error that `calibrate` reports, and that where documents are really deleted.

    python examples/deleted_answers.py $RETRIEVER_DATA/scifact [--mode bm25]

Half of the questions teach. The others are asked twice, each time with the answers of half of them
away: left out of the ranking by a filter, as `calibrate` does, and deleted from a copy of the
index. A deleted document may answer other questions too, which then have no answer either;
"apart" counts only questions that lose no answer so, and as many whose answers are deleted.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from eval import calibrate, read_question_set
from eval.calibration import calibration_error
from eval.datasets.question_forms import splits_of
from retriever import CorpusReader, Index, SearchSettings
from retriever.search.calibration import HITS, exclude_ids

# Averages of word vectors: fast, so that BM25 and fusion decide.
ENCODER = "all-MiniLM-L6-v2::static=average"


def relevant(question):
    """The documents that answer a question."""
    return {id_ for id_, grade in question.grades.items() if grade >= 1}


def answer(index, question, search, where=None):
    """The probability of an answer, and whether there is one."""
    (hits,) = index.search_many([question.text], search, where=where)
    hits = hits[:HITS]
    probability = hits[0].answer_probability if hits else 0.0
    return probability, any(hit.id in relevant(question) for hit in hits)


def main():
    """Print a row for each way of taking answers away."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", default="bm25")
    options = parser.parse_args()
    search = SearchSettings(mode=options.mode)
    with TemporaryDirectory() as folder, Index.create(f"{folder}/index", ENCODER) as index:
        index.add(CorpusReader([options.folder / "corpus.jsonl"]))
        questions = {
            question.id: question
            for split in splits_of(options.folder)
            for question in read_question_set(options.folder, split).questions
            if any(id_ in index for id_ in relevant(question))
        }
        drawn = random.Random(0).sample(sorted(questions), len(questions))
        half = len(drawn) // 2
        taught = {id_: questions[id_] for id_ in drawn[:half]}
        texts = {id_: question.text for id_, question in taught.items()}
        result = calibrate(
            index, texts, {id_: dict(q.grades) for id_, q in taught.items()}, search=search
        )
        index.keep_calibration(result.calibration)
        test_questions = [questions[id_] for id_ in drawn[half:]]
        pairs = {"left out": [], "deleted": [], "left out, apart": [], "deleted, apart": []}
        for part in (0, 1):
            losing, staying = test_questions[part::2], test_questions[1 - part :: 2]
            deleted_ids = set().union(*map(relevant, losing))
            apart = [question for question in staying if not relevant(question) & deleted_ids]
            compared = {question.id for question in [*apart, *losing[: len(apart)]]}
            index.snapshot(f"{folder}/copy {part}")
            with Index.open(f"{folder}/copy {part}") as copy:
                copy.delete([id_ for id_ in deleted_ids if id_ in copy])
                for question in test_questions:
                    where = exclude_ids(sorted(relevant(question))) if question in losing else None
                    facts = {
                        "left out": answer(index, question, search, where),
                        "deleted": answer(copy, question, search),
                    }
                    for name, pair in facts.items():
                        pairs[name].append(pair)
                        if question.id in compared:
                            pairs[f"{name}, apart"].append(pair)
        error = result.figures["calibration_error"]["an answer"]
        print(
            f"reported: error {100 * error['error']:.1f}, by chance {100 * error['by_chance']:.1f}"
        )
        for name, rows in pairs.items():
            probability, facts = np.array(rows).T
            false = probability[facts == 0] >= result.calibration.threshold
            print(
                f"{name}: {len(rows):,} queries, {100 * facts.mean():.1f}% with a relevant hit, "
                f"error {100 * calibration_error(facts, probability):.1f}, "
                f"false answers {100 * false.mean():.1f}%"
            )


if __name__ == "__main__":
    main()
