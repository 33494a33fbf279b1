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
    def call(*arguments, source=corpus):
        return retriever("make", "probing", source, "-o", tmp_path / "probing", *arguments)

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


def test_a_corpus_too_small_for_one_set_writes_none(make, tmp_path):
    done = make("--words", 50)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("retriever: wc: expected 50 words of 4 letters or more")
    # None was found, so fewer words would not help.
    assert done.err.endswith("; name a larger corpus\n")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "probing").exists()


def test_an_existing_file_is_not_replaced(make, tmp_path):
    (tmp_path / "probing").mkdir()
    (tmp_path / "probing/word_content.txt").write_text("SentEval's")
    done = make("--words", 10)
    assert done.code == 2
    assert "expected a folder without word_content.txt" in done.err
    assert (tmp_path / "probing/word_content.txt").read_text() == "SentEval's"
    assert make("--task", "sentlen").code == 0


@pytest.mark.parametrize(
    ("arguments", "source", "said"),
    [
        (["--task", "sentlen", "--words", 5], None, "--words belongs to wc; found --task sentlen"),
        ([], "-", "read SOURCE twice, and standard input can be read only once"),
        (["--words", 1], None, "--words"),
        (["--task", "treedepth"], None, "'treedepth' is not one of"),
        ([], "absent.txt", "absent.txt: no such file or folder"),
    ],
)
def test_what_cannot_be_done_is_said(make, corpus, tmp_path, arguments, source, said):
    done = make(*arguments, source=source or corpus)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "probing").exists()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_read(
    retriever, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr("cli.commands.make_probing._texts", lambda *_, **__: pytest.fail("read"))
    done = retriever("make", "probing", corpus, "-o", tmp_path / "a/b")
    assert (done.code, "expected its parent folder to exist" in done.err) == (2, True)
    done = retriever("make", "probing", corpus, "-o", corpus)
    assert (done.code, "expected a folder, found a file" in done.err) == (2, True)
