"""Options of `index`, `encode` and `query` that choose an encoder, with small models."""

from __future__ import annotations

import shlex
import shutil

import numpy as np
import pytest

from retriever.encoders import Encoder
from tests.cli.conftest import assert_refused, printed_json, printed_lines

TEXTS = {"a": "w1 w2 w3", "b": "w4 w5", "c": "w6 w7 w8 w9 w10", "d": "w11"}
RECORDS = [{"id": id_, "text": text} for id_, text in TEXTS.items()]

# Options beside --model, settings in it, and what is stored.
ASKED = [
    ([], "", "::max-length=40"),
    (["--layers", "0,-1"], "", "::layers=0,2::max-length=40"),
    (["--pooling", "max"], "::lc:0,2", "::layers=0,2::pooling=max::max-length=40"),
    (
        [],
        "::sbert-wk::wk-words=uniform::wk-layers=uniform",
        "::fusion=sbert-wk::max-length=40::wk-preset=paper::start-layer=1::wk-words=uniform"
        "::wk-layers=uniform",
    ),
    (["--dtype", "bfloat16"], "", "::max-length=40::dtype=bfloat16"),
]


@pytest.fixture
def bert(tiny_models):
    return str(tiny_models["bert"])


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(*RECORDS)


@pytest.fixture
def index(retriever, corpus, bert):
    """Function that builds an index with the small BERT and some options."""
    return lambda *options, model="": retriever(
        "index", corpus, "--model", bert + model, *options, "--quiet"
    )


def information(retriever):
    return printed_json(retriever("info", "--json"))["encoder"]


@pytest.mark.parametrize(("options", "form", "stored"), ASKED)
def test_index_encode_and_query_use_the_encoder_that_is_named(
    options, form, stored, index, retriever, corpus, bert, tmp_path
):
    assert index(*options, model=form) == index(model=stored) == (0, "", "")
    output = information(retriever)
    encoder = Encoder.load(bert + stored, device="cpu")
    assert output["encoder"] == bert + stored
    assert output["fingerprint"] == encoder.spec.fingerprint
    assert f"{bert}{stored} ({encoder.spec.dimensions} dimensions)" in retriever("info").out
    passages = encoder.encode(list(TEXTS.values()))
    done = retriever("encode", corpus, "-o", "v.npy", "--model", bert + form, *options, "--quiet")
    assert (done.code, done.err) == (0, "")
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), passages, rtol=0, atol=1e-5)
    done = retriever("query", "w4 w5", "--mode", "dense", "--json")
    hits = {hit["id"]: hit["score"] for hit in printed_lines(done)}
    # Queries are computed in float32, however the passages were.
    queries = Encoder.load(bert + stored.replace("::dtype=bfloat16", ""), device="cpu")
    scores = passages @ queries.encode(["w4 w5"], query=True)[0]
    assert hits == pytest.approx(dict(zip(TEXTS, scores, strict=True)), rel=1e-4, abs=1e-4)
    for arguments in (stored, bert + stored):
        again = retriever("query", "w4 w5", "--mode", "dense", "--json", "--model", arguments)
        # A format that is named computes the queries too.
        assert again.code == 0 if "dtype" in stored else again == done


def test_another_encoder_is_refused_for_an_index_and_recreate_takes_it(
    index, retriever, corpus, bert
):
    index("--layers", "0,2")
    stored = f"{bert}::layers=0,2::max-length=40"
    for options, named in (
        (["--model", "::sbert-wk"], "fusion=sbert-wk"),
        (["--model", "::query-prompt=w1"], "query-prompt=w1"),
    ):
        assert_refused(retriever("index", corpus, "--quiet", *options), stored, named, "--recreate")
    assert_refused(
        retriever("query", "w4", "--model", "::pooling=cls"), stored, "cls", "--recreate"
    )
    assert information(retriever)["encoder"] == stored
    index("--recreate", model="::lc:0,1")
    assert information(retriever)["encoder"] == f"{bert}::layers=0,1::max-length=40"
    assert retriever("verify").code == 0


@pytest.mark.parametrize(
    ("options", "form", "reason"),
    [
        (["--layers", "3"], "", "layers: this model has hidden states 0 (embeddings) to 2"),
        ([], "::pooler=yes", "unknown setting 'pooler'"),
        (["--device", "nonesuch"], "", "device"),
    ],
)
def test_impossible_encoder_options_are_refused_in_one_line_without_files(
    options, form, reason, retriever, corpus, bert, tmp_path
):
    for command in (["index"], ["encode", "-o", "v.npy"]):
        assert_refused(retriever(*command, corpus, "--model", bert + form, *options), reason)
    assert [path.name for path in tmp_path.iterdir()] == [corpus.name]


def test_encode_puts_the_query_prompt_before_queries_alone(retriever, tiny_models, write_jsonl):
    corpus, form = write_jsonl(*RECORDS), f"{tiny_models['bert']}::query-prompt=w20%20"
    for flags in ([], ["--as-queries"]):
        done = retriever("encode", corpus, "-o", f"v{len(flags)}.npy", "--model", form, *flags)
        assert done.code == 0
    encoder = Encoder.load(form, device="cpu")
    for number, query in enumerate((False, True)):
        expected = encoder.encode(list(TEXTS.values()), query=query)
        np.testing.assert_allclose(np.load(f"v{number}.npy"), expected, atol=1e-6)
    assert not np.allclose(np.load("v0.npy"), np.load("v1.npy"), atol=1e-3)


def test_index_info_and_doctor_name_the_settings_that_a_known_family_lacks(
    retriever, corpus, tiny_models, tmp_path
):
    folder = shutil.copytree(tiny_models["bert"], tmp_path / "bge-small-en-v1.5")
    command = ["index", corpus, "-i", "notes", "--model", folder]
    indexed = retriever(*command)
    (warning,) = [line for line in indexed.err.splitlines() if line.startswith("warning:")]
    assert "need query-prompt and pooling, and its files name none" in warning
    assert warning in retriever("info", "-i", "notes").out.splitlines()
    (reported,) = printed_json(retriever("info", "-i", "notes", "--json"))["warnings"]
    assert warning == f"warning: {reported}"
    assert f"prompts: {reported}" in retriever("doctor", "-i", "notes").out.splitlines()

    (model,) = shlex.split(warning.partition("--model ")[2].partition(" (settings of ")[0])
    mended = retriever(*command[:-1], model, "--recreate")
    assert "warning:" not in mended.err
    assert "warnings" not in printed_json(retriever("info", "-i", "notes", "--json"))
