"""InsuranceQA (Feng et al. 2015), versions 1 and 2, as https://github.com/shuzi/insuranceQA has it.

Texts are indices of words, which a vocabulary resolves. Questions have no ids of their own: a
question's is the number of its line, from 1; an answer's is its label. An answer that a pool lists
twice is in it once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from eval.datasets.files import existing, matching, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import pool_of, put_new, rows
from retriever.errors import SourceError

VOCABULARY = "vocabulary"
ANSWERS_1 = "answers.label.token_idx"
ANSWERS_2 = "InsuranceQA.label2answer.token.encoded"
QUESTIONS_2 = "InsuranceQA.question.anslabel.token.*.pool.solr.*.encoded"

_TRAIN_1 = "question.train.token_idx.label"
_POOLED_1 = ("dev", "test1", "test2")
_NAME_2 = re.compile(
    r"InsuranceQA\.question\.anslabel\.token\.([0-9]+)\.pool\.solr\.([a-z]+)\.encoded(?:\.gz)?"
)
_OFFICIAL_2 = {"train": "train", "dev": "valid", "test": "test"}
_USUAL_POOL = "500"


def splits_1(folder: Path) -> tuple[str, ...]:
    """Those of version 1 that have a file."""
    return tuple(split for split in ("train", *_POOLED_1) if existing(_questions_1(folder, split)))


def read_1(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split of version 1: train, dev, test1 or test2.

    Training questions come without pools. Their candidates are their answers alone, and what trains
    on them has to draw other passages.

    Raises:
        SourceError: a file is missing or malformed, or names a word or an answer that is not
            there; names file and line.
    """
    words = _vocabulary(folder, split)
    answers = _answers(required(folder / ANSWERS_1, split), words)
    path = required(_questions_1(folder, split), split, splits_1(folder))
    questions = []
    for number, (where, question, truth, pool) in enumerate(_lines_1(path, split), 1):
        correct = _labels(where, truth, answers)
        candidates = correct if pool is None else _labels(where, pool, answers)
        questions.append(_question(number, _text(where, question, words), correct, candidates))
    return QuestionSet("InsuranceQA v1", split, tuple(questions), answers)


def splits_2(folder: Path) -> tuple[str, ...]:
    """Those of version 2 that have a file for some size of pools; dev is called valid there."""
    there = {match[2] for match in _names_2(folder)}
    return tuple(split for split, official in _OFFICIAL_2.items() if official in there)


def variants_2(folder: Path) -> tuple[str, ...]:
    """The sizes of pools that are there: 500 first, then ascending."""
    sizes = {match[1] for match in _names_2(folder)}
    return tuple(sorted(sizes, key=lambda size: (size != _USUAL_POOL, int(size))))


def read_2(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split of version 2: train, dev or test, with pools of the size `variant`.

    The pools are what a search engine found: an answer that is not in one counts all the same.

    Raises:
        SourceError: as `read_1`.
    """
    words = _vocabulary(folder, split)
    answers = _answers(required(folder / ANSWERS_2, split), words)
    size = variant or variants_2(folder)[0]
    name = QUESTIONS_2.replace("*", size, 1).replace("*", _OFFICIAL_2[split])
    path = required(folder / name, split, splits_2(folder))
    questions = []
    names = ("domain", "question", "ground truth", "pool")
    for number, (where, (_, question, truth, pool)) in enumerate(rows(path, names), 1):
        correct = _labels(where, truth, answers)
        candidates = _labels(where, pool, answers)
        questions.append(_question(number, _text(where, question, words), correct, candidates))
    title = f"InsuranceQA v2, pools of {size}"
    return QuestionSet(title, split, tuple(questions), answers)


def _questions_1(folder: Path, split: str) -> Path:
    return folder / (_TRAIN_1 if split == "train" else f"question.{split}.label.token_idx.pool")


def _lines_1(path: Path, split: str) -> Iterator[tuple[str, str, str, str | None]]:
    """Place, question, ground truth and pool of each line."""
    if split == "train":
        for where, (question, truth) in rows(path, ("question", "ground truth")):
            yield where, question, truth, None
    else:
        for where, (truth, question, pool) in rows(path, ("ground truth", "question", "pool")):
            yield where, question, truth, pool


def _names_2(folder: Path) -> list[re.Match[str]]:
    names = (path.name for path in matching(folder, QUESTIONS_2))
    return [match for match in map(_NAME_2.fullmatch, names) if match]


def _vocabulary(folder: Path, split: str) -> dict[str, str]:
    words: dict[str, str] = {}
    seen: dict[str, str] = {}
    for where, (index, word) in rows(required(folder / VOCABULARY, split), ("index", "word")):
        put_new(seen, where, index, "word")
        words[index] = word
    return words


def _answers(path: Path, words: Mapping[str, str]) -> dict[str, str]:
    answers: dict[str, str] = {}
    seen: dict[str, str] = {}
    for where, (label, text) in rows(path, ("label", "answer")):
        put_new(seen, where, label, "answer")
        answers[label] = _text(where, text, words)
    return answers


def _text(where: str, indices: str, words: Mapping[str, str]) -> str:
    try:
        return " ".join(words[index] for index in indices.split())
    except KeyError as error:
        raise SourceError(
            f"{where}: expected indices of words in the file {VOCABULARY}, found "
            f"{error.args[0]!r}; correct the line, or take both files from one version"
        ) from error


def _labels(where: str, text: str, answers: Mapping[str, str]) -> list[str]:
    labels = text.split()
    unknown = next((label for label in labels if label not in answers), None)
    if unknown is not None or not labels:
        found = "none" if unknown is None else repr(unknown)
        raise SourceError(
            f"{where}: expected labels of answers separated by spaces, found {found}; correct the "
            "line"
        )
    return labels


def _question(number: int, text: str, correct: list[str], candidates: list[str]) -> Question:
    return Question(str(number), text, pool_of(candidates), dict.fromkeys(correct, 1))
