"""The text form of an encoder: read back as written, and what is refused with which words."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders.settings import PRESETS, EncoderSettings, encoder_keys, parse_encoder
from retriever.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
NASTY = st.text(
    st.one_of(
        st.sampled_from(":% =\n\t\r\x00\x1f\x7f\x85\u2028,;/\\'\"#&+é狐🚀"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)
LAYERS = st.sampled_from(["last", "last4", "all", "0,6", "6,0", "1..4", "-1", "-3..-1,0"])


def maybe(strategy):
    return st.none() | strategy


COMMON = {
    "model": maybe(NASTY.filter(bool)),
    "normalize": maybe(st.booleans()),
    "query_prompt": maybe(NASTY),
    "passage_prompt": maybe(NASTY),
    "max_length": maybe(st.integers(8, (10**9 - 1))),
}
RUN = {
    **COMMON,
    "backend": maybe(st.sampled_from(["auto", "torch", "openvino", "numpy"])),
    "dtype": maybe(st.sampled_from(["float32", "bfloat16", "float16", "int8"])),
}
POOLED = {
    **RUN,
    "layers": maybe(LAYERS),
    "pooling": maybe(st.sampled_from(["mean", "max", "cls", "sep"])),
}
WEIGHTED = {
    **RUN,
    "fusion": st.just("sbert-wk"),
    "head": maybe(st.booleans()),
    "window": maybe(st.integers(1, (10**9 - 1))),
    "start_layer": maybe(st.integers(0, (10**9 - 1))),
    "omega": maybe(st.floats(0, 1)),
}
SETTINGS = st.one_of(
    st.builds(
        EncoderSettings,
        **COMMON,
        static=st.sampled_from(["average", "sif", "usif", "p-mean"]),
    ),
    st.builds(
        EncoderSettings,
        **POOLED,
        fusion=maybe(st.sampled_from(["mean", "max"])),
        head=maybe(st.booleans()),
        special_tokens=maybe(st.just("keep")),
    ),
    st.builds(
        EncoderSettings,
        **POOLED | {"pooling": maybe(st.sampled_from(["mean", "max"]))},
        fusion=st.just("concat"),
        head=maybe(st.just(False)),
        special_tokens=maybe(st.sampled_from(["keep", "drop"])),
    ),
    st.builds(
        EncoderSettings,
        **WEIGHTED,
        wk_preset=maybe(st.just("paper")),
        special_tokens=maybe(st.sampled_from(["keep", "drop"])),
        wk_variance=maybe(st.sampled_from(["all", "fused"])),
        wk_words=maybe(st.just("variance")),
        wk_layers=maybe(st.just("weighted")),
    ),
    st.builds(
        EncoderSettings,
        **WEIGHTED | {"window": st.none(), "omega": st.none()},
        wk_words=maybe(st.sampled_from(["variance", "uniform"])),
        wk_layers=maybe(st.sampled_from(["uniform", "last"])),
    ),
    st.builds(
        EncoderSettings,
        **WEIGHTED,
        wk_preset=st.just("released"),
        wk_variance=maybe(st.just("fused")),
    ),
)


def refused(text="", *parts, **options):
    """The one line with which a text form is refused, and what it must say."""
    with pytest.raises(ConfigError) as caught:
        parse_encoder(text, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for part in parts:
        assert part in message
    return message


@given(SETTINGS)
def test_the_text_form_reads_back_as_the_same_settings(settings):
    assert parse_encoder(str(settings)) == settings


@given(SETTINGS)
def test_the_text_form_is_canonical(settings):
    assert str(parse_encoder(str(settings))) == str(settings)


@given(SETTINGS)
def test_the_text_form_is_one_line_without_spaces_at_its_ends(settings):
    text = str(settings)
    assert len(text.splitlines()) <= 1
    assert text == text.strip(" \t\r\n")


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_what_ends_a_line_is_encoded(end):
    settings = EncoderSettings(model=f"a{end}b", query_prompt=f"{end}c")
    assert len(str(settings).splitlines()) == 1
    assert parse_encoder(str(settings)) == settings


@given(SETTINGS, st.randoms())
def test_the_order_of_settings_does_not_matter(settings, chance):
    model, *parts = str(settings).split("::")
    chance.shuffle(parts)
    assert parse_encoder("::".join([model, *parts])) == settings


@given(SETTINGS)
def test_settings_may_be_given_as_options_instead(settings):
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    model = values.pop("model")
    assert parse_encoder(str(EncoderSettings(model=model)), **values) == settings


@given(NASTY)
def test_a_prompt_that_is_percent_encoded_throughout_is_read(prompt):
    encoded = quote(prompt, safe="", errors="surrogatepass")
    if prompt.encode("utf-8", "ignore").decode() == prompt:
        assert parse_encoder(f"::query-prompt={encoded}").query_prompt == prompt


def test_an_empty_prompt_is_not_the_same_as_none():
    settings = EncoderSettings(model="m", query_prompt="")
    assert str(settings) == "m::query-prompt="
    assert parse_encoder("m::query-prompt=").query_prompt == ""
    assert parse_encoder("m").query_prompt is None


def test_what_is_simple_is_written_as_it_is():
    text = "./my-model::layers=0,6::pooling=max::query-prompt=query: what=?%20::max-length=64"
    assert str(parse_encoder(text)) == text
    assert parse_encoder(text).query_prompt == "query: what=? "


def test_nothing_asked_is_the_empty_text():
    assert parse_encoder("") == EncoderSettings()
    assert str(EncoderSettings()) == ""
    assert parse_encoder("::pooling=max") == EncoderSettings(pooling="max")


@pytest.mark.parametrize(
    ("preset", "meant"),
    [
        ("last", {"layers": "last", "fusion": "mean"}),
        ("last4", {"layers": "last4", "fusion": "mean"}),
        ("top-bottom", {"layers": "-1,1", "fusion": "concat"}),
        ("sbert-wk", {"fusion": "sbert-wk"}),
        ("lc:0,6", {"layers": "0,6", "fusion": "mean"}),
        ("lc:all", {"layers": "all", "fusion": "mean"}),
    ],
)
def test_a_preset_stands_for_its_settings_wherever_it_is_written(preset, meant):
    settings = EncoderSettings(model="m", pooling=None, max_length=64, **meant)
    assert parse_encoder(f"m::{preset}::max-length=64") == settings
    assert parse_encoder(f"m::max-length=64::{preset}") == settings
    assert parse_encoder("m", preset, max_length=64) == settings


def test_yes_and_no_are_the_two_values_of_a_flag():
    for key in ("head", "normalize"):
        assert getattr(parse_encoder(f"::{key}=yes"), key) is True
        assert getattr(parse_encoder(f"::{key}=no"), key) is False
        for wrong in ("true", "1", "", "Yes"):
            refused(f"::{key}={wrong}", f"{key}: expected yes or no", repr(wrong))


@pytest.mark.parametrize(
    "key", ["pooler", "Layers", "max_length", "", " layers", "model", "device"]
)
def test_an_unknown_setting_is_refused_with_those_that_there_are(key):
    message = refused(f"m::{key}=1", f"unknown setting {key!r}", "layers", "wk-variance")
    names = {field.name.replace("_", "-") for field in fields(EncoderSettings)} - {"model"}
    assert all(re.search(rf"\b{name}\b", message) for name in names)


@pytest.mark.parametrize("preset", ["first", "lc", "", "LAST", "last5", "sbert_wk"])
def test_an_unknown_preset_is_refused_with_those_that_there_are(preset):
    for message in (refused(f"m::{preset}"), refused("m", preset=preset)):
        for part in ("last4", "top-bottom", "sbert-wk", "lc:", repr(preset)):
            assert part in message


@pytest.mark.parametrize(
    ("text", "options", "key"),
    [
        ("m::pooling=max::pooling=max", {}, "pooling"),
        ("m::last::layers=0", {}, "layers"),
        ("m::lc:0::lc:1", {}, "layers"),
        ("m::sbert-wk::fusion=mean", {}, "fusion"),
        ("m::last", {"preset": "last4"}, "layers"),
        ("m::head=no", {"head": True}, "head"),
        ("m::query-prompt=", {"query_prompt": "x"}, "query-prompt"),
        ("m", {"preset": "lc:0", "layers": "1"}, "layers"),
        ("m", {"model": "other"}, "model"),
    ],
)
def test_a_setting_that_is_given_twice_is_refused_by_name(text, options, key):
    refused(text, f"{key}: given twice", **options)


@pytest.mark.parametrize(
    ("setting", "valid"),
    [
        ("fusion=sum", "mean, max, concat or sbert-wk"),
        ("pooling=first", "mean, max, cls or sep"),
        ("special-tokens=no", "keep or drop"),
        ("dtype=int4", "float32, bfloat16, float16 or int8"),
        ("backend=onnx", "auto, torch, openvino or numpy"),
        ("static=glove", "average, sif, usif or p-mean"),
        ("fusion=sbert-wk::wk-preset=mine", "paper or released"),
        ("fusion=sbert-wk::wk-variance=none", "all or fused"),
        ("fusion=sbert-wk::wk-words=none", "variance or uniform"),
        ("fusion=sbert-wk::wk-layers=none", "weighted, uniform or last"),
        ("max-length=7", "at least 8"),
        ("max-length=-1", "at least 8"),
        ("max-length=8.5", "a whole number"),
        ("max-length=1_000", "a whole number"),
        ("max-length=١٢٨", "a whole number"),
        ("max-length=", "a whole number"),
        ("fusion=sbert-wk::window=0", "at least 1"),
        ("fusion=sbert-wk::window=two", "a whole number"),
        ("fusion=sbert-wk::start-layer=-1", "at least 0"),
        ("fusion=sbert-wk::omega=1.01", "0 to 1"),
        ("fusion=sbert-wk::omega=-0.1", "0 to 1"),
        ("fusion=sbert-wk::omega=nan", "0 to 1"),
        ("fusion=sbert-wk::omega=inf", "0 to 1"),
        ("fusion=sbert-wk::omega=half", "a number"),
        ("fusion=sbert-wk::omega=٠", "a number"),
        ("fusion=sbert-wk::omega=0_1", "a number"),
        ("layers=", "last, last4, all"),
        ("layers=first", "last, last4, all"),
        ("layers=1...3", "1..4"),
        ("pooling=a\nb", "mean, max, cls or sep"),
    ],
)
def test_an_impossible_value_is_refused_with_the_valid_ones(setting, valid):
    key = setting.rpartition("::")[2].partition("=")[0]
    message = refused(f"m::{setting}", "expected ", valid)
    assert message.startswith(f"{key}: ")


@pytest.mark.parametrize("key", ["max-length", "sbert-wk::window"])
@pytest.mark.parametrize("digits", [10, 5000])
def test_a_number_that_is_too_great_is_refused_with_the_greatest(key, digits):
    assert str(10**9 - 1) in refused(f"m::{key}={'9' * digits}")


@pytest.mark.parametrize("expression", ["9" * 5000, "last" + "9" * 5000, "0.." + "9" * 5000])
def test_a_layer_number_that_is_too_great_is_one_line(expression):
    from retriever.encoders.settings import resolve_layers

    with pytest.raises(ConfigError, match="layers"):
        resolve_layers(expression, 12)


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ("sbert-wk::layers=0,6", "layers", "start-layer"),
        ("sbert-wk::pooling=mean", "pooling", "weights the words itself"),
        ("window=2", "window", "fusion=sbert-wk"),
        ("last::omega=0.5", "omega", "fusion=sbert-wk"),
        ("start-layer=4", "start-layer", "fusion=sbert-wk"),
        ("wk-preset=paper", "wk-preset", "fusion=sbert-wk"),
        ("fusion=concat::wk-variance=all", "wk-variance", "fusion=sbert-wk"),
        ("fusion=mean::wk-words=uniform", "wk-words", "fusion=sbert-wk"),
        ("sbert-wk::wk-words=uniform::wk-variance=all", "wk-variance", "takes no variance"),
        ("sbert-wk::wk-layers=uniform::window=1", "window", "does not weight layers"),
        ("sbert-wk::wk-layers=last::omega=1", "omega", "does not weight layers"),
        ("sbert-wk::wk-preset=released::special-tokens=keep", "special-tokens", "released"),
        ("sbert-wk::wk-preset=released::wk-variance=all", "wk-variance", "released"),
        ("top-bottom::head=yes", "head", "concatenation"),
        ("pooling=cls::special-tokens=drop", "pooling", "special token"),
        ("pooling=sep::special-tokens=drop", "pooling", "special token"),
        ("static=sif::layers=0", "layers", "static"),
        ("static=sif::pooling=max", "pooling", "static"),
        ("static=sif::fusion=mean", "fusion", "static"),
        ("static=sif::head=no", "head", "static"),
        ("static=sif::special-tokens=keep", "special-tokens", "static"),
        ("static=average::dtype=float32", "dtype", "static"),
    ],
)
def test_an_impossible_combination_is_refused_by_name(settings, key, reason):
    assert refused(f"m::{settings}", reason).startswith(f"{key}: ")


def test_numbers_that_are_equal_are_the_same_settings():
    from retriever.encoders.spec import EncoderSpec

    given_, read = (
        EncoderSpec(settings, "ab" * 32, 8).fingerprint
        for settings in (
            EncoderSettings(model="m", max_length=64, fusion="sbert-wk", omega=1),
            parse_encoder("m::max-length=64::sbert-wk::omega=1"),
        )
    )
    assert given_ == read


def test_an_empty_model_name_is_refused():
    with pytest.raises(ConfigError, match="model: expected"):
        EncoderSettings(model="")


def test_the_keys_of_the_text_form_are_listed_with_their_meaning_default_and_source():
    listed = {one.key: one for one in encoder_keys()}
    text = "m" + "".join(f"::{key}={one.choices[-1]}" for key, one in listed.items() if one.choices)
    with pytest.raises(ConfigError, match="static"):
        parse_encoder(text)
    assert [one.name for one in listed.values()] == [
        field.name for field in fields(EncoderSettings) if field.name != "model"
    ]
    assert all(one.description.endswith(".") and one.shown for one in listed.values())
    assert "Eq. 9" in listed["omega"].source
    documented = (ROOT / "docs/encoders.md").read_text("utf-8")
    assert all(f"`{name}`" in documented for name in [*listed, *list(PRESETS)[:-1]])
