"""MS MARCO passage ranking (Nguyen et al. 2016): collection.tsv, queries, qrels and top1000."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eval.datasets.files import between, existing, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import check_answered, check_judged, pool_of, put_new, rows
from eval.metrics.trec import read_qrels
from retriever.errors import SourceError

COLLECTION = "collection.tsv"
_POOLED = ("query id", "passage id", "query", "passage")


def splits(folder: Path) -> tuple[str, ...]:
    """Those that have queries and judgments, such as dev and dev.small."""
    judged = between(folder, "qrels.", ".tsv")
    return tuple(split for split in between(folder, "queries.", ".tsv") if split in judged)


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split, in the order of its queries.

    With `top1000.SPLIT` (or .tsv; dev.small also takes top1000.dev, which is of its queries) there
    are pools, and `passages` are those of that file: a judged passage that is not in it counts, but
    has no text. Questions without a relevant passage and without a pool are then left out.
    Otherwise the whole collection is ranked.

    Raises:
        SourceError: a file is missing or malformed, judges or ranks for a question that is not
            there, or a question with a relevant passage has no pool; names file and line.
    """
    queries = required(folder / f"queries.{split}.tsv", split, splits(folder))
    qrels = required(folder / f"qrels.{split}.tsv", split, splits(folder))
    judged = read_qrels(qrels)
    asked: dict[str, str] = {}
    seen: dict[str, str] = {}
    for where, (query, text) in rows(queries, ("query id", "query")):
        put_new(seen, where, query, "query")
        asked[query] = text
    check_judged(qrels, judged, asked, queries)
    check_answered(qrels, judged, queries)
    top = _top(folder, split)
    if top is None:
        collection = required(folder / COLLECTION, split)
        questions = tuple(
            Question(query, text, (), judged.get(query, {})) for query, text in asked.items()
        )
        return QuestionSet("MS MARCO", split, questions, {}, (collection,))
    pools, passages = _pools(top, asked, queries)
    for query, grades in judged.items():
        if query not in pools and max(grades.values()) >= 1:
            raise SourceError(
                f"{top}: expected a pool for each question with a relevant passage, found none "
                f"for {query}; name the split that the pools are of, or remove the file to rank "
                "the whole collection"
            )
    questions = tuple(
        Question(query, text, pool_of(pools[query]), judged.get(query, {}))
        for query, text in asked.items()
        if query in pools
    )
    return QuestionSet("MS MARCO", split, questions, passages)


def _top(folder: Path, split: str) -> Path | None:
    names = [f"top1000.{split}", f"top1000.{split}.tsv"]
    if split == "dev.small":
        names += ["top1000.dev", "top1000.dev.tsv"]
    return next(filter(None, (existing(folder / name) for name in names)), None)


def _pools(
    path: Path, asked: Mapping[str, str], queries: Path
) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Query to its passages, and passage to text."""
    pools: dict[str, set[str]] = {}
    passages: dict[str, str] = {}
    for where, (query, passage, _, text) in rows(path, _POOLED):
        if query not in asked:
            raise SourceError(
                f"{where}: expected a query of {queries.name}, found {query}; take the files of "
                "one split"
            )
        pool = pools.setdefault(query, set())
        if passage in pool:
            raise SourceError(
                f"{where}: expected each passage once for a query, found {passage} again for "
                f"{query}; remove one of the lines"
            )
        pool.add(passage)
        if passages.setdefault(passage, text) != text:
            raise SourceError(
                f"{where}: expected one text for passage {passage}, found another; download the "
                "file again"
            )
    return pools, passages
