from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

from eval.datasets.pairs import read_pairs
from retriever.encoders.encoder import Encoder
from tests.eval.sentences.sentence_samples import write_pairs


@pytest.fixture
def pairs(tmp_path):
    return {
        "dev": write_pairs(tmp_path / "dev.tsv", 40, 0),
        "test": write_pairs(tmp_path / "test.tsv", 30, 1),
    }


@pytest.fixture
def tune(retriever, tiny_models):
    def call(*arguments):
        return retriever("eval", "layers", *arguments, "--model", tiny_models["bert"])

    return call


def cosines(encoder, left, right):
    # Identical sentences have cosine 1 only up to the rounding of float32.
    return np.round((encoder.encode(left) * encoder.encode(right)).sum(axis=1), 6)


def test_the_encoder_to_paste_scores_what_the_report_says(tune, pairs):
    outcome = tune(pairs["dev"], "--test", pairs["test"], "--json", "--pooling", "max")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["encoder"].endswith(
        "::pooling=max::lc:" + ",".join(map(str, found["best"]["layers"]))
    )
    encoder = Encoder.load(found["encoder"], device="cpu")
    for side, value in (("dev", found["best"]["search"]), ("test", found["best"]["held_out"])):
        data = read_pairs([pairs[side]])
        expected = scipy.stats.spearmanr(cosines(encoder, data.left, data.right), data.gold)[0]
        assert value == pytest.approx(expected, abs=1e-6)
    assert found["subsets"] == 7
    assert found["search_data"]["units"] == 40
    assert found["held_out_data"]["units"] == 30
    assert found["gain"]["held_out"] is True
    assert found["gain"]["low"] <= found["gain"]["gain"] <= found["gain"]["high"]


def test_the_report_shows_sets_gain_effects_and_the_encoder(tune, pairs, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "effects.svg"
    outcome = tune(pairs["dev"], "--test", pairs["test"], "--set", "top=3", "--plot", figure)
    assert outcome.code == 0, outcome.err
    for text in (
        "sets: 7 of 3 hidden states (0: embeddings)",
        "objective: spearman over 40 pairs of",
        "held-out data: 30 pairs of",
        "held-out rank",
        "last layer",
        "gain on held-out data: ",
        "95% interval",
        "number of layers",
        "best without",
        "encoder: ",
    ):
        assert text in outcome.out
    table = outcome.out.split("\n\n")[1].splitlines()
    assert len(table) == 2 + 3 + 1
    assert figure.read_text().startswith("<?xml")


def test_without_held_out_data_the_report_says_so(tune, pairs):
    outcome = tune(pairs["dev"])
    assert outcome.code == 0, outcome.err
    assert "the gain is optimistic: it is measured on the data" in outcome.out
    assert "held-out rank" not in outcome.out
    assert json.loads(tune(pairs["dev"], "--json").out)["held_out_data"] is None


def test_the_papers_protocol_merges_files_and_repeats_itself(tune, pairs):
    arguments = (pairs["dev"], pairs["test"], "--protocol", "paper", "--set", "dev-size=30")
    outcome = tune(*arguments, "--set", "shuffles=3")
    assert outcome.code == 0, outcome.err
    assert "spearman over 70 pairs of" in outcome.out
    assert "held out, mean over 3 shuffles (30 pairs to search on, 40 to test on):" in outcome.out
    assert "best layers (shuffles): " in outcome.out
    assert tune(*arguments, "--set", "shuffles=3").out == outcome.out
    found = json.loads(tune(*arguments, "--set", "shuffles=3", "--set", "seed=1", "--json").out)
    assert len(found["shuffles"]) == 3
    assert sum(times for _, times in found["wins"]) == 3


@pytest.mark.soak
def test_the_search_finds_the_known_layers_of_minilm_on_stsb(retriever, stsb, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(stsb.cache))
    found = json.loads(retriever("eval", "layers", stsb.path, "--json", "--device", "cpu").out)
    assert found["baseline"]["search"] == pytest.approx(0.8203, abs=5e-5)
    assert found["best"]["layers"] == [0, 6]
    assert found["best"]["search"] == pytest.approx(0.8238, abs=5e-5)


def test_the_report_holds_what_json_prints(tune, pairs, tmp_path):
    report = tmp_path / "report"
    outcome = tune(pairs["dev"], "--output", report, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == json.loads((report / "report.json").read_text())
    layers = ",".join(map(str, json.loads(outcome.out)["best"]["layers"]))
    assert (report / "sets.csv").read_text().splitlines()[1].strip('"').startswith(layers)
    assert layers in (report / "report.md").read_text()
