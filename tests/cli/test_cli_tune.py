from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import found
from tests.eval.sentences.sentence_samples import write_pairs


@pytest.fixture
def pairs(tmp_path):
    return {
        "dev": write_pairs(tmp_path / "dev.tsv", 40, 0),
        "test": write_pairs(tmp_path / "test.tsv", 30, 1),
    }


@pytest.fixture
def tune(retriever, tiny_models):
    return lambda *rest: retriever("eval", "layers", *rest, "--model", tiny_models["bert"])


def test_the_report_shows_sets_gain_effects_and_the_encoder(tune, pairs):
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
    assert "held-out rank" not in plain.out


def test_the_papers_protocol_merges_files_and_repeats_itself(tune, pairs):
    asked = (pairs["dev"], pairs["test"], "--protocol", "paper", "--set", "dev-size=30")
    asked += ("--set", "shuffles=3")
    done = tune(*asked)
    assert "spearman over 70 pairs of" in done.out
    assert "held out, mean over 3 shuffles (30 pairs to search on, 40 to test on):" in done.out
    assert tune(*asked) == done
    told = found(tune(*asked, "--set", "seed=1", "--json"))
    assert sum(times for _, times in told["wins"]) == len(told["shuffles"]) == 3


@pytest.mark.soak
def test_the_search_finds_the_known_layers_of_minilm_on_stsb(retriever, stsb, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(stsb.cache))
    told = found(retriever("eval", "layers", stsb.path, "--json", "--device", "cpu"))
    assert told["baseline"]["search"] == pytest.approx(0.8203, abs=5e-5)
    assert told["best"]["layers"] == [0, 6]
    assert told["best"]["search"] == pytest.approx(0.8238, abs=5e-5)
