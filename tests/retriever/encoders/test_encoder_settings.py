"""The text form of an encoder and its layers: read back as written, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders import EncoderSettings, encoder_keys, over_model, parse_encoder
from retriever.encoders.settings import PRESETS, check_layers, format_layers, resolve_layers
from retriever.errors import ConfigError
from tests.retriever.encoders.settings_samples import NASTY, encoder_settings

ROOT = Path(__file__).resolve().parents[3]
DEPTHS = st.integers(1, 24)


def refusal_of(parse, *arguments, **options):
    """Return the one-line message with which settings are refused."""
    with pytest.raises(ConfigError) as caught:
        parse(*arguments, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@given(encoder_settings(), st.randoms())
def test_the_text_form_is_one_canonical_line_that_reads_back_in_any_order(settings, chance):
    text = str(settings)
    assert len(text.splitlines()) <= 1
    assert text == text.strip(" \t\r\n")
    model, *parts = text.split("::")
    chance.shuffle(parts)
    for again in (parse_encoder(text), parse_encoder("::".join([model, *parts]))):
        assert again == settings
        assert str(again) == text
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    named = EncoderSettings(model=values.pop("model"))
    assert parse_encoder(str(named), **values) == settings


@given(NASTY)
def test_a_prompt_that_is_percent_encoded_throughout_is_read(prompt):
    assert parse_encoder(f"::query-prompt={quote(prompt, safe='')}").query_prompt == prompt


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("::pooling=max", {"pooling": "max"}),
        ("m::query-prompt=", {"model": "m", "query_prompt": ""}),
        (
            "./m::layers=0,6::head=yes::normalize=no::query-prompt=q: what=?%20",
            {"model": "./m", "layers": "0,6", "head": True, "normalize": False}
            | {"query_prompt": "q: what=? "},
        ),
        ("::pooling=cls::special-tokens=keep", {"pooling": "cls", "special_tokens": "keep"}),
        ("::pooling=max::special-tokens=drop", {"pooling": "max", "special_tokens": "drop"}),
        ("::fusion=concat::head=no", {"fusion": "concat", "head": False}),
        ("m::fusion=sbert-wk::omega=0.0", {"model": "m", "fusion": "sbert-wk", "omega": -0.0}),
        ("m::fusion=sbert-wk::omega=1.0", {"model": "m", "fusion": "sbert-wk", "omega": 1}),
    ],
)
def test_simple_settings_are_written_and_parsed_without_escapes(text, settings):
    assert str(EncoderSettings(**settings)) == text
    assert parse_encoder(text) == EncoderSettings(**settings)


@pytest.mark.parametrize(
    ("preset", "meant"),
    [
        ("last", {"layers": "last", "fusion": "mean"}),
        ("last4", {"layers": "last4", "fusion": "mean"}),
        ("top-bottom", {"layers": "-1,1", "fusion": "concat"}),
        ("sbert-wk", {"fusion": "sbert-wk"}),
        ("lc:0,6", {"layers": "0,6", "fusion": "mean"}),
    ],
)
def test_a_preset_stands_for_its_settings_wherever_it_is_written(preset, meant):
    settings = EncoderSettings(model="m", max_length=64, **meant)
    assert parse_encoder(f"m::{preset}::max-length=64") == settings
    assert parse_encoder(f"m::max-length=64::{preset}") == settings


def test_settings_alone_are_put_over_a_model():
    half = "m::dtype=bfloat16"
    assert over_model("n::last4", half) == "n::last4"
    assert over_model("::last4", half) == "m::dtype=bfloat16::last4"
    assert over_model("::static=sif", half) == "m::static=sif"


@pytest.mark.parametrize(
    ("text", "options", "key"),
    [
        ("m::pooling=max::pooling=max", {}, "pooling"),
        ("m::lc:0::lc:1", {}, "layers"),
        ("m::sbert-wk::fusion=mean", {}, "fusion"),
        ("m::last::last4", {}, "layers"),
        ("m::head=no", {"head": True}, "head"),
        ("m::query-prompt=", {"query_prompt": "x"}, "query-prompt"),
        ("m::lc:0", {"layers": "1"}, "layers"),
        ("m", {"model": "other"}, "model"),
    ],
)
def test_a_setting_that_is_given_twice_is_refused_by_name(text, options, key):
    assert refusal_of(parse_encoder, text, **options).startswith(f"{key}: given twice")


@pytest.mark.parametrize("name", ["pooler", "Layers", "max_length", "", " layers", "model"])
def test_an_unknown_setting_or_preset_is_refused_with_those_that_there_are(name):
    message = refusal_of(parse_encoder, f"m::{name}=1")
    assert f"unknown setting {name!r}" in message
    assert all(re.search(rf"\b{key.key}\b", message) for key in encoder_keys())
    message = refusal_of(parse_encoder, f"m::{name}")
    assert all(part in message for part in [*PRESETS, repr(name)])
    assert refusal_of(EncoderSettings, model="").startswith("model: expected")


GREAT = "9" * 5000


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ("fusion=sum", "fusion: expected mean, max, concat or sbert-wk, found 'sum'"),
        ("head=Yes", "head: expected yes or no"),
        ("max-length=7", "max-length: expected at least 8, found 7"),
        ("max-length=8.5", "max-length: expected a whole number"),
        ("max-length=1_000", "max-length: expected a whole number"),
        ("max-length=١٢٨", "max-length: expected a whole number"),
        (f"max-length={GREAT}", "max-length: expected a whole number up to 999999999"),
        ("sbert-wk::window=0", "window: expected at least 1"),
        ("sbert-wk::start-layer=-1", "start-layer: expected at least 0"),
        ("sbert-wk::omega=1.01", "omega: expected 0 to 1"),
        ("sbert-wk::omega=nan", "omega: expected 0 to 1"),
        ("sbert-wk::omega=٠", "omega: expected a number"),
        ("pooling=a\nb", "pooling: expected mean, max, cls or sep"),
        # Combinations.
        ("sbert-wk::layers=0,6", "layers: SBERT-WK fuses from start-layer"),
        ("sbert-wk::pooling=mean", "pooling: SBERT-WK weights the words itself"),
        *(
            (f"fusion=mean::{setting}", f"{setting.partition('=')[0]}: it belongs to SBERT-WK")
            for setting in (
                *("window=2", "omega=0.5", "start-layer=4", "wk-preset=paper"),
                *("wk-variance=all", "wk-words=uniform", "wk-layers=last"),
            )
        ),
        ("sbert-wk::wk-words=uniform::wk-variance=all", "wk-variance: wk-words=uniform takes no"),
        ("sbert-wk::wk-layers=uniform::window=1", "window: wk-layers=uniform does not weight"),
        ("sbert-wk::wk-layers=last::omega=1", "omega: wk-layers=last does not weight layers"),
        ("sbert-wk::wk-preset=released::special-tokens=keep", "special-tokens: wk-preset=released"),
        ("sbert-wk::wk-preset=released::wk-variance=all", "wk-variance: expected fused with"),
        ("top-bottom::head=yes", "head: the head of the model takes the width of one layer"),
        ("pooling=cls::special-tokens=drop", "pooling: cls reads a special token"),
        ("pooling=sep::special-tokens=drop", "pooling: sep reads a special token"),
        *(
            (f"static=sif::{setting}", f"{setting.partition('=')[0]}: a static encoder does not")
            for setting in (
                *("layers=0", "pooling=max", "fusion=mean", "head=no", "special-tokens=keep"),
                *("dtype=float32", "backend=numpy", "window=2"),
            )
        ),
    ],
)
def test_impossible_values_and_combinations_are_refused_by_name(settings, refusal):
    assert refusal_of(parse_encoder, f"m::{settings}").startswith(refusal)


def test_the_keys_of_the_text_form_are_listed_with_their_meaning_default_and_source():
    listed = {key.key: key for key in encoder_keys()}
    assert [one.name for one in listed.values()] == [
        field.name for field in fields(EncoderSettings) if field.name != "model"
    ]
    assert all(one.description.endswith(".") and one.default_text for one in listed.values())
    assert "Eq. 9" in listed["omega"].source
    documented = (ROOT / "docs/reference/encoders.md").read_text("utf-8")
    assert all(f"`{name}`" in documented for name in [*listed, *list(PRESETS)[:-1]])


@st.composite
def expressions(draw):
    """A depth, an expression and the hidden states that it names, in order."""
    depth = draw(DEPTHS)
    left, parts, named = list(range(depth + 1)), [], []
    for _ in range(draw(st.integers(1, 5))):
        if not left:
            break
        low = draw(st.sampled_from(left))
        high = low
        while high + 1 in left and draw(st.booleans()):
            high += 1
        states = list(range(low, high + 1))
        ends = [draw(st.sampled_from([end, end - depth - 1])) for end in (low, high)]
        parts.append(str(ends[0]) if low == high else f"{ends[0]}..{ends[1]}")
        named += states
        left = [layer for layer in left if layer not in states]
    return depth, ",".join(parts), tuple(named)


@given(expressions())
def test_numbers_and_ranges_name_their_states_in_order_however_they_are_written(case):
    depth, expression, named = case
    assert resolve_layers(expression, depth) == named
    canonical = format_layers(named, depth)
    assert resolve_layers(canonical, depth) == named
    assert format_layers(resolve_layers(canonical, depth), depth) == canonical


@pytest.mark.parametrize(
    ("expression", "named", "canonical"),
    [
        ("last", (12,), "last"),
        ("last1", (12,), "last"),
        ("last4", (9, 10, 11, 12), "9..12"),
        ("last13", tuple(range(13)), "all"),
        ("all", tuple(range(13)), "all"),
        ("-0", (0,), "0"),
        ("0..1", (0, 1), "0,1"),
        ("3..3", (3,), "3"),
        ("-1,1", (12, 1), "12,1"),
        ("3,2,1", (3, 2, 1), "3,2,1"),
        ("3,0..2", (3, 0, 1, 2), "3,0..2"),
        ("1..4,6,8..9", (1, 2, 3, 4, 6, 8, 9), "1..4,6,8,9"),
        (" 5 .. 7,\tlast2 ,0,1 ,2\n", (5, 6, 7, 11, 12, 0, 1, 2), "5..7,11,12,0..2"),
    ],
)
def test_layer_expression_resolves_to_layers_and_canonical_form(expression, named, canonical):
    assert resolve_layers(expression, 12) == named
    assert format_layers(named, 12) == canonical
    assert check_layers(expression) == "".join(expression.split())


@pytest.mark.parametrize(
    "expression",
    [
        *("", ",0", "0,,1", "first", "last0", "last-1", "1...4", "1..", "..4", "1..2..3", "1-4"),
        *("1.5", "+1", "--1", "0x1", "LAST", "last,x", "1;2", "٣", "last٤", "0..٣"),
        *(GREAT, f"last{GREAT}", f"0..{GREAT}"),
    ],
)
def test_malformed_layer_expression_is_refused_with_examples(expression):
    messages = {
        refusal_of(resolve_layers, expression, 12),
        refusal_of(EncoderSettings, layers=expression),
    }
    (message,) = messages
    assert message.startswith("layers: expected last, last4, all, numbers such as 0,6 or a range")


@given(DEPTHS, st.integers(1, 100))
def test_a_layer_out_of_range_is_refused_with_the_range(depth, beyond):
    for layer in (depth + beyond, -depth - 1 - beyond):
        for expression in (f"{layer}", f"0,{layer}" if layer > 0 else f"{layer}..0"):
            message = refusal_of(resolve_layers, expression, depth)
            assert f"0 (embeddings) to {depth}, or -{depth + 1} to -1, found {layer}" in message


@pytest.mark.parametrize(
    ("expression", "refusal"),
    [
        ("last14", "'last14', but this model has 13 hidden states"),
        ("0,0", "'0,0' names hidden state 0 twice"),
        ("1..4,-9", "'1..4,-9' names hidden state 4 twice"),
        ("4..3", "'4..3' runs backwards"),
        ("-1..0", "'-1..0' runs backwards"),
    ],
)
def test_layers_that_a_model_cannot_give_are_refused(expression, refusal):
    assert refusal_of(resolve_layers, expression, 12).startswith(f"layers: {refusal}")
