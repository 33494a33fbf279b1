from __future__ import annotations

import random

import pytest

from eval.datasets.classification import read_probing
from tests.cli.conftest import found, refused

WORDS = [f"word{number}" for number in range(500)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    chance = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "sentences.txt"
    lengths = [6, 10, 14, 18, 23, 27] * 300
    path.write_text("".join(" ".join(chance.sample(WORDS, n)) + "\n" for n in lengths))
    return path


@pytest.fixture
def make(retriever, corpus):
    return lambda *arguments: retriever("make", "probing", corpus, "-o", "probing", *arguments)


def test_a_set_is_written_in_sentevals_form_and_summed_up(make, tmp_path):
    done = make("--task", "sentlen", "--json", "--seed", 3)
    told = found(done)
    assert done.err.count("note:") == 1
    path = tmp_path / "probing/sentence_length.txt"
    assert (told["seed"], told["texts"], told["sentences"]) == (3, 1800, 1800)
    sizes = {"labels": 6, "tr": 1500, "va": 150, "te": 150}
    file = "probing/sentence_length.txt"
    assert told["sets"] == [{"task": "sentlen", "file": file, **sizes}]
    task = read_probing(path)
    assert [len(task.splits[split]) for split in ("train", "dev", "test")] == [1500, 150, 150]


def test_the_same_command_writes_the_same_bytes_and_replaces_none(make, tmp_path):
    path = tmp_path / "probing/bigram_shift.txt"
    contents = []
    for seed in (0, 0, 1):
        assert make("--task", "bshift", "--seed", seed, "--quiet").out == ""
        contents.append(path.read_bytes())
        path.rename(tmp_path / "before.txt")
    assert contents[0] == contents[1] != contents[2]
    path.write_text("SentEval's")
    refused(make("--words", 10), "expected a folder without bigram_shift.txt")
    assert path.read_text() == "SentEval's"
