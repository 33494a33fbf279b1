"""Every kind of encoder on the same model and data: quality, rate, memory.

    python benchmarks/encoders.py [--model MODEL] [--data FOLDER] [--only NAME ...]

STS-B test (Spearman, 1,379 pairs) and SciFact test (nDCG@10 over the whole corpus, exact cosine
ranking, each abstract cut at the window). The best set of layers is searched for on STS-B dev.
Fitted static encoders are fitted on the texts that they then encode, without labels. Each encoder
runs in its own process, whose peak memory is shown. The rate is over SciFact's abstracts, including
tokenization, without loading.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RETRIEVER = str(Path(sys.executable).with_name("retriever"))
FORMS = {
    "last layer, mean": "::last",
    "last layer, cls": "::last::pooling=cls",
    "last layer, max": "::last::pooling=max",
    "last 4 layers, mean": "::last4",
    "all layers, mean": "::layers=all",
    "top and bottom layer concatenated": "::top-bottom",
    "SBERT-WK, paper": "::sbert-wk",
    "SBERT-WK, paper, no special tokens": "::sbert-wk::special-tokens=drop",
    "SBERT-WK, released": "::sbert-wk::wk-preset=released",
    "best layers (BERT-LC), searched": "tuned",
    "last layer, mean, bfloat16": "::last::dtype=bfloat16",
    "input embeddings, average": "::static=average",
    "input embeddings, p-mean": "::static=p-mean",
    "input embeddings, SIF": "fit sif",
    "input embeddings, uSIF": "fit usif",
}


def main() -> None:
    """Measure every encoder in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    parser.add_argument("--data", type=Path, default=data, required=data is None)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--only", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--sts", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.data, arguments.sts, arguments.one)))
        return
    for line in table(arguments.data, arguments.model, arguments.only):
        print(line, flush=True)


def table(data: Path, model: str, names: Sequence[str]) -> Iterator[str]:
    """The lines of the table, each as soon as it is measured."""
    yield "| | encoder | dimensions | STS-B | SciFact | texts/s | peak MB |"
    yield "|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            sts, scifact = _encoders(FORMS[name], model, data, Path(folder))
            command = [sys.executable, __file__, "--data", str(data), "--one", scifact]
            facts = json.loads(_output([*command, "--sts", sts]))
            label = scifact if folder not in scifact else f"{model}, {FORMS[name]}"
            yield (
                f"| {name} | `{label}` | {facts['dimensions']} | {100 * facts['sts']:.2f} | "
                f"{100 * facts['scifact']:.2f} | {facts['rate']:.0f} | {facts['peak']:.0f} |"
            )


def _encoders(form: str, model: str, data: Path, work: Path) -> tuple[str, str]:
    """The encoders for STS-B and for SciFact: one and the same, unless it is fitted."""
    if form == "tuned":
        pairs = [data / "stsb/dev.tsv", "--test", data / "stsb/test.tsv"]
        report = _output([RETRIEVER, "eval", "layers", *pairs, "--model", model, "--json"])
        tuned = json.loads(report)["encoder"]
        return tuned, tuned
    if not form.startswith("fit "):
        return model + form, model + form
    method = form.split()[1]
    fitted = []
    sentences = work / "stsb.txt"
    if not sentences.exists():
        left, right, _ = _sts(data)
        sentences.write_text("\n".join([*left, *right]) + "\n", encoding="utf-8")
    for source in (sentences, data / "scifact/corpus.jsonl"):
        output = work / f"{method}-{source.stem}"
        command = [RETRIEVER, "train", "static", source, "--vectors", model, "--method", method]
        _output([*command, "--output", output, "--quiet"])
        fitted.append(str(output))
    return fitted[0], fitted[1]


def measure(data: Path, sts: str, scifact: str) -> dict[str, Any]:
    """Measure one encoder in this process, so that peak memory is its own."""
    from retriever import Encoder

    warnings.simplefilter("ignore")
    encoder = Encoder.load(scifact, device="cpu")
    texts, ids, queries, qrels = _scifact(data)
    encoder.encode(texts[:8])
    started = time.perf_counter()
    passages = encoder.encode(texts)
    rate = len(texts) / (time.perf_counter() - started)
    query_vectors = encoder.encode(list(queries.values()), query=True)
    quality = _ndcg(query_vectors @ passages.T, list(queries), ids, qrels)
    if sts != scifact:
        encoder = Encoder.load(sts, device="cpu")
    return {
        "dimensions": passages.shape[1],
        "scifact": quality,
        "sts": _spearman(encoder, data),
        "rate": rate,
        # The most memory this process has held, in megabytes.
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _spearman(encoder: Any, data: Path) -> float:
    from eval.metrics.correlation import Correlation

    left, right, gold = _sts(data)
    cosines = np.sum(encoder.encode(left) * encoder.encode(right), axis=1, dtype=np.float64)
    # Equal sentences have cosine 1 but for rounding, and tie.
    return float(Correlation(gold)(np.round(cosines, 6)[None])[0])


def _sts(data: Path) -> tuple[list[str], list[str], Any]:
    from eval.datasets.pairs import read_pairs

    pairs = read_pairs([data / "stsb/test.tsv"])
    return pairs.left, pairs.right, pairs.gold


def _scifact(data: Path) -> tuple[list[str], list[str], dict[str, str], Any]:
    from eval.metrics.trec import read_qrels
    from retriever import CorpusReader

    documents = list(CorpusReader([str(data / "scifact/corpus.jsonl")]))
    qrels = read_qrels(data / "scifact/qrels.test.tsv")
    queries = {
        query.id: query.text for query in CorpusReader([str(data / "scifact/queries.test.jsonl")])
    }
    texts = [
        f"{document.title} {document.text}" if document.title else document.text
        for document in documents
    ]
    return texts, [document.id for document in documents], queries, qrels


def _ndcg(scores: Any, queries: Sequence[str], ids: Sequence[str], qrels: Any) -> float:
    from eval.metrics.measures import evaluate

    run = {}
    for query, row in zip(queries, np.round(scores.astype(np.float64), 6), strict=True):
        best = np.argsort(-row, kind="stable")[:100]
        run[query] = {ids[i]: float(row[i]) for i in best}
    return evaluate(run, qrels, ["nDCG@10"]).means["nDCG@10"]


def _output(command: Sequence[object]) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main()
