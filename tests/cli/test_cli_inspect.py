from __future__ import annotations

import contextlib
import io
import json
import re

import numpy as np
import pytest

from cli.main import run
from eval.inspect.layers import layer_similarity
from retriever.encoders.encoder import Encoder

WORDS = "w1 w2 w3 w4 w5"


@pytest.fixture
def inspect(retriever, tiny_models):
    def call(what, *arguments, settings=""):
        return retriever("inspect", what, *arguments, "--model", f"{tiny_models['bert']}{settings}")

    return call


@pytest.fixture
def corpus(write_jsonl):
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in random.integers(0, 9, 6)) for _ in range(20)]
    return write_jsonl(*({"id": f"d{i}", "text": text} for i, text in enumerate(texts)))


def read(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


class TestLayers:
    def test_the_map_of_a_text_is_that_of_its_hidden_states(self, inspect, tiny_models):
        found = read(inspect("layers", "--text", WORDS, "--json"))
        encoder = Encoder.load(str(tiny_models["bert"]), device="cpu")
        expected = layer_similarity(
            (one.states, one.kept) for one in encoder.hidden_states([WORDS])
        )
        np.testing.assert_allclose(found["mean"], expected.mean, atol=1e-6)
        assert found["texts"] == 1
        assert found["pieces"] == 7
        assert found["hidden_states"] == 3
        assert [one["offset"] for one in found["diagonals"]] == [1, 2]
        assert found["diagonals"][1]["values"] == [found["mean"][0][2]]

    def test_a_corpus_is_read_up_to_the_limit(self, inspect, corpus):
        whole = read(inspect("layers", corpus, "--json"))
        assert (whole["texts"], whole["pieces"], whole["cut"]) == (20, 160, 0)
        assert read(inspect("layers", corpus, "--json", "--limit", 5))["pieces"] == 40
        assert "the first 5 texts, 40 word" in inspect("layers", corpus, "--limit", 5).out
        assert ": 20 texts, 160 word pieces" in inspect("layers", corpus).out

    def test_a_table_shows_map_and_diagonals(self, inspect):
        outcome = inspect("layers", "--text", WORDS)
        found = read(inspect("layers", "--text", WORDS, "--json"))
        _, cosines, diagonals = outcome.out.split("\n\n")
        assert cosines.splitlines()[1].split() == ["0", "1", "2"]
        rows = [line.split()[1:] for line in cosines.splitlines()[2:]]
        np.testing.assert_allclose(np.array(rows, float), found["mean"], atol=5.1e-4)
        assert diagonals.splitlines()[1].split() == [
            *("layers", "apart", "mean", "deviation", "lowest", "highest")
        ]
        assert len(diagonals.splitlines()) == 4

    def test_texts_that_are_cut_are_counted(self, inspect, write_jsonl):
        path = write_jsonl({"id": "a", "text": "w1 " * 60}, {"id": "b", "text": "w1"})
        outcome = inspect("layers", path, "--json")
        assert read(outcome)["cut"] == 1
        assert "warning: 1 text exceeded the window of 40 word pieces" in outcome.err


class TestWords:
    def test_groups_hold_the_words_that_occur_often_enough(self, inspect, corpus):
        found = read(inspect("words", corpus, "--json", "--set", "min-count=2", "--top", 2))
        assert found["texts"] == 20
        shown = [one for group in ("low", "middle", "high") for one in found[group]]
        text = corpus.read_text()
        assert found["words"] == 9
        assert len(shown) == 6
        assert len({one["word"] for one in shown}) == 6
        for one in shown:
            assert one["count"] == len(re.findall(rf"\b{one['word']}\b", text))
        low, high = found["low"], found["high"]
        assert low[0]["variance"] <= low[1]["variance"] <= high[1]["variance"]
        assert high[1]["variance"] <= high[0]["variance"]

    def test_a_table_shows_the_groups_beside_each_other(self, inspect, corpus):
        outcome = inspect("words", corpus, "--set", "min-count=2", "--top", 3)
        lines = outcome.out.splitlines()
        assert lines[0].endswith(": 20 texts, 9 words that occur at least 2 times")
        header = "low variance count middle variance count high variance count"
        assert lines[3].split() == header.split()
        assert len(lines) == 7


class TestWeights:
    def test_the_weight_follows_the_word(self, inspect):
        found = read(inspect("weights", WORDS, "--json"))
        assert [one["text"] for one in found["words"]] == ["[CLS]", *WORDS.split(), "[SEP]"]
        assert sum(one["weight"] for one in found["words"]) == pytest.approx(1)
        assert all(sum(one["layers"]) == pytest.approx(1) for one in found["words"])
        assert found["first_layer"] == 1
        shown = " ".join(f"{one['text']}({one['weight']:.3f})" for one in found["words"])
        assert inspect("weights", WORDS).out == shown + "\n"

    def test_settings_of_sbert_wk_are_taken_however_they_are_named(self, inspect, tiny_models):
        form = "::wk-preset=released::window=1::start-layer=0"
        one = read(inspect("weights", WORDS, "--json", settings=form))
        model = f"{tiny_models['bert']}::sbert-wk{form}"
        outcome = io.StringIO()
        with contextlib.redirect_stdout(outcome):
            assert run(["inspect", "weights", WORDS, "--json", "--model", model]) == 0
        assert json.loads(outcome.getvalue()) == one
        assert one["words"][-1]["text"] == "w5"
        assert len(one["words"][0]["layers"]) == 3

    def test_a_text_may_come_from_a_file(self, inspect, tmp_path):
        (tmp_path / "text.txt").write_text(f"\ufeff{WORDS}\n", encoding="utf-8")
        from_file = inspect("weights", "--text-file", tmp_path / "text.txt")
        assert from_file.out == inspect("weights", WORDS).out

    def test_a_text_cannot_steer_the_terminal(self, minilm, retriever):
        outcome = retriever("inspect", "weights", "a\x1b[31m\x9bred\r\nword", "--device", "cpu")
        assert outcome.code == 0
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", outcome.out)
        assert outcome.out.count("\n") == 1

    def test_pieces_are_joined_to_words_unless_asked_for(self, minilm, retriever):
        arguments = ("inspect", "weights", "Untranslatable!", "--device", "cpu", "--json")
        words = read(retriever(*arguments))["words"]
        pieces = read(retriever(*arguments, "--unit", "piece"))["words"]
        assert [one["text"] for one in words] == ["[CLS]", "Untranslatable", "!", "[SEP]"]
        assert [one["text"] for one in pieces][1:-2] == ["un", "##tra", "##ns", "##lat", "##able"]
        assert words[1]["weight"] == pytest.approx(sum(one["weight"] for one in pieces[1:-2]))


@pytest.mark.parametrize("kind", ["layers", "words"])
def test_a_report_holds_what_is_printed(inspect, corpus, tmp_path, kind):
    report = tmp_path / "report"
    outcome = inspect(kind, corpus, "--output", report)
    written = json.loads((report / "report.json").read_text())
    assert {**read(inspect(kind, corpus, "--json")), "command": written["command"]} == written
    assert "torch" in written["environment"]
    page = (report / "report.md").read_text()
    for line in outcome.out.splitlines():
        for word in line.split():
            assert word.replace("_", "\\_") in page or set(word) & set("~<>()*")
    pytest.importorskip("matplotlib")
    assert {path.name for path in (report / "figures").iterdir()} == {f"{kind}.png", f"{kind}.svg"}
    refused = inspect(kind, corpus, "--output", tmp_path / "absent" / "report")
    assert refused.code == 2
    assert "expected its parent to exist" in refused.err


def test_weights_are_drawn(inspect, tmp_path):
    pytest.importorskip("matplotlib")
    assert inspect("weights", WORDS, "--plot", tmp_path / "weights.svg").code == 0
    assert (tmp_path / "weights.svg").read_bytes().startswith(b"<?xml")
