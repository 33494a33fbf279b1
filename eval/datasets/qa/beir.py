"""The folders of BEIR (Thakur et al. 2021): corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""

from __future__ import annotations

from pathlib import Path

from eval.datasets.files import between, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import check_answered, check_judged
from eval.metrics.trec import read_qrels
from retriever.corpus import CorpusReader, Fields


def splits(folder: Path) -> tuple[str, ...]:
    """Those with judgments."""
    return between(folder / "qrels", "", ".tsv")


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split, whose questions are those that are judged, in the order of queries.jsonl.

    The whole corpus is ranked.

    Raises:
        SourceError: a file is missing or malformed, or judges a question that is not there; names
            file and, if known, line.
    """
    corpus = required(folder / "corpus.jsonl", split)
    queries = required(folder / "queries.jsonl", split)
    qrels = required(folder / "qrels" / f"{split}.tsv", split, splits(folder))
    judged = read_qrels(qrels)
    asked = {
        document.id: document.text
        for document in CorpusReader([queries], Fields(id="_id", text="text"), on_empty="fail")
    }
    check_judged(qrels, judged, asked, queries)
    check_answered(qrels, judged, queries)
    questions = tuple(
        Question(query, text, (), judged[query]) for query, text in asked.items() if query in judged
    )
    return QuestionSet(folder.resolve().name, split, questions, {}, (corpus,))
