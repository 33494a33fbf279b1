"""nDCG@10 of questions in one language over passages of another, by model and mode.

    python examples/across_languages.py FOLDER FOLDER... [--models MODEL...] [--all]

Each FOLDER holds corpus.jsonl, queries.test.jsonl and qrels.test.tsv of one language. Line by line
the folders are translations of each other, such as XQuAD's. Questions of the first folder are asked
over the passages of every folder, and questions of every folder over the passages of the first one.
With `--all`, each are asked over each. The last column is the gain of the last model over the first
one in the mode dense, with its 95% interval. Titles are left out: XQuAD has them in English.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eval.metrics.significance import mean_interval
from retriever import Document, Index, Mode, QueryVectors

DEPTH = 10
MODES: tuple[Mode, ...] = ("bm25", "dense", "hybrid")
# nDCG@10 of each question, by model and mode.
Values = dict[tuple[str, Mode], np.ndarray]


class Language(NamedTuple):
    """Passages and questions of a language, and the row of the passage that answers each."""

    name: str
    passages: list[str]
    questions: list[str]
    answers: list[int]


def read_language(folder: Path) -> Language:
    """Read a folder; `answers` has one row of a passage for each question."""
    passages = read_lines(folder / "corpus.jsonl")
    questions = read_lines(folder / "queries.test.jsonl")
    rows = {passage["id"]: row for row, passage in enumerate(passages)}
    judged = (line.split() for line in (folder / "qrels.test.tsv").read_text().splitlines())
    answers = {query: rows[passage] for query, _, passage, _ in judged}
    return Language(
        folder.name,
        [passage["text"] for passage in passages],
        [question["text"] for question in questions],
        [answers[question["id"]] for question in questions],
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the records of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def make_index(language: Language, model: str, place: Path) -> Index:
    """Index the passages of a language; their ids are their rows."""
    documents = [Document(str(row), text) for row, text in enumerate(language.passages)]
    with warnings.catch_warnings():
        # An encoder that does not know the language is what is measured.
        warnings.simplefilter("ignore")
        return Index.from_documents(documents, place, model=model)


def measure(index: Index, asking: Language, mode: Mode, vectors: QueryVectors) -> np.ndarray:
    """Return nDCG@10 of each question, which has a single answer."""
    ready = None if mode == "bm25" else vectors
    rankings = index.search_many(asking.questions, k=DEPTH, mode=mode, ready=ready, raw=True)
    gains = []
    for hits, answer in zip(rankings, asking.answers, strict=True):
        ids = [hit.id for hit in hits]
        rank = ids.index(str(answer)) if str(answer) in ids else None
        gains.append(0.0 if rank is None else 1 / np.log2(rank + 2))
    return np.array(gains)


def measure_model(
    model: str, pairs: list[tuple[Language, Language]]
) -> Iterator[tuple[tuple[str, str], Values]]:
    """Yield the names of each pair of languages, and the values of a model."""
    vectors: dict[str, QueryVectors] = {}
    for answering in {answering.name: answering for _, answering in pairs}.values():
        with (
            tempfile.TemporaryDirectory() as place,
            make_index(answering, model, Path(place, "index")) as index,
        ):
            for asking in (asking for asking, other in pairs if other is answering):
                if asking.name not in vectors:
                    encoded = index.encoder.encode(asking.questions, query=True)
                    vectors[asking.name] = QueryVectors(encoded, index.encoder_spec)
                ready = vectors[asking.name]
                yield (
                    (asking.name, answering.name),
                    {(model, mode): measure(index, asking, mode, ready) for mode in MODES},
                )


def main() -> None:
    """Read the arguments and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--models", nargs="+", default=["all-MiniLM-L6-v2", "multilingual-e5-small"]
    )
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    languages = [read_language(folder) for folder in arguments.folders]
    pairs = [
        (asking, answering)
        for asking, answering in product(languages, languages)
        if arguments.all or languages[0] in (asking, answering)
    ]
    values: dict[tuple[str, str], Values] = {}
    for model in arguments.models:
        for names, model_values in measure_model(model, pairs):
            values.setdefault(names, {}).update(model_values)
    print_table(values, arguments.models)


def print_table(values: dict[tuple[str, str], Values], models: list[str]) -> None:
    """Print a row for each pair of languages."""
    columns = [(models[0], MODES[0]), *product(models, MODES[1:])]
    names = ["BM25", *(f"{model} {mode}" for model, mode in columns[1:])]
    print(f"| questions | passages | {' | '.join(names)} | gain of embeddings |")
    print("|---|---|" + "---|" * (len(columns) + 1))
    for (asking, answering), row in values.items():
        cells = [f"{100 * row[column].mean():.1f}" for column in columns]
        gain = row[models[-1], "dense"] - row[models[0], "dense"]
        low, high = mean_interval(gain, -1.0)
        cells.append(f"{100 * gain.mean():+.1f} ({100 * low:+.1f} to {100 * high:+.1f})")
        print(f"| {asking} | {answering} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
