"""Quasar-T and SearchQA as https://github.com/thunlp/OpenQA prepares them.

Line n of `SPLIT.txt` is a question, `{"question": "...", "answers": ["...", ...]}`; line n of
`SPLIT.json` is the list of its paragraphs, `[{"question": [...], "document": ["...", ...]}, ...]`,
as tokens.

The paragraphs are not judged: one is relevant if it contains the words of an answer in a row, as in
Ma et al. (2019, Sec. 3), after both are normalized as in SQuAD's evaluation: lower case, no ASCII
punctuation, no articles (a, an, the).
"""

from __future__ import annotations

import re
import string
from itertools import zip_longest
from pathlib import Path
from typing import Any

from eval.datasets.files import between, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import json_lines, pool_of, unexpected
from retriever.errors import SourceError

_QUESTION = '{"question": "...", "answers": ["...", ...]}'
_PARAGRAPHS = '[{"question": [...], "document": ["...", ...]}, ...]'
_TITLES = {"quasart": "Quasar-T", "searchqa": "SearchQA"}
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def splits(folder: Path) -> tuple[str, ...]:
    """Those with both files."""
    texts, paragraphs = between(folder, "", ".txt"), between(folder, "", ".json")
    return tuple(split for split in texts if split in paragraphs)


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split.

    A question's id is the number of its line, a paragraph's "question-paragraph", both from 1. A
    question without paragraphs is left out. `passages` are those of the split alone: the training
    file of Quasar-T has millions. The name is Quasar-T in a folder called quasart, SearchQA in
    searchqa, else the folder's.

    Raises:
        SourceError: a file is missing or malformed, or the files have different numbers of lines;
            names file and line.
    """
    texts = required(folder / f"{split}.txt", split, splits(folder))
    lists = required(folder / f"{split}.json", split, splits(folder))
    questions = []
    passages: dict[str, str] = {}
    pairs = zip_longest(json_lines(texts, _QUESTION), json_lines(lists, _PARAGRAPHS))
    for number, (asked, found) in enumerate(pairs, 1):
        if asked is None or found is None:
            short, longer = (texts, lists) if asked is None else (lists, texts)
            raise SourceError(
                f"{short}: expected a line for each of {longer.name}, found {number - 1}; download "
                "both again"
            )
        text, answers = _question(*asked)
        grades = {}
        for rank, paragraph in enumerate(_paragraphs(*found), 1):
            id_ = f"{number}-{rank}"
            passages[id_] = paragraph
            grades[id_] = int(contains(paragraph, answers))
        if grades:
            questions.append(Question(str(number), text, pool_of(grades), grades))
    plain = re.sub("[^a-z]", "", folder.resolve().name.lower())
    name = _TITLES.get(plain, folder.resolve().name)
    return QuestionSet(name, split, tuple(questions), passages, answers_in_text=True)


def contains(passage: str, answers: list[str]) -> bool:
    """Whether the words of an answer are in a passage, in a row, both normalized.

    An answer that normalizes to nothing is in no passage.
    """
    words = f" {_normalized(passage)} "
    wanted = (_normalized(answer) for answer in answers)
    return any(answer and f" {answer} " in words for answer in wanted)


def _normalized(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _question(where: str, value: Any) -> tuple[str, list[str]]:
    text = value.get("question") if isinstance(value, dict) else None
    answers = value.get("answers") if isinstance(value, dict) else None
    if (
        not isinstance(text, str)
        or not isinstance(answers, list)
        or not all(isinstance(answer, str) for answer in answers)
    ):
        raise unexpected(where, _QUESTION, value)
    return text, answers


def _paragraphs(where: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise unexpected(where, _PARAGRAPHS, value)
    texts = []
    for paragraph in value:
        tokens = paragraph.get("document") if isinstance(paragraph, dict) else None
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise unexpected(where, _PARAGRAPHS, paragraph)
        texts.append(" ".join(tokens))
    return texts
