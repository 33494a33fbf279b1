"""`examples/mteb_tables.py` ranks a set in three modes, for MTEB's tables and query by query."""

import json
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("mteb")

import mteb

from eval import evaluate, read_qrels, read_run
from tests.eval.datasets import question_samples
from tests.eval.datasets.question_samples import records

SCRIPT = Path(__file__).parents[2] / "examples/mteb_tables.py"
FILES = {
    "corpus.jsonl": records(
        {"id": "a", "title": "Ships", "text": "Ships float on water."},
        {"id": "b", "text": "Coal burns."},
        {"id": "c", "text": "Trains carry coal."},
    ),
    "queries.test.jsonl": records(
        {"id": "q1", "text": "which ships float"},
        {"id": "q2", "text": "what carries coal"},
        {"id": "unanswered", "text": "what is tea"},
    ),
    "qrels.test.tsv": "q1 0 a 1\nq2 0 c 1\nq2 0 b 1\n",
}
POOLS = records({"qid": "q1", "candidates": ["b"]}, {"qid": "q2", "candidates": ["b", "c"]})


@pytest.fixture
def tables(tmp_path, fake_encoder, monkeypatch):
    """Return a function that runs the script on a question set of `files`."""

    def run(files):
        dataset = question_samples.write(tmp_path / "my_set", files)
        output = tmp_path / "tables"
        monkeypatch.setattr(sys, "argv", [SCRIPT.name, str(dataset), "--output", str(output)])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return output

    return run


def test_output_has_mteb_scores_with_intervals_and_scores_of_each_query(tables, capsys):
    output = tables(FILES)
    assert "R@100    value" in capsys.readouterr().out
    results = mteb.ResultCache(output).load_results(include_remote=False)
    names = {f"layer-retriever/default-{mode}" for mode in ("dense", "bm25", "hybrid")}
    assert names < set(results.to_dataframe().columns)
    lines = (output / "queries/LocalMySet.jsonl").read_text().splitlines()
    queries = [json.loads(line) for line in lines]
    assert [query["query"] for query in queries] == ["q1", "q2"]
    for result in results.model_results:
        mode = result.model_name.rpartition("-")[2]
        (scores,) = result.task_results[0].scores["test"]
        mean = sum(query[mode]["nDCG@10"] for query in queries) / 2
        assert scores["ndcg_at_10"] == pytest.approx(mean, abs=1e-5)
        assert scores["nDCG@10 low"] <= scores["nDCG@10"] <= scores["nDCG@10 high"]
        run = read_run(output / f"queries/LocalMySet-{mode}.run")
        again = evaluate(run, read_qrels(output / "queries/LocalMySet.qrels"), ["nDCG@10"])
        assert again.means["nDCG@10"] == pytest.approx(mean)
    (bm25,) = [result for result in results.model_results if result.model_name.endswith("bm25")]
    assert bm25.task_results[0].main_score == 1


def test_a_set_with_pools_ranks_the_candidates_of_each_query_only(tables):
    output = tables(FILES | {"candidates.test.jsonl": POOLS})
    run = read_run(output / "queries/LocalMySet-hybrid.run")
    assert {query: set(scores) for query, scores in run.items()} == {"q1": {"b"}, "q2": {"b", "c"}}
