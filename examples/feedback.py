"""Gain of pseudo-relevance feedback: Rocchio on vectors, RM3 on terms.

    python examples/feedback.py $RETRIEVER_DATA/scifact [SET...]

Each set's corpus is ranked for each question by BM25, embeddings and their hybrid, then again with
the first passages of that ranking as feedback. Rocchio (1971) moves the vector of a question by
`beta` towards the mean of the first passages. RM3 (Abdul-Jaleel et al. 2004) mixes its terms with
the likeliest `TERMS` of the first passages, whose weight is 1 - `mix`. Settings are chosen by
nDCG@10 on training questions and tested once on test questions; a set with one split is divided.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
from scipy import sparse

from eval import default_cache, read_question_set
from eval.datasets.question_forms import splits_of
from eval.metrics.comparison import compare_values
from eval.metrics.measures import run_values
from eval.progress import silent
from eval.settings import Loading, Resampling
from eval.tuning.collection import JudgedCollection
from eval.tuning.evaluation import Evaluator
from eval.tuning.pipeline import Pipeline
from retriever import Analyzer, CorpusReader, FusionSettings
from retriever.search import fuse

DEPTH, TERMS, QUESTIONS = 100, 20, 600
K1, B = 1.2, 0.75
FEEDBACK, BETAS, MIXES = (3, 5, 10), (0.1, 0.3, 0.6), (0.9, 0.7, 0.5)


def questions_of(folder):
    """Training and test questions with an answer."""
    splits = splits_of(folder)
    parts = [
        list(read_question_set(folder, split).answered().questions)[:QUESTIONS]
        for split in (("train", "test") if {"train", "test"} <= set(splits) else splits[:1])
    ]
    return (parts[0][::2], parts[0][1::2]) if len(parts) == 1 else parts


class Corpus:
    """Passages of a corpus as vectors and as terms, with questions."""

    def __init__(self, folder, questions):
        documents = list(CorpusReader([folder / "corpus.jsonl"]))
        collection = JudgedCollection.of(folder.name, documents, questions, pooled=False)
        loading = Loading(cache=default_cache())
        evaluator, pipeline = Evaluator(collection, "nDCG@10", loading, silent), Pipeline()
        self.passages, self.queries = evaluator.vectors.encode(pipeline)
        passages = evaluator.texts.passages(pipeline)
        self.owners = np.array([document.id for document in collection.documents])[
            passages.documents
        ]
        self.questions, self.qrels = (
            questions,
            {question.id: dict(question.grades) for question in questions},
        )
        analyzer = Analyzer(pipeline.analyzer)
        counts = [Counter(analyzer.tokens(text)) for text in passages.texts]
        question_terms = [Counter(analyzer.tokens(question.text)) for question in questions]
        self.numbers = {term: n for n, term in enumerate(sorted(set().union(*counts)))}
        self.frequencies, self.asked = self.matrix(counts), self.matrix(question_terms)
        lengths = np.asarray(self.frequencies.sum(axis=1)).ravel()
        passage_counts = np.bincount(self.frequencies.indices, minlength=len(self.numbers))
        idf = np.log1p((len(counts) - passage_counts + 0.5) / (passage_counts + 0.5))
        rows = np.repeat(np.arange(len(counts)), np.diff(self.frequencies.indptr))
        norm = K1 * (1 - B + B * lengths[rows] / lengths.mean())
        term_counts = self.frequencies.data
        weights = idf[self.frequencies.indices] * term_counts / (term_counts + norm)
        self.weights = sparse.csr_matrix(
            (weights, self.frequencies.indices, self.frequencies.indptr), self.frequencies.shape
        ).T.tocsr()
        shares = sparse.diags(1 / np.maximum(lengths, 1))
        self.likely = shares @ self.frequencies

    def matrix(self, counts):
        """(texts, terms) counts of the terms that the corpus has."""
        known_counts = [{t: n for t, n in terms.items() if t in self.numbers} for terms in counts]
        starts = np.cumsum([0, *map(len, known_counts)])
        columns = [self.numbers[term] for terms in known_counts for term in terms]
        values = [float(n) for terms in known_counts for n in terms.values()]
        return sparse.csr_matrix((values, columns, starts), (len(known_counts), len(self.numbers)))

    def moved(self, first, beta):
        """Vectors of the questions, by Rocchio towards the first passages of each."""
        moved_queries = self.queries + beta * self.passages[first].mean(axis=1)
        return moved_queries / np.linalg.norm(moved_queries, axis=1, keepdims=True)

    def expanded(self, first, scores, mix):
        """Weights of terms of the questions, by RM3 of the first passages of each."""
        rows = []
        own = sparse.diags(1 / np.maximum(np.asarray(self.asked.sum(axis=1)).ravel(), 1))
        for row, places in enumerate(first):
            strength = scores[row, places]
            total = strength.sum()
            share = (strength / total if total > 0 else strength) @ self.likely[places].toarray()
            share[np.argsort(-share)[TERMS:]] = 0.0
            rows.append(sparse.csr_matrix(share / max(share.sum(), 1e-9)))
        return mix * (own @ self.asked) + (1 - mix) * sparse.vstack(rows)

    def values(self, dense, words, mode):
        """nDCG@10 of each question by scores of all passages."""
        run = {}
        for row, question in enumerate(self.questions):
            sides = {"dense": (dense,), "bm25": (words,)}.get(mode, (dense, words))
            best = [np.argpartition(-side[row], DEPTH)[:DEPTH] for side in sides]
            pool = np.unique(np.concatenate(best))
            left, right = dense[row, pool].astype(float), words[row, pool].astype(float)
            scores = left if mode == "dense" else right
            if mode == "hybrid":
                scores = fuse(left, right, right > 0, FusionSettings(alpha=0.6))
            values_by_measure = {}
            for id_, score in zip(self.owners[pool].tolist(), scores.tolist(), strict=True):
                values_by_measure[id_] = max(score, values_by_measure.get(id_, -np.inf))
            run[question.id] = values_by_measure
        return run_values(run, self.qrels, ["nDCG@10"])["nDCG@10"]


def measured(corpus):
    """(mode, kind) to the values of each question by settings of feedback; None is without."""
    dense = corpus.queries @ corpus.passages.T
    words = (corpus.asked @ corpus.weights).toarray()
    measurements = {
        (mode, None): corpus.values(dense, words, mode) for mode in ("dense", "bm25", "hybrid")
    }
    for number in FEEDBACK:
        near, best = (np.argsort(-values, axis=1)[:, :number] for values in (dense, words))
        moved = {beta: corpus.moved(near, beta) @ corpus.passages.T for beta in BETAS}
        fed = {mix: (corpus.expanded(best, words, mix) @ corpus.weights).toarray() for mix in MIXES}
        for beta, scores in moved.items():
            measurements["dense", ("Rocchio", number, beta)] = corpus.values(scores, words, "dense")
            measurements["hybrid", ("Rocchio", number, beta)] = corpus.values(
                scores, words, "hybrid"
            )
        for mix, scores in fed.items():
            measurements["bm25", ("RM3", number, mix)] = corpus.values(dense, scores, "bm25")
            measurements["hybrid", ("RM3", number, mix)] = corpus.values(dense, scores, "hybrid")
        for beta, mix in product(BETAS, MIXES):
            both = corpus.values(moved[beta], fed[mix], "hybrid")
            measurements["hybrid", ("both", number, beta, mix)] = both
    return measurements


def main():
    """Print a row for each set, mode and kind of feedback."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    print("| set | mode | without | feedback | chosen | with | difference, 95% | p |")
    print("|---|---|---:|---|---|---:|---|---:|")
    for folder in parser.parse_args().folders:
        training, test = questions_of(folder)
        measurements = measured(Corpus(folder, [*training, *test]))
        split = len(training)
        for mode, kind in (
            *(("dense", "Rocchio"), ("bm25", "RM3")),
            *(("hybrid", expansion) for expansion in ("Rocchio", "RM3", "both")),
        ):
            options = [
                option
                for option in measurements
                if option[0] == mode and option[1] and option[1][0] == kind
            ]
            best = max(options, key=lambda option: measurements[option][:split].mean())
            values = {
                "without": measurements[mode, None][split:],
                "with": measurements[best][split:],
            }
            scores = compare_values(values, "without", Resampling())
            difference = scores["with"].difference
            print(
                f"| {folder.name} | {mode} | {100 * scores['without'].value:.2f} | {kind} "
                f"| {', '.join(map(str, best[1][1:]))} | {100 * scores['with'].value:.2f} "
                f"| {100 * difference.value:+.2f} ({100 * difference.low:+.2f} to "
                f"{100 * difference.high:+.2f}) | {difference.p:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
