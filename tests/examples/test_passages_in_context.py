"""`examples/passages_in_context.py` writes a set that `eval qa` reads, texts with their context."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eval.datasets.question_forms import read_question_set
from tests.eval.datasets import question_samples
from tests.eval.datasets.question_samples import records

SCRIPT = Path(__file__).parents[2] / "examples/passages_in_context.py"
CORPUS = [
    {"id": "a-0", "title": "Ships", "text": "Ships float."},
    {"id": "a-1", "title": "Ships", "text": "They carry coal."},
    {"id": "a-2", "title": "Ships", "text": "Some sink."},
    {"id": "b-0", "text": "Coal burns."},
]


FILES = {
    "corpus.jsonl": records(*CORPUS),
    "queries.test.jsonl": records({"id": "q1", "text": "floats"}, {"id": "q2", "text": "coal"}),
    "candidates.test.jsonl": records(
        {"qid": "q1", "candidates": ["a-0", "a-1", "a-2"]}, {"qid": "q2", "candidates": ["b-0"]}
    ),
    "qrels.test.tsv": "q1 0 a-0 1\nq2 0 b-0 1\n",
}


@pytest.fixture
def dataset(tmp_path):
    return question_samples.write(tmp_path / "set", FILES)


def write(dataset, context, output):
    return subprocess.run(
        [sys.executable, SCRIPT, dataset, context, "--output", output],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("context", "first", "middle", "alone"),
    [
        ("title", "Ships | Ships float.", "Ships | They carry coal.", "Coal burns."),
        (
            "neighbors",
            "Ships float. | They carry coal.",
            "They carry coal. | Ships float. | Some sink.",
            "Coal burns.",
        ),
    ],
)
def test_each_passage_gets_its_title_or_neighbors(dataset, tmp_path, context, first, middle, alone):
    done = write(dataset, context, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    texts = read_question_set(tmp_path / "out", "test").passages
    assert (texts["a-0"], texts["a-1"], texts["b-0"]) == (first, middle, alone)
    for name in list(FILES)[1:]:
        assert (tmp_path / "out" / name).read_bytes() == (dataset / name).read_bytes()
    again = write(dataset, context, tmp_path / "out")
    assert again.returncode == 1
    assert "exists; name another folder" in again.stderr


def test_candidate_lists_with_contradicting_neighbors_are_refused(dataset, tmp_path):
    with (dataset / "candidates.test.jsonl").open("a") as file:
        file.write(json.dumps({"qid": "q3", "candidates": ["a-1", "a-0"]}) + "\n")
    done = write(dataset, "neighbors", tmp_path / "out")
    assert done.returncode == 1
    assert "a-1: expected the same neighbors in each list" in done.stderr
    assert not (tmp_path / "out").exists()
    assert write(dataset, "title", tmp_path / "out").returncode == 0
    assert "expected corpus.jsonl" in write(tmp_path, "title", tmp_path / "no").stderr
