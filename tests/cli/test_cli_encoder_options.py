"""The encoder options of `index`, `encode`, `query` and `info`, good and bad, on small models."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from retriever.encoders.encoder import Encoder

TEXTS = {"a": "w1 w2 w3", "b": "w4 w5", "c": "w6 w7 w8 w9 w10", "d": "w11"}
RECORDS = [{"id": id_, "text": text} for id_, text in TEXTS.items()]
INDEX = ".retriever"

# Options after --model FOLDER, the text form of the same (None: what is stored), what is stored.
ASKED = [
    ([], "", "::max-length=40"),
    (["--preset", "lc:0,2"], "::lc:0,2", "::layers=0,2::max-length=40"),
    (["--layers", "0,-1"], "::layers=0,-1", "::layers=0,2::max-length=40"),
    (
        ["--layers", "-1,1", "--fusion", "concat"],
        "::top-bottom",
        "::layers=2,1::fusion=concat::max-length=40",
    ),
    (["--pooling", "max"], "::pooling=max", "::pooling=max::max-length=40"),
    (
        ["--fusion", "max", "--layers", "all"],
        "::layers=all::fusion=max",
        "::layers=all::fusion=max::max-length=40",
    ),
    (
        ["--preset", "sbert-wk", "--wk-words", "uniform", "--wk-layers", "uniform"],
        "::sbert-wk::wk-words=uniform::wk-layers=uniform",
        "::fusion=sbert-wk::max-length=40::wk-preset=paper::start-layer=1::wk-words=uniform"
        "::wk-layers=uniform",
    ),
    (["--pooling", "cls", "--head"], None, "::pooling=cls::head=yes::max-length=40"),
    (["--special-tokens", "drop"], None, "::special-tokens=drop::max-length=40"),
    (["--no-normalize"], "::normalize=no", "::normalize=no::max-length=40"),
    (["--normalize", "--no-head"], "", "::max-length=40"),
    (
        ["--query-prompt", "w20: ", "--passage-prompt", "w21::"],
        "::query-prompt=w20:%20::passage-prompt=w21%3A%3A",
        "::query-prompt=w20:%20::passage-prompt=w21%3A%3A::max-length=40",
    ),
    (["--dtype", "bfloat16"], "::dtype=bfloat16", "::max-length=40::dtype=bfloat16"),
    (["--max-length", "8"], "::max-length=8", "::max-length=8"),
    (
        ["--preset", "sbert-wk", "--omega", "1", "--window", "1", "--start-layer", "0"],
        "::sbert-wk::omega=1.0::window=1::start-layer=0",
        "::fusion=sbert-wk::max-length=40::wk-preset=paper::window=1::start-layer=0::omega=1.0"
        "::wk-variance=all",
    ),
    (
        ["--fusion", "sbert-wk", "--wk-preset", "released", "--window", "1"],
        None,
        "::fusion=sbert-wk::max-length=40::wk-preset=released::window=1::start-layer=1::omega=0.5"
        "::wk-variance=fused",
    ),
]
good = pytest.mark.parametrize(("options", "text", "stored"), ASKED)
some = pytest.mark.parametrize(("options", "text", "stored"), ASKED[1::2])


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Small models only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def bert(tiny_models):
    return str(tiny_models["bert"])


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(*RECORDS)


@pytest.fixture
def index(retriever, corpus, bert):
    """Makes an index with the small BERT and these options."""

    def make(*options, model=""):
        done = retriever("index", corpus, "--model", bert + model, *options, "--quiet")
        assert (done.code, done.out, done.err) == (0, "", "")

    return make


def refused(outcome, *parts, code=2):
    """The command ended with `code` and one line on stderr that holds `parts`."""
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("retriever: ")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err


def information(retriever):
    return json.loads(retriever("info", "--json").out)["encoder"]


@good
def test_index_stores_the_canonical_text_and_info_shows_it(
    options, text, stored, index, retriever, bert
):
    index(*options)
    shown = information(retriever)
    assert shown["encoder"] == bert + stored
    line = f"{bert}{stored} ({shown['dimensions']} dimensions)"
    assert line in retriever("info").out
    encoder = Encoder.load(bert + stored, device="cpu")
    assert shown["fingerprint"] == encoder.spec.fingerprint
    assert shown["dimensions"] == encoder.spec.dimensions


@some
def test_the_text_form_in_model_is_the_same_as_options(
    options, text, stored, index, retriever, bert
):
    index(model=stored if text is None else text)
    assert information(retriever)["encoder"] == bert + stored


@good
def test_encode_writes_the_vectors_of_that_encoder(
    options, text, stored, retriever, corpus, bert, tmp_path
):
    done = retriever("encode", corpus, "-o", "v.npy", "--model", bert, *options, "--quiet")
    assert (done.code, done.err) == (0, "")
    expected = Encoder.load(bert + stored, device="cpu").encode(list(TEXTS.values()))
    found = np.load(tmp_path / "v.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@good
def test_query_ranks_by_the_vectors_of_that_encoder(options, text, stored, index, retriever, bert):
    index(*options)
    done = retriever("query", "w4 w5", "--mode", "dense", "--json")
    assert (done.code, done.err) == (0, "")
    hits = [json.loads(line) for line in done.out.splitlines()]
    encoder = Encoder.load(bert + stored, device="cpu")
    passages = encoder.encode(list(TEXTS.values()))
    # Queries are computed in float32, however the passages were.
    queries = Encoder.load(bert + stored.replace("::dtype=bfloat16", ""), device="cpu")
    scores = dict(zip(TEXTS, passages @ queries.encode(["w4 w5"], query=True)[0], strict=True))
    assert {hit["id"]: hit["score"] for hit in hits} == pytest.approx(scores, rel=1e-4, abs=1e-4)
    found = [scores[hit["id"]] for hit in hits]
    assert found == pytest.approx(sorted(found, reverse=True), abs=1e-4)


@some
def test_query_accepts_the_same_encoder_and_the_text_that_info_shows(
    options, text, stored, index, retriever, bert
):
    index(*options)
    plain = retriever("query", "w4", "--mode", "dense", "--json")
    for form in (stored if text is None else text, stored):
        for model in (bert, ""):
            again = () if not model + form else ("--model", model + form)
            assert retriever("query", "w4", "--mode", "dense", "--json", *again) == plain
    assert plain.code == 0


@some
def test_index_goes_on_with_the_same_options(options, text, stored, index, retriever):
    index(*options)
    index(*options)
    index(model=stored)
    assert json.loads(retriever("info", "--json").out)["documents"] == len(TEXTS)


def test_recreate_takes_another_encoder(index, retriever, bert):
    index()
    index("--preset", "lc:0,2", "--recreate")
    assert information(retriever)["encoder"] == f"{bert}::layers=0,2::max-length=40"
    assert retriever("verify").code == 0


@pytest.mark.parametrize(
    ("options", "form", "named"),
    [
        (["--fusion", "sbert-wk"], "::sbert-wk", "fusion=sbert-wk"),
        (["--fusion", "concat"], "::fusion=concat", "fusion=concat"),
        (["--layers", "last"], "::layers=last", "layers=last"),
        (["--preset", "lc:0"], "::lc:0", "layers=0"),
        (["--pooling", "max"], "::pooling=max", "pooling=max"),
        (["--no-normalize"], "::normalize=no", "normalize"),
        (["--query-prompt", "w1"], "::query-prompt=w1", "query-prompt=w1"),
        (["--model", "::pooling=cls"], "::pooling=cls", "pooling=cls"),
    ],
)
def test_another_encoder_is_refused_for_an_index(
    options, form, named, index, retriever, corpus, bert
):
    index("--layers", "0,2")
    stored = f"{bert}::layers=0,2::max-length=40"
    refused(retriever("query", "w4", "--model", form), stored, named, "--recreate")
    refused(retriever("index", corpus, "--quiet", *options), stored, named, "--recreate")
    assert information(retriever)["encoder"] == stored


def test_the_fusion_of_query_is_that_of_scores(index, retriever):
    index("--layers", "0,2")
    both = retriever("query", "w4", "--json", "--fusion", "rrf", "--model", "::fusion=mean")
    assert both.code == 0
    assert both == retriever("query", "w4", "--json", "--fusion", "rrf")
    assert both.out != retriever("query", "w4", "--json", "--fusion", "convex").out
    refused(retriever("query", "w4", "--fusion", "concat"), "'--fusion'", "'convex', 'rrf'")


BAD = [
    (["--layers", "3"], "layers: this model has hidden states 0 (embeddings) to 2"),
    (["--layers", "x"], "layers: expected last"),
    (["--layers", "0,0"], "hidden state 0 twice"),
    (["--preset", "last4"], "3 hidden states"),
    (["--preset", "first"], "expected key=value or a preset"),
    (["--preset", "lc:0,9"], "0 (embeddings) to 2"),
    (["--preset", "lc:0", "--layers", "1"], "layers: given twice"),
    (["--fusion", "sbert-wk", "--layers", "0,1"], "layers: SBERT-WK"),
    (["--fusion", "sbert-wk", "--pooling", "mean"], "pooling: SBERT-WK"),
    (["--fusion", "sbert-wk", "--start-layer", "2"], "start-layer: expected 0 to 1"),
    (["--omega", "0.5"], "omega: it belongs to SBERT-WK"),
    (["--fusion", "concat", "--head"], "head: "),
    (["--pooling", "cls", "--special-tokens", "drop"], "pooling: cls reads a special token"),
    (["--max-length", "41"], "at most 40"),
    (["--static", "sif", "--layers", "0"], "layers: a static encoder"),
    (["--device", "nonesuch"], "device"),
]
BAD_TEXTS = [
    ("::nonsense", "expected key=value or a preset"),
    ("::layers=7", "0 (embeddings) to 2"),
    ("::pooler=yes", "unknown setting 'pooler'"),
    ("::pooling=max::pooling=max", "pooling: given twice"),
    ("::max-length=7", "max-length: expected at least 8"),
    ("::", "expected key=value or a preset"),
    ("::head=maybe", "head: expected yes or no"),
]


@pytest.mark.parametrize(("options", "reason"), BAD)
@pytest.mark.parametrize("command", ["index", "encode"])
def test_an_impossible_request_is_one_line_and_leaves_nothing(
    options, reason, command, retriever, corpus, bert, tmp_path
):
    output = ["-o", "v.npy"] if command == "encode" else []
    refused(retriever(command, corpus, *output, "--model", bert, *options), reason)
    assert [path.name for path in tmp_path.iterdir()] == [corpus.name]


@pytest.mark.parametrize(("text", "reason"), BAD_TEXTS)
def test_an_impossible_text_form_is_one_line_and_leaves_nothing(
    text, reason, retriever, corpus, bert, tmp_path
):
    for command, output in (("index", []), ("encode", ["-o", "v.npy"])):
        refused(retriever(command, corpus, *output, "--model", bert + text), reason)
    assert [path.name for path in tmp_path.iterdir()] == [corpus.name]


def test_a_setting_in_the_text_form_and_as_an_option_is_refused(retriever, corpus, bert):
    done = retriever("index", corpus, "--model", f"{bert}::pooling=max", "--pooling", "max")
    refused(done, "pooling: given twice")


def test_a_setting_of_the_wrong_kind_is_a_usage_error(retriever, corpus, tmp_path):
    for options in (
        ["--fusion", "rrf"],
        ["--pooling", "first"],
        ["--dtype", "int4"],
        ["--max-length", "7"],
        ["--omega", "2"],
        ["--window", "0"],
    ):
        done = retriever("index", corpus, *options)
        assert done.code == 2
        refused(done, f"Invalid value for '{options[0]}'")
    assert [path.name for path in tmp_path.iterdir()] == [corpus.name]


def test_vectors_that_are_not_normalized_are_ranked_by_inner_product(index, retriever, bert):
    index("--no-normalize")
    hits = retriever("query", "w4 w5", "--mode", "dense", "--json").out.splitlines()
    scores = [json.loads(hit)["score"] for hit in hits]
    assert max(scores) > 1.01


def test_a_model_of_many_layers_of_another_architecture_is_taken_too(
    retriever, corpus, tiny_models
):
    roberta = tiny_models["roberta"]
    assert retriever("index", corpus, "--model", f"{roberta}::lc:0,1", "--quiet").code == 0
    refused(retriever("query", "w4", "--model", f"{roberta}::layers=2"), "layers=2")
    assert retriever("query", "w4", "--model", f"{roberta}::layers=0..1").code == 0


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
