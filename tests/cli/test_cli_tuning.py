"""`retriever tune`, and the files of settings that other commands take with --config."""

import json
from pathlib import Path

import pytest

from eval import read_pipeline
from tests.cli.conftest import found, lines, refused
from tests.eval.tuning.test_tuning import made, write_files


@pytest.fixture
def data(tmp_path):
    corpus, asked = made(30, 24)
    return write_files(tmp_path, corpus, asked)


def test_settings_are_chosen_written_and_used(data, retriever, tiny_models):
    corpus, queries, qrels = data
    done = retriever(
        *("tune", corpus, "--queries", queries, "--qrels", qrels, "-o", "out"),
        *("--encoder", tiny_models["bert"], "--set", "folds=2", "--minutes", "2"),
    )
    assert done.code == 0, done.err
    assert "nDCG@10 on 24 questions that no choice has seen" in done.out
    tuned = read_pipeline(Path("out/tuned.toml"))
    report = json.loads(Path("out/report.json").read_text())
    assert report["tuned"]["model"] == str(tuned.encoder)
    assert report["scores"]["defaults"]["difference"] is None
    assert Path("out/figures/front.png").exists()
    assert retriever("index", corpus, "--config", "out/tuned.toml", "-q").code == 0
    info = found(retriever("info", "--json"))
    assert info["long_texts"]["context"] == tuned.passages.context
    assert info["long_texts"]["overlap"] == tuned.passages.overlap
    assert retriever("query", "w1 w2", "--config", "out/tuned.toml", "--json").code == 0
    # The same command again replaces what it wrote, and nothing else.
    asked = ("tune", corpus, "--queries", queries, "--qrels", "no", "-o", "out")
    refused(retriever(*asked), "no: no such file")
    Path("out/notes.md").touch()
    refused(retriever(*asked), "out: expected a new name, an empty folder", "found notes.md in it")


def test_options_win_over_a_file_of_settings(retriever, write_jsonl, fake_encoder):
    corpus = write_jsonl(*({"id": str(n), "text": f"w{n} w1 w1 w{n % 3}"} for n in range(9)))
    assert retriever("index", corpus, "-q").code == 0
    Path("s.toml").write_text(
        "[search]\nfusion = 'convex'\nalpha = 0.3\nk1 = 0.5\nnormalization = 'z-score'\n"
    )

    def scores(*options):
        return lines(retriever("query", "w1 w2", "--json", *options))

    asked = ("--set", "normalization=z-score", "--set", "k1=0.5")
    assert scores("--config", "s.toml") == scores("--alpha", "0.3", *asked)
    assert scores("--config", "s.toml", "--alpha", "0.8") == scores("--alpha", "0.8", *asked)
    expected = scores("--alpha", "0.3", asked[0], asked[1], "--set", "k1=2")
    assert scores("--config", "s.toml", "--set", "k1=2") == expected
    expected = scores("--fusion", "rrf", "--set", "k1=0.5")
    assert scores("--config", "s.toml", "--fusion", "rrf") == expected
    assert scores("--config", "s.toml") != scores()
    Path("s.toml").write_text("[serach]\n")
    refused(retriever("query", "w1", "--config", "s.toml"), "s.toml: expected", "'serach'")
