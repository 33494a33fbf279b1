from __future__ import annotations

import json
import re

import numpy as np
import pytest

from eval.inspect.layers import layer_similarity
from retriever.encoders import Encoder
from tests.cli.conftest import assert_refused, printed_json

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


def test_inspect_layers_prints_similarity_of_hidden_states(inspect, tiny_models, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(WORDS)
    report = printed_json(inspect("layers", text, "--json"))
    encoder = Encoder.load(str(tiny_models["bert"]), device="cpu")
    _, expected = layer_similarity(
        (encoded.states, encoded.is_pooled) for encoded in encoder.hidden_states([WORDS])
    )
    np.testing.assert_allclose(report["mean"], expected, atol=1e-6)
    assert (report["texts"], report["pieces"], report["hidden_states"]) == (1, 7, 3)
    _, cosines, diagonals = inspect("layers", text).out.split("\n\n")
    rows = [line.split()[1:] for line in cosines.splitlines()[2:]]
    np.testing.assert_allclose(np.array(rows, float), report["mean"], atol=5.1e-4)
    assert diagonals.splitlines()[1].split() == [
        *("layers", "apart", "mean", "deviation", "lowest", "highest")
    ]


def test_inspect_layers_reads_corpus_up_to_limit_and_counts_cut_texts(inspect, corpus, write_jsonl):
    whole = printed_json(inspect("layers", corpus, "--json"))
    assert (whole["texts"], whole["pieces"], whole["cut"]) == (20, 160, 0)
    assert printed_json(inspect("layers", corpus, "--json", "--set", "limit=5"))["pieces"] == 40
    assert "the first 5 texts, 40 word" in inspect("layers", corpus, "--set", "limit=5").out
    assert ": 20 texts, 160 word pieces" in inspect("layers", corpus).out
    path = write_jsonl({"id": "a", "text": "w1 " * 60}, {"id": "b", "text": "w1"})
    done = inspect("layers", path, "--json")
    assert printed_json(done)["cut"] == 1
    assert "warning: 1 text exceeded the window of 40 word pieces" in done.err


def test_inspect_words_groups_words_of_min_count(inspect, corpus):
    report = printed_json(
        inspect("words", corpus, "--json", "--set", "min-count=2", "--set", "top=2")
    )
    words = [word for group in ("low", "middle", "high") for word in report[group]]
    assert (report["texts"], report["words"]) == (20, 9)
    assert len({word["word"] for word in words}) == 6
    for word in words:
        assert word["count"] == len(re.findall(rf"\b{word['word']}\b", corpus.read_text()))
    rows = inspect("words", corpus, "--set", "min-count=2", "--set", "top=3").out.splitlines()
    assert rows[0].endswith(": 20 texts, 9 words that occur at least 2 times")
    header = "low variance count middle variance count high variance count"
    assert (rows[3].split(), len(rows)) == (header.split(), 7)


def test_inspect_weights_prints_weight_of_each_word(inspect, tmp_path):
    pytest.importorskip("matplotlib")
    report = printed_json(inspect("weights", WORDS, "--json"))
    assert [word["text"] for word in report["words"]] == ["[CLS]", *WORDS.split(), "[SEP]"]
    assert sum(word["weight"] for word in report["words"]) == pytest.approx(1)
    assert all(sum(word["layers"]) == pytest.approx(1) for word in report["words"])
    assert report["first_layer"] == 1
    output = " ".join(f"{word['text']}({word['weight']:.3f})" for word in report["words"])
    assert inspect("weights", WORDS, "--plot", "weights.svg").out == output + "\n"
    assert (tmp_path / "weights.svg").read_bytes().startswith(b"<?xml")
    form = "::wk-preset=released::window=1::start-layer=0"
    report_of_form = printed_json(inspect("weights", WORDS, "--json", settings=form))
    assert report_of_form == printed_json(
        inspect("weights", WORDS, "--json", settings=f"::sbert-wk{form}")
    )
    assert report_of_form["words"][-1]["text"] == "w5"
    assert len(report_of_form["words"][0]["layers"]) == 3


def test_inspect_weights_joins_pieces_to_words_and_escapes_control_characters(minilm, retriever):
    arguments = ("inspect", "weights", "Untranslatable!", "--device", "cpu", "--json")
    words = printed_json(retriever(*arguments))["words"]
    pieces = printed_json(retriever(*arguments, "--unit", "piece"))["words"]
    assert [word["text"] for word in words] == ["[CLS]", "Untranslatable", "!", "[SEP]"]
    assert [word["text"] for word in pieces][1:-2] == ["un", "##tra", "##ns", "##lat", "##able"]
    assert words[1]["weight"] == pytest.approx(sum(word["weight"] for word in pieces[1:-2]))
    done = retriever("inspect", "weights", "a\x1b[31m\x9bred\r\nword", "--device", "cpu")
    assert re.fullmatch("[^\x00-\x1f\x7f-\x9f]+\n", done.out)


@pytest.mark.parametrize("kind", ["layers", "words"])
def test_inspect_report_equals_printed_json(inspect, corpus, tmp_path, kind):
    pytest.importorskip("matplotlib")
    done = inspect(kind, corpus, "--output", "report")
    stored = json.loads((tmp_path / "report/report.json").read_text())
    assert {**printed_json(inspect(kind, corpus, "--json")), "command": stored["command"]} == stored
    assert "torch" in stored["environment"]
    page = (tmp_path / "report/report.md").read_text()
    for word in done.out.split():
        assert word.replace("_", "\\_") in page or set(word) & set("~<>()*")
    drawn = {path.name for path in (tmp_path / "report").glob("figures/*")}
    assert drawn == ({"layers.png", "layers.svg"} if kind == "layers" else set())
    assert_refused(
        inspect(kind, corpus, "--output", "absent/report"), "expected its parent to exist"
    )
