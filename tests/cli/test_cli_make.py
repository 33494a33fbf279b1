from __future__ import annotations

import json
import random

import pytest

from eval.datasets.classification import read_probing

WORDS = [f"word{number}" for number in range(500)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    chance = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "sentences.txt"
    lengths = [6, 10, 14, 18, 23, 27] * 300
    path.write_text("".join(" ".join(chance.sample(WORDS, n)) + "\n" for n in lengths))
    return path


@pytest.fixture
def make(retriever, corpus, tmp_path):
    def call(*arguments):
        return retriever("make", "probing", corpus, "-o", tmp_path / "probing", *arguments)

    return call


def test_a_set_is_written_in_sentevals_form_and_summed_up(make, tmp_path):
    done = make("--task", "sentlen", "--json", "--seed", 3)
    assert (done.code, done.err.count("note:")) == (0, 1)
    found = json.loads(done.out)
    path = tmp_path / "probing/sentence_length.txt"
    assert (found["seed"], found["texts"], found["sentences"]) == (3, 1800, 1800)
    assert found["sets"] == [
        {"task": "sentlen", "file": str(path), "labels": 6, "tr": 1500, "va": 150, "te": 150}
    ]
    task = read_probing(path)
    assert {split: len(texts) for split, texts in task.splits.items()} == {
        "train": 1500,
        "dev": 150,
        "test": 150,
    }


def test_the_same_command_writes_the_same_bytes(make, tmp_path):
    path = tmp_path / "probing/bigram_shift.txt"
    contents = []
    for seed in (0, 0, 1):
        assert make("--task", "bshift", "--seed", seed, "--quiet").out == ""
        contents.append(path.read_bytes())
        path.unlink()
    assert contents[0] == contents[1] != contents[2]


def test_an_existing_file_is_not_replaced(make, tmp_path):
    (tmp_path / "probing").mkdir()
    (tmp_path / "probing/word_content.txt").write_text("SentEval's")
    done = make("--words", 10)
    assert done.code == 2
    assert "expected a folder without word_content.txt" in done.err
    assert (tmp_path / "probing/word_content.txt").read_text() == "SentEval's"
    assert make("--task", "sentlen").code == 0
