"""Run MTEB over local question sets by embeddings, BM25 and hybrid search, with intervals.

    python examples/mteb_tables.py $RETRIEVER_DATA/{scifact,xquad_en,limit_small} --output tables

Each SET is a folder that `retriever eval qa` reads; it becomes a retrieval task of MTEB, or, where
questions have pools of candidates, a reranking task. OUTPUT gets

- `results`, MTEB's own files: `mteb.ResultCache("tables").load_results(include_remote=False)` makes
  its tables of them. Beside MTEB's scores are those of `eval.compare`, with the ends of their 95%
  intervals by Student's t: `nDCG@10`, `nDCG@10 low`, `nDCG@10 high`;
- `queries/TASK.jsonl`, every query's values by mode and measure;
- `queries/TASK-MODE.run` and `queries/TASK.qrels` for `retriever eval compare` and `gate`;
- `indexes`, which a second run with the same model takes as they are.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from eval import QuestionSet, compare, read_question_set, write_run
from indexes import Mode
from retriever import CorpusReader, SearchSettings
from retriever.integrations.mteb import IndexSearch

MODES: tuple[Mode, ...] = ("dense", "bm25", "hybrid")
MEASURES = ("nDCG@10", "R@2", "R@10", "R@100", "RR")
# Those of MTEB's LIMIT, which is judged by recall at 2.
CUTS = (1, 2, 3, 5, 10, 20, 100, 1000)


def metadata_of(questions: QuestionSet, language: str) -> TaskMetadata:
    """Return the metadata of a task for MTEB."""
    ranks_pools = any(question.candidates for question in questions.questions)
    words = (word.capitalize() for word in questions.name.replace("_", " ").split())
    return TaskMetadata(
        name="Local" + "".join(words),
        description=f"The {questions.split} questions of {questions.name}, from local files.",
        dataset={"path": f"local/{questions.name}", "revision": "1"},
        type="Reranking" if ranks_pools else "Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[questions.split],
        eval_langs=[language],
        main_score="map_at_1000" if ranks_pools else "ndcg_at_10",
    )


def task_of(questions: QuestionSet, language: str) -> Any:
    """A task of MTEB that keeps the rankings it has seen."""

    class LocalTask(AbsTaskRetrieval):
        metadata = metadata_of(questions, language)
        k_values = CUTS

        def __init__(self) -> None:
            super().__init__()
            self.run: dict[str, dict[str, float]] = {}

        def load_data(self, **_: Any) -> None:
            judged_questions = questions.questions
            self.dataset = {"default": {questions.split: split_of(questions)}}
            self.qrels = {question.id: dict(question.grades) for question in judged_questions}
            self.data_loaded = True

        def task_specific_scores(
            self, scores: Any, qrels: Any, results: dict[str, dict[str, float]], **_: Any
        ) -> dict[str, float]:
            self.run = results
            scores_by_name = {}
            for name, by_run in compare({"": results}, self.qrels, MEASURES).scores.items():
                score = by_run[""]
                scores_by_name |= {
                    name: score.value,
                    f"{name} low": score.low,
                    f"{name} high": score.high,
                }
            return scores_by_name

    return LocalTask()


def split_of(questions: QuestionSet) -> dict[str, Any]:
    """A split as MTEB holds it."""
    judged_questions = questions.questions
    if questions.corpus:
        documents = list(CorpusReader(list(questions.corpus)))
        corpus = [
            {"id": document.id, "title": document.title or "", "text": document.text}
            for document in documents
        ]
    else:
        passages = questions.passages.items()
        corpus = [{"id": id_, "title": "", "text": text} for id_, text in passages]
    pools = {
        question.id: list(question.candidates)
        for question in judged_questions
        if question.candidates
    }
    return {
        "queries": Dataset.from_list(
            [{"id": question.id, "text": question.text} for question in judged_questions]
        ),
        "corpus": Dataset.from_list(corpus),
        "relevant_docs": {question.id: dict(question.grades) for question in judged_questions},
        "top_ranked": pools or None,
    }


def measured(
    questions: QuestionSet, arguments: argparse.Namespace, cache: mteb.ResultCache
) -> None:
    """Run a task in all modes, write what it gave, and print the comparison."""
    task, runs = task_of(questions, arguments.language), dict[str, Any]()
    folder = arguments.output / "queries"
    folder.mkdir(parents=True, exist_ok=True)
    for mode in MODES:
        settings = SearchSettings(mode=mode)
        model = IndexSearch(
            arguments.output / "indexes", arguments.model, settings, device=arguments.device
        )
        # The rankings are wanted, not only the scores that a cache has.
        mteb.evaluate(model, task, cache=cache, overwrite_strategy="always")
        model.close()
        runs[mode] = task.run
        ranked = {query: list(scores.items()) for query, scores in task.run.items()}
        write_run(folder / f"{task.metadata.name}-{mode}.run", ranked, mode)
    lines = [
        f"{query} 0 {document} {grade}\n"
        for query, grades in task.qrels.items()
        for document, grade in grades.items()
    ]
    (folder / f"{task.metadata.name}.qrels").write_text("".join(lines), encoding="utf-8")
    comparison = compare(runs, task.qrels, MEASURES, baseline="bm25")
    with (folder / f"{task.metadata.name}.jsonl").open("w", encoding="utf-8") as out:
        for place, query in enumerate(comparison.queries):
            values = {
                mode: {name: float(table[row, place]) for name, table in comparison.values.items()}
                for row, mode in enumerate(comparison.names)
            }
            out.write(json.dumps({"query": query, **values}, ensure_ascii=False) + "\n")
    print(f"\n{task.metadata.name}\n{comparison.text(top=0)}", flush=True)


def main() -> None:
    """Read the arguments and run every task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="SET")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default="", help="as of `retriever index`")
    parser.add_argument("--language", default="eng-Latn", help="of the tasks, for MTEB's tables")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    cache = mteb.ResultCache(arguments.output)
    for folder in arguments.folders:
        measured(read_question_set(folder, arguments.split).answered(), arguments, cache)


if __name__ == "__main__":
    main()
