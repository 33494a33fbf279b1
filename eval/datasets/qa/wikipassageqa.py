"""WikiPassageQA (Cohen et al. 2018): questions with all passages of a Wikipedia article each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.datasets.files import existing, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import json_of, pool_of, put_new, table
from retriever.errors import SourceError

PASSAGES = "document_passages.json"
_HEADER = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")
_FORM = 'one JSON object {"document": {"passage": "text"}}'
_SPLITS = ("train", "dev", "test")


def splits(folder: Path) -> tuple[str, ...]:
    """Those that have a file."""
    return tuple(split for split in _SPLITS if existing(folder / f"{split}.tsv"))


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split; a passage's id is "document_passage", and a pool the whole document.

    Raises:
        SourceError: a file is missing or malformed, or names a document or a passage that is not
            there; names file and line.
    """
    documents = _documents(required(folder / PASSAGES, split))
    path = required(folder / f"{split}.tsv", split, splits(folder))
    questions = []
    seen: dict[str, str] = {}
    for where, (id_, text, document, _, relevant) in table(path, _HEADER):
        put_new(seen, where, id_, "question")
        if document not in documents:
            raise SourceError(
                f"{where}: expected a document of {PASSAGES}, found {document!r}; correct the line"
            )
        passages = documents[document]
        grades = {}
        for number in filter(None, (one.strip() for one in relevant.split(","))):
            if number not in passages:
                raise SourceError(
                    f"{where}: expected passages of document {document} separated by commas, found "
                    f"{number!r}; correct the line"
                )
            grades[f"{document}_{number}"] = 1
        pool = pool_of(f"{document}_{number}" for number in passages)
        questions.append(Question(id_, text, pool, grades))
    texts = {
        f"{document}_{number}": text
        for document, passages in documents.items()
        for number, text in passages.items()
    }
    return QuestionSet("WikiPassageQA", split, tuple(questions), texts)


def _documents(path: Path) -> dict[str, dict[str, str]]:
    value: Any = json_of(path, _FORM)
    if not isinstance(value, dict):
        found = type(value).__name__
        raise SourceError(f"{path}: expected {_FORM}, found a {found}; download it again")
    for document, passages in value.items():
        if not (
            isinstance(passages, dict)
            and passages
            and all(isinstance(text, str) for text in passages.values())
        ):
            raise SourceError(
                f"{path}: expected {_FORM}, found another value for document {document!r}; correct "
                "it"
            )
    return value
