"""Measures of rankings, compared with pytrec_eval and ranx, in turns.

    python benchmarks/metrics.py [--turns N]

(a) 1,000 queries with 1,000 documents each, (b) 633 pools of ten, like WikiQA's; random scores with
ties. `PoolMeasures` scores arrays, which is what training does after each epoch; the others
read dictionaries. Values must agree to 1e-9. ranx is measured if it is installed (`pip install
ranx`), after a first call that compiles it; converting dictionaries counts, as it does for ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import pytrec_eval

from eval.datasets.question_set import Question
from eval.metrics.measures import PoolMeasures, evaluate

# Ours, trec_eval's, ranx's.
MEASURES = {
    "AP": ("map", "map"),
    "RR": ("recip_rank", "mrr"),
    "P@10": ("P_10", "precision@10"),
    "R@100": ("recall_100", "recall@100"),
    "nDCG@10": ("ndcg_cut_10", "ndcg@10"),
}
Values = dict[str, float]
Runs = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]


def main() -> None:
    """Measure and print a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    for queries, documents, relevant in ((1000, 1000, 0.02), (633, 10, 0.15)):
        print(f"{queries:,} queries of {documents:,} documents")
        measure(*made(queries, documents, relevant), turns)


def made(queries: int, documents: int, relevant: float) -> tuple[Runs, Qrels]:
    """Scores with ties; the first document of a query is always judged."""
    chance = np.random.default_rng(0)
    run, qrels = {}, {}
    for number in range(queries):
        names = [f"d{one}" for one in chance.permutation(10 * documents)[:documents]]
        scores = chance.integers(0, 5 * documents, documents).astype(float)
        run[f"q{number}"] = dict(zip(names, scores.tolist(), strict=True))
        grades = (chance.random(documents) < relevant).astype(int).tolist()
        qrels[f"q{number}"] = dict(zip(names, grades, strict=True))
    return run, qrels


def measure(run: Runs, qrels: Qrels, turns: int) -> None:
    """Time each way in turns, and make sure that they agree."""
    ways = {
        "evaluate": lambda: evaluate(run, qrels, list(MEASURES)).means,
        "PoolMeasures": pool_way(run, qrels),
        "pytrec_eval": lambda: trec_eval(run, qrels),
        "ranx": ranx_way(run, qrels),
    }
    found: dict[str, list[float]] = {name: [] for name, way in ways.items() if way is not None}
    expected = ways["pytrec_eval"]()
    for name in found:
        compare(name, ways[name](), expected)
    for _ in range(turns):
        for name, seconds in found.items():
            begin = time.perf_counter()
            ways[name]()
            seconds.append(time.perf_counter() - begin)
    for name, seconds in found.items():
        ratios = [theirs / ours for ours, theirs in zip(seconds, found["pytrec_eval"], strict=True)]
        print(
            f"  {name:<14}{1000 * statistics.median(seconds):9.2f} ms"
            f"{statistics.median(ratios):9.2f} times pytrec_eval's rate"
        )
    if ways["ranx"] is None:
        print("  ranx is not installed: pip install ranx")


def pool_way(run: Runs, qrels: Qrels) -> Callable[[], Values]:
    """Arrays of scores, in the order of the candidates."""
    questions = [
        Question(query, "?", tuple(sorted(scores, reverse=True)), qrels[query])
        for query, scores in run.items()
    ]
    scores = np.array([run[one.id][id_] for one in questions for id_ in one.candidates])
    measures = PoolMeasures(questions, list(MEASURES))
    return lambda: {name: float(values.mean()) for name, values in measures(scores).items()}


def trec_eval(run: Runs, qrels: Qrels) -> Values:
    """pytrec_eval, and the mean of each measure."""
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {one for one, _ in MEASURES.values()})
    rows = evaluator.evaluate(run).values()
    return {
        name: sum(row[theirs] for row in rows) / len(rows) for name, (theirs, _) in MEASURES.items()
    }


def ranx_way(run: Runs, qrels: Qrels) -> Callable[[], Values] | None:
    """ranx, which breaks ties differently; None if it is not installed."""
    try:
        import ranx
    except ImportError:
        return None
    names = [theirs for _, theirs in MEASURES.values()]

    def way() -> Values:
        values = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), names)
        return {name: values[theirs] for name, (_, theirs) in MEASURES.items()}

    return way


def compare(name: str, found: Values, expected: Values) -> None:
    """Agreement with trec_eval; of ranx only what its ties allow."""
    for measure_, value in found.items():
        limit = 1e-2 if name == "ranx" else 1e-9
        assert abs(value - expected[measure_]) < limit, (name, measure_, value, expected[measure_])


if __name__ == "__main__":
    main()
