"""What a model's own files ask for, what a person asks for, and how both are written down."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from retriever.encoders.encoder import Encoder
from retriever.encoders.models import find_model
from retriever.encoders.resolution import resolve
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, ModelError
from tests.encoders.architectures import TEXTS, WIDTH, save

CLOSE = {"rtol": 0, "atol": 1e-5}
PARTS = "sentence_transformers.models."
DENSE = {"activation_function": "torch.nn.modules.activation.Tanh", "bias": True}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Small models only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each model, made when it is first asked for."""
    made = {}
    logging.disable_progress_bar()

    def folder(name):
        if name not in made:
            made[name] = save(name, tmp_path_factory.mktemp("resolution") / name)
        return made[name]

    yield folder
    logging.enable_progress_bar()


@pytest.fixture
def make(folders, tmp_path):
    """Makes a sentence-transformers model: kinds of modules, and a config for each that has one."""

    def make_(*modules, name="bert", prompts=None, default=None):
        folder = tmp_path / "sentences"
        shutil.copytree(folders(name), folder)
        listed = [{"idx": 0, "name": "0", "path": "", "type": f"{PARTS}Transformer"}]
        for number, (kind, config) in enumerate(modules, 1):
            path = folder / f"{number}_{kind}"
            path.mkdir()
            listed.append(
                {"idx": number, "name": str(number), "path": path.name, "type": PARTS + kind}
            )
            if config is not None:
                (path / "config.json").write_text(json.dumps(config))
            if kind == "Dense":
                weights(path, config, seed=number)
        (folder / "modules.json").write_text(json.dumps(listed))
        if prompts is not None:
            (folder / "config_sentence_transformers.json").write_text(
                json.dumps({"prompts": prompts, "default_prompt_name": default})
            )
        return folder

    return make_


def weights(folder, config, seed):
    chance = torch.Generator().manual_seed(seed)
    shape = config["out_features"], config["in_features"]
    tensors = {"linear.weight": torch.randn(shape, generator=chance)}
    if config["bias"]:
        tensors["linear.bias"] = torch.randn(shape[0], generator=chance)
    save_file(tensors, folder / "model.safetensors")


def pooling(mode="mean", **more):
    return "Pooling", {"word_embedding_dimension": WIDTH, "pooling_mode": mode, **more}


def dense(out, into=WIDTH, **more):
    return "Dense", {"in_features": into, "out_features": out, **DENSE, **more}


def load(folder, asked=""):
    return Encoder.load("::".join(filter(None, [str(folder), asked])), device="cpu")


def sentence_transformer(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def theirs(folder, texts=TEXTS):
    """What sentence-transformers makes of the same folder."""
    return sentence_transformer(folder).encode(
        list(texts), normalize_embeddings=True, show_progress_bar=False
    )


def refused(folder, asked="", error=ConfigError):
    with pytest.raises(error) as caught:
        load(folder, asked)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def same_encoder(encoder):
    """Its text form makes the same encoder, and so does its stored form; returns the text form."""
    text = str(encoder.spec)
    for again in (
        Encoder.load(text, device="cpu"),
        Encoder.from_spec(EncoderSpec.from_json(encoder.spec.to_json()), device="cpu"),
    ):
        assert again.spec == encoder.spec
        assert again.spec.fingerprint == encoder.spec.fingerprint
        assert str(again.spec) == text
        np.testing.assert_array_equal(again.encode(TEXTS[:3]), encoder.encode(TEXTS[:3]))
    return text


@pytest.mark.parametrize("mode", ["mean", "max", "cls"])
def test_pooling_is_that_of_modules_json(mode, make):
    folder = make(pooling(mode))
    encoder = load(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs(folder), **CLOSE)
    assert encoder.spec.settings.pooling == (None if mode == "mean" else mode)
    same_encoder(encoder)


@pytest.mark.parametrize("mode", ["cls_token", "mean_tokens", "max_tokens"])
def test_pooling_in_the_older_form_is_read_too(mode, make):
    modes = ("cls_token", "mean_tokens", "max_tokens")
    config = {f"pooling_mode_{key}": key == mode for key in modes}
    folder = make(("Pooling", {"word_embedding_dimension": WIDTH, **config}))
    np.testing.assert_allclose(load(folder).encode(TEXTS), theirs(folder), **CLOSE)


@pytest.mark.parametrize(
    "modules",
    [
        [pooling(), ("Normalize", None)],
        [pooling(), dense(8)],
        [pooling("cls"), dense(24, bias=False), ("Normalize", None)],
        [pooling("max"), dense(24), dense(5, into=24)],
        [pooling(), dense(8, activation_function="torch.nn.modules.linear.Identity")],
        [pooling(), dense(8, activation_function="torch.nn.modules.activation.ReLU")],
        [pooling(), dense(8, activation_function="torch.nn.modules.activation.GELU")],
        [pooling(), dense(8, activation_function="torch.nn.modules.activation.Sigmoid")],
    ],
)
def test_projections_are_those_of_modules_json(modules, make):
    folder = make(*modules)
    encoder = load(folder)
    expected = theirs(folder)
    assert encoder.spec.dimensions == expected.shape[1]
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, **CLOSE)
    assert encoder.spec.settings.head is (True if len(modules) > 1 and modules[1][1] else None)
    same_encoder(encoder)


def test_a_normalisation_before_a_projection_is_not_left_out(make):
    folder = make(pooling(), ("Normalize", None), dense(8))
    try:
        encoder = load(folder)
    except ModelError:
        return
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs(folder), **CLOSE)


def test_a_projection_before_pooling_is_not_moved_behind_it(make):
    folder = make(
        ("Dense", {**dense(8)[1], "module_input_name": "token_embeddings"}), pooling("max")
    )
    assert "dense layer on the sentence embedding" in refused(folder, error=ModelError)


def test_projections_are_part_of_the_identity(make):
    folder = make(pooling(), dense(8))
    before = load(folder).spec
    weights(folder / "2_Dense", dense(8)[1], seed=99)
    after = load(folder).spec
    assert before.weights != after.weights
    assert before.fingerprint != after.fingerprint


def test_an_activation_is_part_of_the_identity(make):
    folder = make(pooling(), dense(8))
    before = load(folder)
    path = folder / "2_Dense" / "config.json"
    changed = json.loads(path.read_text()) | {
        "activation_function": "torch.nn.modules.activation.ReLU"
    }
    path.write_text(json.dumps(changed))
    after = load(folder)
    assert np.abs(before.encode(TEXTS) - after.encode(TEXTS)).max() > 0.1
    assert before.spec.fingerprint != after.spec.fingerprint


@pytest.mark.parametrize(
    "config",
    [
        {"use_residual": True},
        {"activation_function": "torch.nn.modules.activation.Softmax"},
        {"module_input_name": "token_embeddings"},
        {"module_output_name": "other"},
    ],
)
def test_a_projection_that_is_not_supported_is_refused(config, make):
    message = refused(make(pooling(), dense(8, **config)), error=ModelError)
    assert "2_Dense" in message
    assert "not supported" in message


def test_a_projection_that_is_pickled_is_refused(make):
    folder = make(pooling(), dense(8))
    file = folder / "2_Dense" / "model.safetensors"
    torch.save({"linear.weight": torch.ones(8, WIDTH)}, file.with_name("pytorch_model.bin"))
    file.unlink()
    message = refused(folder, error=ModelError)
    assert "2_Dense" in message
    assert "model.safetensors" in message


@pytest.mark.parametrize("content", [b"", b"\x80\x04 a pickle, perhaps" * 10])
def test_a_projection_whose_weights_are_damaged_is_refused(content, make):
    folder = make(pooling(), dense(8))
    (folder / "2_Dense" / "model.safetensors").write_bytes(content)
    assert "2_Dense" in refused(folder, error=ModelError)


def test_a_projection_of_another_width_is_refused_with_both(make):
    message = refused(make(pooling(), dense(8, into=24)), error=ModelError)
    assert "(any, 16)" in message
    assert "(8, 24)" in message


def test_a_model_that_leaves_its_prompt_out_of_pooling_is_refused(make):
    message = refused(make(pooling(include_prompt=False)), error=ModelError)
    assert "include_prompt" in message


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "w1 w2: ", "document": "w3: "}, None),
        ({"query": "w1 w2: "}, None),
        ({"document": "w3: "}, None),
        ({"query": "w1: ", "document": ""}, None),
        ({"query": "", "document": ""}, None),
        ({"classification": "w4: "}, None),
        ({"query": "w1: ", "document": "w3: ", "other": "w4: "}, "other"),
        ({"query": "w1: ", "document": "w3: "}, "query"),
        ({"other": "w4: "}, "other"),
        ({"query": "", "document": ""}, "query"),
        ({"query": "", "document": "w3: "}, "document"),
        ({}, None),
    ],
)
def test_prompts_are_those_of_sentence_transformers(prompts, default, make):
    folder = make(pooling(), prompts=prompts, default=default)
    encoder, model = load(folder), sentence_transformer(folder)
    for query, encode in ((True, model.encode_query), (False, model.encode_document)):
        expected = encode(list(TEXTS), normalize_embeddings=True, show_progress_bar=False)
        np.testing.assert_allclose(encoder.encode(TEXTS, query=query), expected, **CLOSE)
    same_encoder(encoder)


def test_a_prompt_counts_as_text_before_the_text(folders):
    plain = load(folders("bert"))
    encoder = load(folders("bert"), "query-prompt=w5 w6 ::passage-prompt=w9%20")
    np.testing.assert_array_equal(
        encoder.encode(TEXTS, query=True), plain.encode([f"w5 w6 {text}" for text in TEXTS])
    )
    np.testing.assert_array_equal(
        encoder.encode(TEXTS), plain.encode([f"w9 {text}" for text in TEXTS])
    )


def test_the_places_of_pieces_do_not_count_the_prompt(folders):
    text = "w1 w2"
    (one,) = load(folders("bert"), "passage-prompt=w9%20").hidden_states([text])
    spans = dict(zip(one.pieces, one.spans, strict=True))
    assert {piece: text[slice(*spans[piece])] for piece in ("w1", "w2")} == {"w1": "w1", "w2": "w2"}


def test_what_a_person_asks_for_goes_before_what_the_model_says(make, folders):
    folder = make(pooling("cls"), dense(8), prompts={"query": "w1: ", "document": "w3: "})
    overrides = "pooling=mean::head=no::query-prompt=::passage-prompt="
    encoder, plain = load(folder, overrides), load(folders("bert"))
    for query in (True, False):
        np.testing.assert_array_equal(
            encoder.encode(TEXTS, query=query), plain.encode(TEXTS, query=query)
        )
    text = same_encoder(encoder)
    for part in overrides.split("::"):
        assert f"::{part}" in f"{text}::".replace("::", "::::")


@pytest.mark.parametrize("override", ["pooling=mean", "head=no", "query-prompt=", "pooling=max"])
def test_an_override_survives_the_round_trip(override, make):
    folder = make(pooling("cls"), dense(8), prompts={"query": "w1: "})
    encoder = load(folder, override)
    assert override in same_encoder(encoder).split("::")
    assert encoder.spec.fingerprint != load(folder).spec.fingerprint


def test_a_setting_that_is_the_default_is_not_named(folders):
    bert = folders("bert")
    asked = (
        "layers=-1::fusion=mean::pooling=mean::special-tokens=keep::head=no::normalize=yes"
        "::query-prompt=::passage-prompt=::dtype=float32"
    )
    encoder = load(bert, asked)
    assert str(encoder.spec) == f"{bert}::max-length=64"
    assert encoder.spec == load(bert).spec


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("layers=3", []),
        ("layers=2,0", ["layers=0,2"]),
        ("layers=0..-1", ["layers=all"]),
        ("layers=-1,1::fusion=concat", ["layers=3,1", "fusion=concat"]),
        ("layers=3::fusion=concat", []),
        ("last4", ["layers=all"]),
        (
            "sbert-wk",
            [
                "fusion=sbert-wk",
                "wk-preset=paper",
                "window=2",
                "start-layer=1",
                "omega=0.5",
                "wk-variance=all",
            ],
        ),
        ("dtype=bfloat16::normalize=no", ["normalize=no", "dtype=bfloat16"]),
    ],
)
def test_layers_are_named_from_the_embeddings_and_defaults_of_sbert_wk_in_full(
    asked, named, folders
):
    encoder = load(folders("bert"), asked)
    model, *parts = str(encoder.spec).split("::")
    assert model == str(folders("bert"))
    assert sorted(part for part in parts if part != "max-length=64") == sorted(named)
    same_encoder(encoder)


def asked_settings():
    """Settings that a model of three layers with a pooler can meet."""

    def maybe(*values):
        return st.none() | st.sampled_from(values)

    common = {
        "head": maybe(True, False),
        "normalize": maybe(True, False),
        "query_prompt": maybe("", "w1 w2: ", ":% "),
        "passage_prompt": maybe("", "w3 "),
        "max_length": maybe(8, 33, 64),
        "dtype": maybe("float32", "bfloat16"),
        "special_tokens": maybe("keep"),
    }
    layers = maybe("last", "-1", "all", "0,2", "2,0", "-4..2", "1", "3,1", "last2")
    return st.one_of(
        st.builds(
            EncoderSettings,
            **common,
            layers=layers,
            fusion=maybe("mean"),
            pooling=maybe("mean", "max", "cls", "sep"),
        ),
        st.builds(
            EncoderSettings,
            **common | {"head": maybe(False), "special_tokens": maybe("keep", "drop")},
            layers=layers,
            fusion=st.just("concat"),
            pooling=st.sampled_from(["mean", "max"]),
        ),
        st.builds(
            EncoderSettings,
            **common,
            fusion=st.just("sbert-wk"),
            wk_preset=maybe("paper"),
            window=maybe(1, 2, 7),
            start_layer=maybe(0, 1, 2),
            omega=maybe(0.0, 0.25, 1.0),
            wk_variance=maybe("all", "fused"),
        ),
    )


@given(asked_settings(), st.sampled_from(["plain", "own"]))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_resolved_settings_pasted_back_resolve_to_themselves(folder_of, asked, kind):
    folder = folder_of(kind)
    if kind == "own" and asked.fusion == "concat" and asked.head is None:
        asked = replace(asked, head=False)
    resolved = resolve(asked, folder)
    assert resolve(parse_encoder(str(resolved)), folder) == resolved
    spec = EncoderSpec(replace(resolved, max_length=64), folder.weights, WIDTH)
    for field in fields(EncoderSettings):
        wanted = getattr(asked, field.name)
        if field.name not in ("model", "max_length", "layers", "fusion") and wanted is not None:
            assert spec.meaning(field.name) == wanted


@given(asked_settings(), st.sampled_from(["plain", "own"]))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_resolved_setting_cannot_be_left_out(folder_of, asked, kind):
    folder = folder_of(kind)
    if kind == "own" and asked.fusion == "concat" and asked.head is None:
        asked = replace(asked, head=False)
    resolved = resolve(asked, folder)
    if resolved.fusion == "sbert-wk":
        # Its settings are named in full, so that their defaults are free to change.
        return

    def fingerprint(settings_):
        return EncoderSpec(
            replace(resolve(settings_, folder), max_length=64), folder.weights, WIDTH
        ).fingerprint

    for name in ("layers", "normalize", "dtype", "special_tokens"):
        if getattr(resolved, name) is not None:
            try:
                without = fingerprint(replace(resolved, **{name: None}))
            except ConfigError:
                continue
            assert without != fingerprint(resolved)


@pytest.fixture(scope="module")
def folder_of(folders, tmp_path_factory):
    """A model without sentence settings, and one with pooling, projection and prompt."""
    own = tmp_path_factory.mktemp("own") / "own"
    shutil.copytree(folders("bert"), own)
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{PARTS}Transformer"}]
    for number, (kind, config) in enumerate([pooling("cls"), dense(WIDTH)], 1):
        path = own / f"{number}_{kind}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        listed.append({"idx": number, "name": "", "path": path.name, "type": PARTS + kind})
    weights(own / "2_Dense", dense(WIDTH)[1], seed=1)
    (own / "modules.json").write_text(json.dumps(listed))
    (own / "config_sentence_transformers.json").write_text('{"prompts": {"query": "w1: "}}')
    found = {"plain": find_model(str(folders("bert"))), "own": find_model(str(own))}
    return found.__getitem__


@given(asked=asked_settings())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_encoder_is_made_again_from_its_text(folder_of, asked):
    folder = str(folder_of("plain").path)
    same_encoder(Encoder.load(replace(asked, model=folder), device="cpu"))


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "albert"])
@pytest.mark.parametrize("how", ["pooling=cls", "pooling=mean", "lc:0,2", "pooling=max::layers=1"])
def test_the_head_is_the_pooler_of_transformers_on_the_pooled_vector(name, how, folders):
    folder = folders(name)
    model = AutoModel.from_pretrained(folder).eval()
    pooled = torch.from_numpy(load(folder, f"{how}::normalize=no").encode(TEXTS))
    with torch.inference_mode():
        if name == "albert":
            expected = torch.tanh(model.pooler(pooled))
        else:
            # transformers' poolers read the first piece of (texts, pieces, width).
            expected = model.pooler(torch.stack([pooled, pooled * 0 + 9], dim=1))
    found = load(folder, f"{how}::head=yes::normalize=no").encode(TEXTS)
    np.testing.assert_allclose(found, expected.numpy(), **CLOSE)


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "albert"])
def test_cls_pooling_with_the_head_is_the_pooler_output_of_transformers(name, folders):
    folder = folders(name)
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        expected = [
            model(**tokenizer(text, return_tensors="pt")).pooler_output[0].numpy() for text in TEXTS
        ]
    encoder = load(folder, "pooling=cls::head=yes::normalize=no")
    np.testing.assert_allclose(encoder.encode(TEXTS), np.stack(expected), **CLOSE)
    assert "head=yes" in same_encoder(encoder)


@pytest.mark.parametrize("name", ["distilbert", "electra", "deberta-v2"])
def test_the_head_of_a_model_without_one_is_refused(name, folders):
    message = refused(folders(name), "head=yes")
    assert message.startswith("head: ")
    assert "pooler" in message


def test_a_pooler_without_weights_is_no_head(folders, tmp_path):
    from safetensors.torch import load_file

    folder = shutil.copytree(folders("bert"), tmp_path / "bare")
    tensors = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in tensors.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert refused(folder, "head=yes").startswith("head: ")


def test_a_concatenation_on_a_model_with_a_projection_needs_head_to_be_left_out(make):
    folder = make(pooling(), dense(8))
    message = refused(folder, "top-bottom")
    assert message.startswith("head: ")
    assert "head=no" in message
    assert load(folder, "top-bottom::head=no").spec.dimensions == 2 * WIDTH


def test_special_tokens_cannot_be_dropped_where_the_model_pools_one(make):
    message = refused(make(pooling("cls")), "special-tokens=drop")
    assert message.startswith("pooling: ")


@pytest.mark.parametrize("place", ["cls", "sep"])
def test_a_special_token_that_the_tokenizer_does_not_put_is_refused(place, folders, tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    folder = shutil.copytree(folders("bert"), tmp_path / place)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    kept = {"cls": "[SEP]", "sep": "[CLS]"}[place]
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {kept}", special_tokens=[(kept, tokenizer.token_to_id(kept))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    # The class of BERT would put its own special tokens back.
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    message = refused(folder, f"pooling={place}")
    assert f"[{place.upper()}]" in message
    assert "mean or max" in message
    load(folder, f"pooling={'sep' if place == 'cls' else 'cls'}")


@pytest.mark.parametrize(
    ("asked", "key", "range_"),
    [
        ("layers=4", "layers", "0 (embeddings) to 3"),
        ("lc:0,-5", "layers", "-4 to -1"),
        ("layers=last5", "layers", "4 hidden states"),
        ("layers=2..9", "layers", "0 (embeddings) to 3"),
        ("layers=3,-1", "layers", "3 twice"),
        ("sbert-wk::start-layer=3", "start-layer", "0 to 2"),
        ("sbert-wk::start-layer=99", "start-layer", "0 to 2"),
        ("sbert-wk::wk-preset=released::start-layer=2", "start-layer", "0 to 1"),
        ("sbert-wk::wk-preset=released::window=9", "window", "4"),
        ("max-length=65", "max-length", "at most 64"),
    ],
)
def test_what_the_model_cannot_do_is_refused_with_the_range(asked, key, range_, folders):
    message = refused(folders("bert"), asked)
    assert message.startswith(f"{key}: ")
    assert range_ in message


def test_an_impossible_request_is_refused_before_the_model_is_loaded(folders, monkeypatch):
    def loaded(*_, **__):
        raise AssertionError("loaded")

    monkeypatch.setattr(AutoModel, "from_pretrained", loaded)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", loaded)
    for asked in ("layers=4", "sbert-wk::start-layer=3"):
        refused(folders("bert"), asked)


def test_the_default_of_the_real_model_is_that_of_sentence_transformers(minilm):
    texts = ["How do I sort a list?", "", "Water boils at 100 °C at sea level. " * 3]
    expected = theirs(find_model("all-MiniLM-L6-v2").path, texts)
    np.testing.assert_allclose(minilm.encode(texts), expected, **CLOSE)


def test_the_mean_of_two_layers_of_the_real_model_is_that_of_transformers(minilm):
    folder = find_model("all-MiniLM-L6-v2").path
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["How do I sort a list?", "", "Water boils at 100 °C at sea level. " * 3]
    rows = []
    for text in texts:
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        mean = (states.hidden_states[0] + states.hidden_states[6])[0].mean(0).numpy()
        rows.append(mean / np.linalg.norm(mean))
    found = Encoder.load("all-MiniLM-L6-v2::lc:0,6", device="cpu").encode(texts)
    np.testing.assert_allclose(found, np.stack(rows), **CLOSE)
