"""`retriever tune`, the files of settings that --config takes, and `eval layers`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval import TuneResult, read_pipeline
from tests.cli.conftest import assert_refused, printed_json, printed_lines
from tests.eval.sentences.sentence_samples import write_pairs
from tests.eval.tuning.test_tuning import make_collection, write_files


@pytest.fixture
def data(tmp_path):
    corpus, questions = make_collection(30, 24)
    return write_files(tmp_path, corpus, questions)


def test_tune_writes_settings_that_index_and_query_use(data, retriever, tiny_models, monkeypatch):
    # As if they gained: these questions are too few to tell.
    monkeypatch.setattr(
        TuneResult, "recommended", lambda self: {"tuned": self.best, "simplest": self.simple}
    )
    corpus, queries, qrels = data
    done = retriever(
        *("tune", corpus, "--queries", queries, "--qrels", qrels, "-o", "out"),
        *("--encoder", tiny_models["bert"], "--set", "folds=2", "--minutes", "0.02"),
    )
    assert done.code == 0, done.err
    assert "nDCG@10 on 24 questions that no choice has seen" in done.out
    assert "24 questions are few to tune by" in done.err
    tuned = read_pipeline(Path("out/tuned.toml"))
    report = json.loads(Path("out/report.json").read_text())
    assert report["tuned"]["model"] == str(tuned.encoder)
    assert report["scores"]["defaults"]["difference"] is None
    assert Path("out/figures/front.png").exists()
    assert retriever("index", corpus, "--config", "out/tuned.toml", "-q").code == 0
    info = printed_json(retriever("info", "--json"))
    assert info["long_texts"]["context"] == tuned.passages.context
    assert info["long_texts"]["overlap"] == tuned.passages.overlap
    assert retriever("query", "w1 w2", "--config", "out/tuned.toml", "--json").code == 0
    # The same command again replaces what it wrote, and nothing else.
    arguments = ("tune", corpus, "--queries", queries, "--qrels", "no", "-o", "out")
    assert_refused(retriever(*arguments), "no: no such file")
    Path("out/notes.md").touch()
    assert_refused(
        retriever(*arguments), "out: expected a new name, an empty folder", "found notes.md in it"
    )


def test_query_options_override_config_file(retriever, write_jsonl, fake_encoder):
    corpus = write_jsonl(*({"id": str(n), "text": f"w{n} w1 w1 w{n % 3}"} for n in range(9)))
    assert retriever("index", corpus, "-q").code == 0
    Path("s.toml").write_text(
        "[search]\nfusion = 'convex'\nalpha = 0.3\nk1 = 0.5\nnormalization = 'z-score'\n"
    )

    def scores(*options):
        return printed_lines(retriever("query", "w1 w2", "--json", *options))

    arguments = ("--set", "normalization=z-score", "--set", "k1=0.5")
    assert scores("--config", "s.toml") == scores("--alpha", "0.3", *arguments)
    assert scores("--config", "s.toml", "--alpha", "0.8") == scores("--alpha", "0.8", *arguments)
    expected = scores("--alpha", "0.3", arguments[0], arguments[1], "--set", "k1=2")
    assert scores("--config", "s.toml", "--set", "k1=2") == expected
    expected = scores("--fusion", "rrf", "--set", "k1=0.5")
    assert scores("--config", "s.toml", "--fusion", "rrf") == expected
    assert scores("--config", "s.toml") != scores()
    Path("s.toml").write_text("[serach]\n")
    assert_refused(retriever("query", "w1", "--config", "s.toml"), "s.toml: expected", "'serach'")


def test_tune_without_gain_keeps_defaults_and_removes_old_settings(data, retriever, tiny_models):
    corpus, queries, qrels = data
    arguments = ("tune", corpus, "--queries", queries, "--qrels", qrels, "-o", "out")
    arguments += ("--encoder", tiny_models["bert"], "--set", "folds=2", "--minutes", "0.02")
    Path("out").mkdir()
    Path("out/tuned.toml").write_text("# of an earlier run\n")
    for _ in range(2):
        # The second run takes the folder of the first, which has no settings.
        done = retriever(*arguments)
        assert done.code == 0, done.err
        assert "keep the defaults: no s" in done.out
        names = {path.name for path in Path("out").iterdir()}
        assert names == {"figures", "report.json", "report.md", "report.tex", "values.csv"}
        assert json.loads(Path("out/report.json").read_text())["keep_defaults"]


@pytest.fixture
def pairs(tmp_path):
    return {
        "dev": write_pairs(tmp_path / "dev.tsv", 40, 0),
        "test": write_pairs(tmp_path / "test.tsv", 30, 1),
    }


@pytest.fixture
def tune(retriever, tiny_models):
    return lambda *rest: retriever("eval", "layers", *rest, "--model", tiny_models["bert"])


def test_eval_layers_report_shows_sets_gain_effects_and_encoder(tune, pairs):
    options = ("--set", "top=3", "--plot", "effects.svg", "--output", "report")
    done = tune(pairs["dev"], "--test", pairs["test"], *options)
    assert done.code == 0, done.err
    for text in (
        "sets: 7 of 3 hidden states (0: embeddings)",
        "objective: spearman over 40 pairs of",
        "held-out data: 30 pairs of",
        "gain on held-out data: ",
        "best without",
        "encoder: ",
    ):
        assert text in done.out
    assert len(done.out.split("\n\n")[1].splitlines()) == 2 + 3 + 1
    assert Path("effects.svg").read_text().startswith("<?xml")
    report = json.loads(Path("report/report.json").read_text())
    layers = ",".join(map(str, report["best"]["layers"]))
    assert Path("report/sets.csv").read_text().splitlines()[1].strip('"').startswith(layers)
    assert layers in Path("report/report.md").read_text()
    plain = tune(pairs["dev"])
    assert "the gain is optimistic: it is measured on the data" in plain.out
    assert "held out" not in plain.out


def test_eval_layers_paper_protocol_merges_files_and_is_deterministic(tune, pairs):
    arguments = (pairs["dev"], pairs["test"], "--protocol", "paper", "--set", "dev-size=30")
    arguments += ("--set", "shuffles=3")
    done = tune(*arguments)
    assert "spearman over 70 pairs of" in done.out
    assert "held out, mean over 3 shuffles (30 pairs to search on, 40 to test on):" in done.out
    assert tune(*arguments) == done
    report = printed_json(tune(*arguments, "--set", "seed=1", "--json"))
    assert sum(times for _, times in report["wins"]) == len(report["shuffles"]) == 3


@pytest.mark.soak
def test_eval_layers_finds_known_layers_of_minilm_on_stsb(retriever, stsb):
    report = printed_json(retriever("eval", "layers", stsb, "--json", "--device", "cpu"))
    assert report["baseline"]["search"] == pytest.approx(0.8203, abs=5e-5)
    assert report["best"]["layers"] == [0, 6]
    assert report["best"]["search"] == pytest.approx(0.8238, abs=5e-5)
