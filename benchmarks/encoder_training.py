"""Encoders before and after `train encoder`, on test sets that neither training nor choice saw.

    python benchmarks/encoder_training.py [--only NAME ...] [--work FOLDER] [--sample N] [...]

SelQA (trained on four fifths of its dev split, chosen on the rest, tested on test), MedQuAD (the
questions of a tenth of its articles held out for test, of a twentieth for dev; the whole corpus is
ranked), and SciFact from its corpus alone (title and text, cloze, neighbors; the claims and
judgments of the test are not seen). Each row has the paired randomization test of the difference,
and Spearman's correlation on STS-B test, for what was forgotten, with its bootstrap interval.
Trainings are kept in the work folder: an interrupted run resumes. `--sample` makes everything
small, to try the script.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from eval import (
    Comparison,
    CorpusPairs,
    EncoderFitSettings,
    FittedEncoder,
    QASettings,
    QuestionSettings,
    STSSettings,
    compare,
    fit_encoder,
    rank_systems,
    read_qrels,
    score_sts,
)
from eval.training.data import EncoderData
from retriever import CorpusReader, Document, Encoder
from retriever.encoders.training.trainer import EncoderTrainingSettings
from retriever.training.loop import Trained

# Hits of a query that are measured.
DEPTH = 100
TEST_ARTICLES, DEV_ARTICLES = 0.1, 0.05


@dataclass(frozen=True)
class Work:
    """Where things are, and how large they are.

    Attributes:
        data: folder of the data sets.
        folder: of trained encoders and divided sets.
        model: text form of the encoder before training.
        training: how it is trained.
        sample: number of pairs, questions and documents at most; None for all.
        pairs: drawn of a corpus.
        questions: of MedQuAD to train on, drawn at random; None for all.
        dtype: number format that corpora are encoded in for a test.
    """

    data: Path
    folder: Path
    model: str
    training: EncoderTrainingSettings
    sample: int | None
    pairs: int
    questions: int | None = None
    dtype: str = "float32"

    def fit(self, name: str, data: EncoderData, questions: QuestionSettings) -> FittedEncoder:
        """Train an encoder, or take the one that the same call has trained."""
        settings = EncoderFitSettings(self.model, None, self.training, data=questions)
        return fit_encoder(data, self.folder / name, settings, notify=log)

    def documents(self, name: str, wanted: frozenset[str] = frozenset()) -> list[Document]:
        """The corpus of a set; of a sample at least the documents that are wanted."""
        found = list(CorpusReader(self.data / name / "corpus.jsonl"))
        if self.sample is None:
            return found
        return [one for n, one in enumerate(found) if n < self.sample or one.id in wanted]


@dataclass(frozen=True)
class Row:
    """A trained encoder, and its test."""

    name: str
    fitted: FittedEncoder
    comparison: Comparison
    measure: str


def selqa(work: Work) -> Row:
    """Questions with pools of sentences."""
    questions = QuestionSettings(train_split="dev", dev_share=0.2)
    fitted = work.fit("selqa", work.data / "selqa", questions)
    systems = ["cosine", f"cosine@{fitted.folder}"]
    settings = QASettings(work.model, data=questions, measures=("AP", "RR"), top=0)
    data = work.data / "selqa"
    return Row("SelQA", fitted, rank_systems(data, systems, settings).comparison, "AP")


def medquad(work: Work) -> Row:
    """Questions with the one answer of a corpus; articles of test questions are not trained on."""
    folder = work.folder / "medquad-divided"
    divide_medquad(work, folder)
    fitted = work.fit("medquad", folder, QuestionSettings())
    qrels = read_qrels(folder / "qrels.test.tsv")
    return Row("MedQuAD", fitted, ranked(work, "medquad", folder, qrels, fitted), "RR")


def scifact(kind: str) -> Callable[[Work], Row]:
    """Claims and abstracts; trained on the corpus alone."""

    def run(work: Work) -> Row:
        pairs = CorpusPairs(work.documents("scifact"), kind, work.pairs)  # type: ignore[arg-type]
        fitted = work.fit(f"scifact-{kind}", pairs, QuestionSettings())
        folder = work.data / "scifact"
        qrels = read_qrels(folder / "qrels.test.tsv")
        comparison = ranked(work, "scifact", folder, qrels, fitted)
        return Row(f"SciFact, {kind}", fitted, comparison, "nDCG@10")

    return run


EXPERIMENTS: Mapping[str, Callable[[Work], Row]] = {
    "selqa": selqa,
    "medquad": medquad,
    "scifact-title": scifact("title"),
    "scifact-cloze": scifact("cloze"),
    "scifact-neighbors": scifact("neighbors"),
}


def article(question: str) -> str:
    """The id of a question's article: CancerGov_0000001 of q_CancerGov_0000001_1_2."""
    return "_".join(question.split("_")[1:3])


def divide_medquad(work: Work, folder: Path) -> None:
    """Write the set with its questions divided by article, in the project's own form."""
    folder.mkdir(parents=True, exist_ok=True)
    source = work.data / "medquad"
    lines = (source / "queries.all.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [json.loads(line) for line in lines]
    articles = sorted({article(one["id"]) for one in queries})
    order = np.random.default_rng(0).permutation(len(articles))
    test, dev = (round(share * len(articles)) for share in (TEST_ARTICLES, DEV_ARTICLES))
    split = {
        articles[place]: "test" if n < test else "dev" if n < test + dev else "train"
        for n, place in enumerate(order)
    }
    qrels = read_qrels(source / "qrels.all.tsv")
    for name in ("train", "dev", "test"):
        chosen = [one for one in queries if split[article(one["id"])] == name]
        if name == "train" and work.questions is not None:
            drawn = np.random.default_rng(0).permutation(len(chosen))[: work.questions]
            chosen = [chosen[place] for place in sorted(drawn)]
        chosen = chosen[: work.sample]
        text = "".join(json.dumps(one) + "\n" for one in chosen)
        (folder / f"queries.{name}.jsonl").write_text(text, encoding="utf-8")
        judged = [
            f"{one['id']} 0 {id_} {grade}\n"
            for one in chosen
            for id_, grade in qrels[one["id"]].items()
        ]
        (folder / f"qrels.{name}.tsv").write_text("".join(judged), encoding="utf-8")
    corpus = folder / "corpus.jsonl"
    if not corpus.exists():
        corpus.symlink_to((source / "corpus.jsonl").resolve())


def ranked(
    work: Work,
    name: str,
    folder: Path,
    qrels: Mapping[str, Mapping[str, int]],
    fitted: FittedEncoder,
) -> Comparison:
    """Both encoders' rankings of a corpus by exact cosine; a long document loses its end."""
    lines = (folder / "queries.test.jsonl").read_text(encoding="utf-8").splitlines()
    queries = {one["id"]: one["text"] for one in map(json.loads, lines[: work.sample])}
    wanted = frozenset(id_ for query in queries for id_ in qrels[query])
    documents = work.documents(name, wanted)
    texts = [f"{one.title} {one.text}" if one.title else one.text for one in documents]
    runs = {}
    for label, form in (("before", work.model), ("after", str(fitted.folder))):
        log(f"{name}: encoding {len(texts):,} documents, {label} training")
        encoder = Encoder.load(f"{form}::dtype={work.dtype}")
        vectors = encoder.encode_pieces(encoder.truncate(texts))
        asked = encoder.encode_pieces(encoder.truncate(list(queries.values()), query=True))
        runs[label] = {
            query: {documents[row].id: float(score) for row, score in hits}
            for query, hits in zip(queries, best(asked @ vectors.T), strict=True)
        }
    counted = {query: qrels[query] for query in queries}
    return compare(runs, counted, ("nDCG@10", "RR", "R@100"))


def best(cosines: np.ndarray) -> Iterator[list[tuple[int, float]]]:
    """The first hits of each row of (queries, documents) cosines."""
    for row in np.round(cosines, 6):
        order = np.argsort(-row, kind="stable")[:DEPTH]
        yield [(int(place), float(row[place])) for place in order]


def table(work: Work, names: list[str]) -> Iterator[str]:
    """The lines of the table, each as soon as it is measured."""
    yield (
        "| trained on | dev before, after | test | before | after | difference, 95% | p "
        "| STS-B after | difference, 95% |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in names:
        row = EXPERIMENTS[name](work)
        before, after = row.comparison.scores[row.measure].values()
        cells = [row.name, f"{row.fitted.measure} {points(row.fitted.curve[0].dev)}, "
                 f"{points(row.fitted.kept.dev)} (epoch {row.fitted.kept.epoch})",
                 f"{row.measure}, {len(row.comparison.queries):,} questions",
                 points(before.value), points(after.value)]  # fmt: skip
        assert after.difference is not None
        cells += [interval(after.difference), f"{after.difference.p:.4f}"]
        tested = score_sts(
            [work.data / "stsb"], [work.model, str(row.fitted.folder)], STSSettings()
        )
        forgotten = tested.sets[0].scores[1].values["spearman"]
        assert forgotten.difference is not None
        cells += [points(forgotten.value), interval(forgotten.difference)]
        yield f"| {' | '.join(cells)} |"


def points(value: float) -> str:
    """A score times 100."""
    return f"{100 * value:.2f}"


def interval(difference: object) -> str:
    """A difference with its interval, times 100."""
    value, low, high = (100 * getattr(difference, name) for name in ("value", "low", "high"))
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"


def log(line: str) -> None:
    """Print a line that is not of the table."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Train and test each encoder, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("RETRIEVER_DATA")
    parser.add_argument("--data", type=Path, default=data, required=data is None)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--work", type=Path, default=Path("encoder-training"))
    parser.add_argument("--train", default="full", help="full, last:N or lora:RANK")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=10_000, help="drawn of a corpus")
    parser.add_argument("--questions", type=int, help="of MedQuAD to train on; default: all")
    parser.add_argument("--dtype", default="float32", help="that corpora are encoded in for a test")
    parser.add_argument("--sample", type=int, help="questions, documents and pairs at most")
    parser.add_argument("--output", type=Path, help="write the table here too")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    training = EncoderTrainingSettings(
        epochs=arguments.epochs, trained=Trained.parse(arguments.train), seed=arguments.seed
    )
    if arguments.learning_rate is not None:
        training = replace(training, learning_rate=arguments.learning_rate)
    work = Work(
        arguments.data,
        arguments.work,
        arguments.model,
        training,
        arguments.sample,
        min(arguments.pairs, arguments.sample or arguments.pairs),
        arguments.questions,
        arguments.dtype,
    )
    lines = []
    for line in table(work, arguments.only):
        print(line, flush=True)
        lines.append(line)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
