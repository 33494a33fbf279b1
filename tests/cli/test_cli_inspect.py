from __future__ import annotations

import json
import re

import numpy as np
import pytest

from eval.inspect.layers import layer_similarity
from retriever.encoders import Encoder
from tests.cli.conftest import found, refused

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


def test_the_map_of_a_text_is_that_of_its_hidden_states(inspect, tiny_models, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(WORDS)
    told = found(inspect("layers", text, "--json"))
    encoder = Encoder.load(str(tiny_models["bert"]), device="cpu")
    _, expected = layer_similarity((one.states, one.kept) for one in encoder.hidden_states([WORDS]))
    np.testing.assert_allclose(told["mean"], expected, atol=1e-6)
    assert (told["texts"], told["pieces"], told["hidden_states"]) == (1, 7, 3)
    _, cosines, diagonals = inspect("layers", text).out.split("\n\n")
    rows = [line.split()[1:] for line in cosines.splitlines()[2:]]
    np.testing.assert_allclose(np.array(rows, float), told["mean"], atol=5.1e-4)
    assert diagonals.splitlines()[1].split() == [
        *("layers", "apart", "mean", "deviation", "lowest", "highest")
    ]


def test_a_corpus_is_read_up_to_the_limit_and_what_is_cut_is_counted(inspect, corpus, write_jsonl):
    whole = found(inspect("layers", corpus, "--json"))
    assert (whole["texts"], whole["pieces"], whole["cut"]) == (20, 160, 0)
    assert found(inspect("layers", corpus, "--json", "--set", "limit=5"))["pieces"] == 40
    assert "the first 5 texts, 40 word" in inspect("layers", corpus, "--set", "limit=5").out
    assert ": 20 texts, 160 word pieces" in inspect("layers", corpus).out
    path = write_jsonl({"id": "a", "text": "w1 " * 60}, {"id": "b", "text": "w1"})
    done = inspect("layers", path, "--json")
    assert found(done)["cut"] == 1
    assert "warning: 1 text exceeded the window of 40 word pieces" in done.err


def test_groups_hold_the_words_that_occur_often_enough(inspect, corpus):
    told = found(inspect("words", corpus, "--json", "--set", "min-count=2", "--set", "top=2"))
    words = [one for group in ("low", "middle", "high") for one in told[group]]
    assert (told["texts"], told["words"]) == (20, 9)
    assert len({one["word"] for one in words}) == 6
    for one in words:
        assert one["count"] == len(re.findall(rf"\b{one['word']}\b", corpus.read_text()))
    rows = inspect("words", corpus, "--set", "min-count=2", "--set", "top=3").out.splitlines()
    assert rows[0].endswith(": 20 texts, 9 words that occur at least 2 times")
    header = "low variance count middle variance count high variance count"
    assert (rows[3].split(), len(rows)) == (header.split(), 7)


def test_weights_follow_their_words(inspect, tmp_path):
    pytest.importorskip("matplotlib")
    told = found(inspect("weights", WORDS, "--json"))
    assert [one["text"] for one in told["words"]] == ["[CLS]", *WORDS.split(), "[SEP]"]
    assert sum(one["weight"] for one in told["words"]) == pytest.approx(1)
    assert all(sum(one["layers"]) == pytest.approx(1) for one in told["words"])
    assert told["first_layer"] == 1
    shown = " ".join(f"{one['text']}({one['weight']:.3f})" for one in told["words"])
    assert inspect("weights", WORDS, "--plot", "weights.svg").out == shown + "\n"
    assert (tmp_path / "weights.svg").read_bytes().startswith(b"<?xml")
    form = "::wk-preset=released::window=1::start-layer=0"
    one = found(inspect("weights", WORDS, "--json", settings=form))
    assert one == found(inspect("weights", WORDS, "--json", settings=f"::sbert-wk{form}"))
    assert one["words"][-1]["text"] == "w5"
    assert len(one["words"][0]["layers"]) == 3


def test_pieces_are_joined_to_words_that_cannot_steer_the_terminal(minilm, retriever):
    asked = ("inspect", "weights", "Untranslatable!", "--device", "cpu", "--json")
    words = found(retriever(*asked))["words"]
    pieces = found(retriever(*asked, "--unit", "piece"))["words"]
    assert [one["text"] for one in words] == ["[CLS]", "Untranslatable", "!", "[SEP]"]
    assert [one["text"] for one in pieces][1:-2] == ["un", "##tra", "##ns", "##lat", "##able"]
    assert words[1]["weight"] == pytest.approx(sum(one["weight"] for one in pieces[1:-2]))
    done = retriever("inspect", "weights", "a\x1b[31m\x9bred\r\nword", "--device", "cpu")
    assert re.fullmatch("[^\x00-\x1f\x7f-\x9f]+\n", done.out)


@pytest.mark.parametrize("kind", ["layers", "words"])
def test_a_report_holds_what_is_printed(inspect, corpus, tmp_path, kind):
    pytest.importorskip("matplotlib")
    done = inspect(kind, corpus, "--output", "report")
    written = json.loads((tmp_path / "report/report.json").read_text())
    assert {**found(inspect(kind, corpus, "--json")), "command": written["command"]} == written
    assert "torch" in written["environment"]
    page = (tmp_path / "report/report.md").read_text()
    for word in done.out.split():
        assert word.replace("_", "\\_") in page or set(word) & set("~<>()*")
    drawn = {path.name for path in (tmp_path / "report").glob("figures/*")}
    assert drawn == ({"layers.png", "layers.svg"} if kind == "layers" else set())
    refused(inspect(kind, corpus, "--output", "absent/report"), "expected its parent to exist")
