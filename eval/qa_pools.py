"""Questions with pools of candidates to rank, in the project's form.

A folder holds `corpus.jsonl` and `queries.SPLIT.jsonl` (`{"id", "text"}` a line),
`candidates.SPLIT.jsonl` (`{"qid", "candidates": [id, ...]}` a line) and `qrels.SPLIT.tsv` (TREC or
BEIR form). A candidate is its text alone, as in published results on sets of answer sentences: a
title, which would be the same for most of a pool, is not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.lines import numbered_lines
from eval.trec import read_qrels
from indexes.errors import SourceError
from retriever.corpus import CorpusReader, Fields

_FORM = '{"qid": "...", "candidates": ["...", ...]}'
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Question:
    """A question and what is to be ranked for it.

    Attributes:
        id: the question's.
        text: the question's.
        candidates: ids of its pool, descending, which is the order of equal scores in trec_eval.
        grades: document to grade, of all that is judged for it, in the pool or not.
    """

    id: str
    text: str
    candidates: tuple[str, ...]
    grades: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QuestionPools:
    """The questions of a split that have an answer.

    Attributes:
        questions: those with a grade of at least 1, in the order of the queries file.
        texts: candidate to its text, for the candidates of these questions.
        without_answer: how many questions were left out because nothing answers them.
    """

    questions: tuple[Question, ...]
    texts: Mapping[str, str]
    without_answer: int

    def __len__(self) -> int:
        return len(self.questions)

    def pairs(self) -> tuple[list[str], list[str]]:
        """Texts of questions and candidates, pool after pool, in the order of `candidates`."""
        left = [question.text for question in self.questions for _ in question.candidates]
        right = [self.texts[one] for question in self.questions for one in question.candidates]
        return left, right


def read_pools(folder: Path, split: str) -> QuestionPools:
    """Read one split of a folder.

    Raises:
        SourceError: a file is missing or malformed, a question with an answer has no pool, or a
            candidate is not in the corpus; names file and, if known, line.
    """
    files = {
        name: folder / name
        for name in (
            "corpus.jsonl",
            f"queries.{split}.jsonl",
            f"candidates.{split}.jsonl",
            f"qrels.{split}.tsv",
        )
    }
    corpus, queries, candidates, qrels = files.values()
    if not folder.is_dir():
        raise SourceError(f"{folder}: expected a folder of questions, found none; check the path")
    for path in files.values():
        if not path.is_file():
            splits = sorted(file.name.split(".")[1] for file in folder.glob("queries.*.jsonl"))
            has = f"; the folder has the splits {', '.join(splits)}" if splits else ""
            raise SourceError(f"{path}: expected this file of the split {split!r}, found none{has}")
    judged = read_qrels(qrels)
    asked = {document.id: document.text for document in _documents(queries)}
    unknown = next((query for query in judged if query not in asked), None)
    if unknown is not None:
        raise SourceError(
            f"{qrels}: expected judgements of the questions in {queries.name}, found question "
            f"{unknown}; add it there or remove its lines"
        )
    answered = [query for query in asked if max(judged.get(query, {}).values(), default=0) >= 1]
    pools = _pools(candidates, asked)
    without_pool = next((query for query in answered if query not in pools), None)
    if without_pool is not None:
        raise SourceError(
            f"{candidates}: expected a pool for each question that has an answer, found none for "
            f"{without_pool}; add a line for it"
        )
    if not answered:
        raise SourceError(
            f"{qrels}: expected a question of {queries.name} with a grade of at least 1, found "
            "none; check the file"
        )
    questions = tuple(
        Question(query, asked[query], tuple(sorted(pools[query][1], reverse=True)), judged[query])
        for query in answered
    )
    texts = _texts(corpus, {one for question in questions for one in question.candidates})
    for question in questions:
        for one in question.candidates:
            if one not in texts:
                where, _ = pools[question.id]
                raise SourceError(
                    f"{where}: expected candidates that are in {corpus.name}, found {one}; "
                    "add it there or remove it here"
                )
    return QuestionPools(questions, texts, len(asked) - len(answered))


def _documents(path: Path) -> CorpusReader:
    return CorpusReader([path], Fields(id="id", text="text"))


def _texts(corpus: Path, wanted: set[str]) -> dict[str, str]:
    return {document.id: document.text for document in _documents(corpus) if document.id in wanted}


def _pools(path: Path, asked: Mapping[str, str]) -> dict[str, tuple[str, list[str]]]:
    """Question to `file:line` and its candidates."""
    pools: dict[str, tuple[str, list[str]]] = {}
    for where, line in numbered_lines(path):
        query, candidates = _pool(where, line)
        if query not in asked or query in pools:
            found = f"{query} again" if query in pools else f"unknown question {query}"
            raise SourceError(
                f"{where}: expected one pool for each question of the queries file, "
                f"found {found}; remove the line"
            )
        pools[query] = where, candidates
    return pools


def _pool(where: str, line: str) -> tuple[str, list[str]]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{where}: expected {_FORM}, found {line.strip()[:_SHOWN]!r}; correct the line"
        ) from error
    query = value.get("qid") if isinstance(value, dict) else None
    candidates = value.get("candidates") if isinstance(value, dict) else None
    if not (
        isinstance(query, str)
        and isinstance(candidates, list)
        and candidates
        and all(isinstance(one, str) for one in candidates)
    ):
        raise SourceError(
            f"{where}: expected {_FORM}, found {line.strip()[:_SHOWN]!r}; correct the line"
        )
    if len(set(candidates)) != len(candidates):
        twice = next(one for one in candidates if candidates.count(one) > 1)
        raise SourceError(
            f"{where}: expected each candidate once, found {twice} twice; remove one of them"
        )
    return query, candidates
