from __future__ import annotations

import random

import pytest

from eval.datasets.classification import read_probing
from tests.cli.conftest import assert_refused, printed_json

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


def test_make_probing_writes_senteval_file_and_summary(make, tmp_path):
    done = make("--task", "sentlen", "--json", "--set", "seed=3")
    report = printed_json(done)
    assert done.err.count("note:") == 1
    path = tmp_path / "probing/sentence_length.txt"
    assert (report["seed"], report["texts"], report["sentences"]) == (3, 1800, 1800)
    sizes = {"labels": 6, "tr": 1500, "va": 150, "te": 150}
    file = "probing/sentence_length.txt"
    assert report["sets"] == [{"task": "sentlen", "file": file, **sizes}]
    task = read_probing(path)
    assert [len(task.splits[split]) for split in ("train", "dev", "test")] == [1500, 150, 150]


def test_make_probing_is_deterministic_and_replaces_no_foreign_file(make, tmp_path):
    path = tmp_path / "probing/bigram_shift.txt"
    contents = []
    for seed in (0, 0, 1):
        assert make("--task", "bshift", "--set", f"seed={seed}").code == 0
        contents.append(path.read_bytes())
        path.rename(tmp_path / "before.txt")
    assert contents[0] == contents[1] != contents[2]
    path.write_text("SentEval's")
    assert_refused(make("--words", 10), "own, found bigram_shift.txt in it")
    assert path.read_text() == "SentEval's"


def test_make_questions_reads_sources_or_index(fake_encoder, retriever, write_jsonl, tmp_path):
    chance = random.Random(0)
    texts = [
        ". ".join(" ".join(chance.sample(WORDS, 6)).title() for _ in range(3)) for _ in range(30)
    ]
    path = write_jsonl(*({"id": f"d{n:02}", "text": text} for n, text in enumerate(texts)))
    report = printed_json(
        retriever("make", "questions", path, "-o", "made", "--json", "--questions", 12)
    )
    assert (report["documents"], report["kinds"]) == (30, {"sentence": 12})
    assert retriever("index", path, "-i", "index", "--quiet").code == 0
    again = retriever("make", "questions", "index", "-o", "other", "--questions", 12)
    assert again.code == 0
    names = ("corpus.jsonl", "queries.test.jsonl", "qrels.test.tsv")
    for name in names:
        assert (tmp_path / "made" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    ranked = printed_json(retriever("eval", "qa", "made", "-s", "bm25", "--index", "new", "--json"))
    assert ranked["statistics"]["questions"] == 12
    assert_refused(retriever("make", "questions", path, "-o", "made"), "made: expected a new name")
    few = write_jsonl({"id": "a", "text": "A text."}, name="few.jsonl")
    assert_refused(
        retriever("make", "questions", few, "-o", "few"), "at least 20 documents, found 1"
    )
    assert not (tmp_path / "few").exists()
