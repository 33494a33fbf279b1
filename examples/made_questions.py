"""Compare how questions made from a corpus and questions that people asked rank systems.

    python examples/made_questions.py $RETRIEVER_DATA/wikiqa [SET...] [--split SPLIT]

For each set, people's questions and a corpus of up to 3,000 documents (two million characters) with
all that are judged for them, whole articles where documents share titles; from that corpus alone,
`eval.make_questions`. The same 26 systems (BM25 with other constants, formulas and without
stemming; hidden states of all-MiniLM-L6-v2 under several poolings; hybrids of ten weights) rank
for both, by nDCG@10. The
table has Kendall's tau between both rankings; that between two random halves of people's questions,
which is what chance leaves of it; and the regret: what the best system by made questions loses
against the best by people's. It encodes some 4,000 passages a set, once.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from eval import MadeQuestionSettings, default_cache, make_questions, read_question_set
from eval.datasets.question_forms import splits_of
from eval.metrics.measures import run_values
from eval.settings import Loading
from eval.vectors import embed_all, layer_form, split_layers
from retriever import Analyzer, AnalyzerSettings, BM25Settings, CorpusReader, FusionSettings
from retriever.documents import passage_text
from retriever.errors import BadInputError
from retriever.search import BM25, Postings, SearchableSegment, fuse

DOCUMENTS, CHARACTERS, QUESTIONS, DEPTH = 3_000, 2_000_000, 600, 100
MODEL = "all-MiniLM-L6-v2"
MEASURE = "nDCG@10"
PLAIN = AnalyzerSettings(stemming=False)
LEXICAL = {
    "bm25": (None, BM25Settings()),
    "bm25 k1=0.6 b=0.3": (None, BM25Settings(k1=0.6, b=0.3)),
    "bm25 k1=2 b=0.9": (None, BM25Settings(k1=2.0, b=0.9)),
    "bm25 b=0": (None, BM25Settings(b=0.0)),
    "bm25+": (None, BM25Settings(variant="bm25+")),
    "bm25 no stemming": (PLAIN, BM25Settings()),
}
# Pooling, and the hidden states that are averaged.
DENSE = {
    "last": ("mean", [6]),
    "last cls": ("cls", [6]),
    "0+6": ("mean", [0, 6]),
    "4+5+6": ("mean", [4, 5, 6]),
    "all": ("mean", [0, 1, 2, 3, 4, 5, 6]),
    "5": ("mean", [5]),
    "4": ("mean", [4]),
    "2": ("mean", [2]),
    "0": ("mean", [0]),
}
OTHERS = {"sbert-wk": f"{MODEL}::sbert-wk"}


def people(folder, split):
    """Questions with an answer, and documents: all that are judged, then whole articles."""
    splits = splits_of(folder)
    split = split or ("test" if "test" in splits else splits[0])
    chance = random.Random(0)
    questions = list(read_question_set(folder, split).answered().questions)
    chance.shuffle(questions)
    documents = {document.id: document for document in CorpusReader([folder / "corpus.jsonl"])}
    articles = defaultdict(list)
    for document in documents.values():
        articles[document.title or document.id].append(document.id)
    document_ids, selected_questions = {}, []
    for question in questions[:QUESTIONS]:
        ids = [
            candidate_id
            for candidate_id in {*question.grades, *question.candidates}
            if candidate_id in documents
        ]
        if len(document_ids.keys() | set(ids)) > DOCUMENTS:
            break
        selected_questions.append(question)
        document_ids |= dict.fromkeys(ids)
    order = list(articles.values())
    chance.shuffle(order)
    size = sum(len(documents[candidate_id].text) for candidate_id in document_ids)
    for ids in order:
        if len(document_ids) < DOCUMENTS and size < CHARACTERS:
            size += sum(
                len(documents[candidate_id].text)
                for candidate_id in ids
                if candidate_id not in document_ids
            )
            document_ids |= dict.fromkeys(ids)
    return selected_questions, [
        document for id_, document in documents.items() if id_ in document_ids
    ]


class Vectors:
    """Texts to (texts, hidden states, width) by pooling, and to vectors of other encoders."""

    def __init__(self):
        loading = Loading(cache=default_cache() / "made-questions")
        self._forms = [layer_form(MODEL, pooling) for pooling in ("mean", "cls")] + list(
            OTHERS.values()
        )
        self._encoders = loading.load_together(self._forms)
        self._cache = loading.cache

    def __call__(self, texts, *, query):
        """Unit vectors of texts by system."""
        embeddings = embed_all(self._encoders, texts, self._cache, query=query)
        mean, cls, *other_vectors = [embedding.vectors for embedding in embeddings]
        layered = {"mean": split_layers(mean, 6), "cls": split_layers(cls, 6)}
        vectors = {
            name: layered[pooling][:, layers].mean(axis=1)
            for name, (pooling, layers) in DENSE.items()
        } | dict(zip(OTHERS, other_vectors, strict=True))
        return {
            name: rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
            for name, rows in vectors.items()
        }


def systems(questions, documents, vectors):
    """(system, question) nDCG@10."""
    ids = [document.id for document in documents]
    texts = [passage_text(document, None) for document in documents]
    question_texts = [question.text for question in questions]
    qrels = {question.id: dict(question.grades) for question in questions}
    left, right = vectors(question_texts, query=True), vectors(texts, query=False)
    scores = {name: left[name] @ right[name].T for name in left}
    rows = np.arange(len(ids))
    terms = {}
    for name, (plain, settings) in LEXICAL.items():
        if plain not in terms:
            analyzer = Analyzer(plain)
            terms[plain] = (
                SearchableSegment(Postings.build(map(analyzer.tokens, texts))),
                [analyzer.tokens(text) for text in question_texts],
            )
        segment, queries = terms[plain]
        search = BM25([segment], settings)
        scores[name] = np.stack([search.query(query).at(0, rows)[0] for query in queries])
    # As an index does it: the best of both sides are fused.
    best = {name: np.argsort(-scores[name], axis=1, kind="stable")[:, :DEPTH] for name in scores}
    for weight in [*(tenth / 10 for tenth in range(1, 10)), None]:
        fusion = FusionSettings("rrf") if weight is None else FusionSettings(alpha=weight)
        name = "rrf" if weight is None else f"hybrid {weight:g}"
        scores[name] = np.full_like(scores["last"], -np.inf, dtype=np.float64)
        for row in range(len(question_texts)):
            pool = np.union1d(best["last"][row], best["bm25"][row])
            dense, bm25 = scores["last"][row, pool].astype(float), scores["bm25"][row, pool]
            scores[name][row, pool] = fuse(dense, bm25, bm25 > 0, fusion)
        best[name] = np.argsort(-scores[name], axis=1, kind="stable")[:, :DEPTH]
    results = {}
    for name, places in best.items():
        run = {
            question.id: {ids[place]: float(scores[name][row, place]) for place in places[row]}
            for row, question in enumerate(questions)
        }
        results[name] = run_values(run, qrels, [MEASURE])[MEASURE]
    return results


def agreement(by_people, by_made):
    """Kendall's tau-b of (systems,) means, and the regret in points of choosing by made ones."""
    names = list(by_people)
    left = np.array([by_people[name].mean() for name in names])
    right = np.array([by_made[name].mean() for name in names])
    return kendalltau(left, right).statistic, 100 * (left.max() - left[right.argmax()])


def halves(by_people, repeats=50):
    """Mean tau of people's questions with those of other random halves of them."""
    chance = np.random.default_rng(0)
    count, correlations = len(next(iter(by_people.values()))), []
    for _ in range(repeats):
        order = chance.permutation(count)
        parts = [
            {name: values[half] for name, values in by_people.items()}
            for half in (order[: count // 2], order[count // 2 :])
        ]
        correlations.append(agreement(*parts)[0])
    return float(np.mean(correlations))


def main():
    """Rank the systems on every set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--split", help="of people's questions (test)")
    parser.add_argument("--detail", action="store_true", help="the measure of each system")
    arguments = parser.parse_args()
    vectors = Vectors()
    print("| set | questions | made | tau | of halves | regret | by kind |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for folder in arguments.folders:
        questions, documents = people(folder, arguments.split)
        try:
            made_set = make_questions(documents, MadeQuestionSettings())
        except BadInputError as error:
            print(f"| {folder.name} | {len(questions)} | 0 | | | | {error} |", flush=True)
            continue
        by_people = systems(questions, documents, vectors)
        by_made = systems(made_set.questions.questions, made_set.documents, vectors)
        tau, regret = agreement(by_people, by_made)
        kinds = np.array(list(made_set.kinds.values()))
        parts = []
        for kind in dict.fromkeys(kinds.tolist()):
            part = {name: values[kinds == kind] for name, values in by_made.items()}
            of_kind, lost = agreement(by_people, part)
            parts.append(f"{kind} {of_kind:.2f}/{lost:.1f} ({(kinds == kind).sum()})")
        print(
            f"| {folder.name} | {len(questions)} | {len(kinds)} | {tau:.2f} | "
            f"{halves(by_people):.2f} | {regret:.1f} | {', '.join(parts)} |",
            flush=True,
        )
        for line in made_set.remarks:
            print(f"{folder.name}: {line}", file=sys.stderr)
        if arguments.detail:
            for name in sorted(by_people, key=lambda system: -by_people[system].mean()):
                print(
                    f"{100 * by_people[name].mean():6.1f} {100 * by_made[name].mean():6.1f} {name}"
                )


if __name__ == "__main__":
    main()
