"""The project's own form of questions with passages to rank.

A folder holds `corpus.jsonl` and `queries.SPLIT.jsonl` (`{"id", "text"}` a line), `qrels.SPLIT.tsv`
(TREC or BEIR form) and, for pools, `candidates.SPLIT.jsonl` (`{"qid", "candidates": [id, ...]}` a
line; an empty list is no pool). Titles are not read, as in published results on sets of answer
sentences: most of a pool would have the same one. Without files of candidates the whole corpus is
ranked. With `clean.SPLIT.txt`, an id of a question per line, the set has two variants: raw (the
default), and clean with only these questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eval.datasets.files import between, matching, numbered_lines, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import check_answered, check_judged, json_lines, pool_of, unexpected
from eval.metrics.trec import read_qrels
from retriever.corpus import CorpusReader, Fields
from retriever.errors import SourceError

_FORM = '{"qid": "...", "candidates": ["...", ...]}'

Pools = dict[str, tuple[str, list[str]]]


def splits(folder: Path) -> tuple[str, ...]:
    """Those that have a file of questions."""
    return between(folder, "queries.", ".jsonl")


def variants(folder: Path) -> tuple[str, ...]:
    """`raw` and `clean`, where a split has a list of clean questions."""
    return ("raw", "clean") if matching(folder, "clean.*.txt") else ()


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split.

    Questions are in the order of their file. Where there are pools, a question without a pool and
    without a relevant passage is left out.

    Raises:
        SourceError: a file is missing or malformed, a question with a relevant passage has no pool,
            a candidate is not in the corpus, or an id of the clean questions is not among the
            queries; names file and, if known, line.
    """
    found = splits(folder)
    corpus = required(folder / "corpus.jsonl", split, found)
    queries = required(folder / f"queries.{split}.jsonl", split, found)
    qrels = required(folder / f"qrels.{split}.tsv", split, found)
    pooled = bool(matching(folder, "candidates.*.jsonl"))
    candidates = required(folder / f"candidates.{split}.jsonl", split, found) if pooled else None
    judged = read_qrels(qrels)
    asked = {document.id: document.text for document in _documents(queries)}
    check_judged(qrels, judged, asked, queries)
    pools = {} if candidates is None else _pools(candidates, asked)
    if candidates is not None:
        _check_pools(candidates, pools, asked, judged)
    check_answered(qrels, judged, queries)
    kept = set(asked)
    if variant == "clean":
        kept = _clean(required(folder / f"clean.{split}.txt", split), asked, queries)
    questions = tuple(
        Question(
            query,
            text,
            pool_of(pools[query][1]) if pooled else (),
            judged.get(query, {}),
        )
        for query, text in asked.items()
        if query in kept and (query in pools or not pooled)
    )
    name = folder.resolve().name
    if variant is not None:
        name = f"{name} {variant}"
    if not pooled:
        return QuestionSet(name, split, questions, {}, (corpus,))
    passages = {document.id: document.text for document in _documents(corpus)}
    _check_candidates(pools, passages, corpus)
    return QuestionSet(name, split, questions, passages)


def _documents(path: Path) -> CorpusReader:
    return CorpusReader([path], Fields(id="id", text="text"), on_empty="fail")


def _pools(path: Path, asked: Mapping[str, str]) -> Pools:
    """Question to `file:line` and its candidates, of those that have any."""
    pools: Pools = {}
    for where, value in json_lines(path, _FORM):
        query, candidates = _pool(where, value)
        if query not in asked or query in pools:
            found = f"{query} again" if query in pools else f"unknown question {query}"
            raise SourceError(
                f"{where}: expected one pool for each question of the queries file, "
                f"found {found}; remove the line"
            )
        pools[query] = where, candidates
    return {query: pool for query, pool in pools.items() if pool[1]}


def _pool(where: str, value: object) -> tuple[str, list[str]]:
    query = value.get("qid") if isinstance(value, dict) else None
    candidates = value.get("candidates") if isinstance(value, dict) else None
    if not (
        isinstance(query, str)
        and isinstance(candidates, list)
        and all(isinstance(one, str) for one in candidates)
    ):
        raise unexpected(where, _FORM, value)
    if len(set(candidates)) != len(candidates):
        twice = next(one for one in candidates if candidates.count(one) > 1)
        raise SourceError(
            f"{where}: expected each candidate once, found {twice} twice; remove one of them"
        )
    return query, candidates


def _check_pools(
    path: Path,
    pools: Pools,
    asked: Mapping[str, str],
    judged: Mapping[str, Mapping[str, int]],
) -> None:
    for query in asked:
        if query not in pools and max(judged.get(query, {}).values(), default=0) >= 1:
            raise SourceError(
                f"{path}: expected a pool for each question with a relevant passage, found none "
                f"for {query}; add a line for it"
            )


def _check_candidates(pools: Pools, passages: Mapping[str, str], corpus: Path) -> None:
    for where, candidates in pools.values():
        for one in candidates:
            if one not in passages:
                raise SourceError(
                    f"{where}: expected candidates that are in {corpus.name}, found {one}; "
                    "add it there or remove it here"
                )


def _clean(path: Path, asked: Mapping[str, str], queries: Path) -> set[str]:
    kept: set[str] = set()
    for where, line in numbered_lines(path):
        query = line.strip()
        if query not in asked:
            raise SourceError(
                f"{where}: expected the id of a question in {queries.name}, found {query}; remove "
                "the line"
            )
        kept.add(query)
    return kept
