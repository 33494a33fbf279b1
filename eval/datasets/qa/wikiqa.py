"""WikiQA (Yang et al. 2015) as Microsoft distributes it: WikiQA-SPLIT.tsv."""

from __future__ import annotations

from pathlib import Path

from eval.datasets.files import existing, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import pool_of, table
from retriever.errors import SourceError

_HEADER = (
    "QuestionID",
    "Question",
    "DocumentID",
    "DocumentTitle",
    "SentenceID",
    "Sentence",
    "Label",
)
_SPLITS = ("train", "dev", "test")


def splits(folder: Path) -> tuple[str, ...]:
    """Those that have a file."""
    return tuple(split for split in _SPLITS if existing(_file(folder, split)))


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split; `passages` are the sentences of all splits that are there.

    Raises:
        SourceError: a file is missing or malformed, has a sentence twice for a question, or another
            text for a sentence or question that it had before; names file and line.
    """
    found = splits(folder)
    required(_file(folder, split), split, found)
    passages: dict[str, str] = {}
    questions = {one: _questions(required(_file(folder, one), one), passages) for one in found}
    return QuestionSet("WikiQA", split, questions[split], passages)


def _file(folder: Path, split: str) -> Path:
    return folder / f"WikiQA-{split}.tsv"


def _questions(path: Path, passages: dict[str, str]) -> tuple[Question, ...]:
    """The questions of a file; its sentences are added to `passages`."""
    texts: dict[str, str] = {}
    labels: dict[str, dict[str, int]] = {}
    for where, (query, question, _, _, sentence, text, label) in table(path, _HEADER):
        if texts.setdefault(query, question) != question:
            raise SourceError(
                f"{where}: expected one text for question {query}, found another; correct the line"
            )
        if passages.setdefault(sentence, text) != text:
            raise SourceError(
                f"{where}: expected one text for sentence {sentence}, found another; correct the "
                "line"
            )
        if label.strip() not in ("0", "1"):
            raise SourceError(
                f"{where}: expected 0 or 1 as Label, found {label!r}; correct the line"
            )
        grades = labels.setdefault(query, {})
        if sentence in grades:
            raise SourceError(
                f"{where}: expected each sentence once for a question, found {sentence} again for "
                f"{query}; remove one of the lines"
            )
        grades[sentence] = int(label)
    return tuple(
        Question(query, texts[query], pool_of(grades), grades) for query, grades in labels.items()
    )
