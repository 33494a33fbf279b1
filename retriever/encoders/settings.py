"""Settings of an encoder, and their one text form: the model, then settings, each after ``::``.

    all-MiniLM-L6-v2::lc:0,6
    all-MiniLM-L6-v2::fusion=sbert-wk::wk-preset=released::max-length=128
    ./my-model::query-prompt=query: %20::pooling=cls

A setting is ``key=value`` or the name of a preset. In the model and in values, ``%25`` stands for
``%``, and ``%3A`` for ``:`` where ``::`` would end the value. Hidden state 0 is the embedding
output, and k the output of the k-th of L layers; -1 is L, and -(L + 1) is 0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from retriever.errors import ConfigError
from retriever.settings import (
    GREATEST,
    Setting,
    alternatives,
    check_settings,
    declared_settings,
    format_value,
    open_setting,
)

_ITEM = re.compile(
    r"last(?P<count>[1-9][0-9]{0,8})?|all|(?P<low>-?[0-9]{1,9})(\.\.(?P<high>-?[0-9]{1,9}))?"
)
# Consecutive layers from which on the text form is a range.
_SHORTEST_RANGE = 3
Fusion = Literal["mean", "max", "concat", "sbert-wk"]
Pooling = Literal["mean", "max", "cls", "sep"]
SpecialTokens = Literal["keep", "drop"]
Backend = Literal["auto", "torch", "openvino", "numpy"]
Dtype = Literal["float32", "bfloat16", "float16", "int8"]
AskedDtype = Literal["auto", Dtype]
# Number formats of each backend.
_FORMATS: Mapping[Backend, tuple[Dtype, ...]] = {
    "auto": ("float32", "bfloat16", "float16", "int8"),
    "numpy": ("float32",),
    "openvino": ("float32", "bfloat16", "int8"),
    "torch": ("float32", "bfloat16", "float16"),
}
WKPreset = Literal["paper", "released"]
WKVariance = Literal["all", "fused"]
WKWords = Literal["variance", "uniform"]
WKLayers = Literal["weighted", "uniform", "last"]
Static = Literal["average", "sif", "usif", "p-mean"]
DEFAULT_MODEL = "all-MiniLM-L6-v2"
# The model of a new index that its first passages choose.
AUTO_MODEL = "auto"
_SEPARATOR = "::"
# Sections of settings in help texts.
TRANSFORMER = "transformer"
COMPUTING = "computing"
SBERT_WK = "SBERT-WK"
# Word pieces.
SHORTEST_WINDOW = 8
_WK = "Wang and Kuo 2020, "


def check_layers(text: str) -> str:
    """Return an expression of layers without white space; ConfigError if it is malformed."""
    compact = "".join(text.split())
    for item in compact.split(","):
        if not _ITEM.fullmatch(item):
            raise ConfigError(
                f"layers: expected last, last4, all, numbers such as 0,6 or a range such as 1..4, "
                f"found {text[:60]!r}"
            )
    return compact


def resolve_layers(text: str, depth: int) -> tuple[int, ...]:
    """Return the hidden states that an expression names in a model of `depth` layers, in order."""
    layers: list[int] = []
    for item in check_layers(text).split(","):
        match = _ITEM.fullmatch(item)
        assert match is not None
        low = 0
        high = depth
        if item.startswith("last"):
            low = depth + 1 - int(match["count"] or 1)
            if low < 0:
                raise ConfigError(f"layers: {item!r}, but this model has {depth + 1} hidden states")
        elif item != "all":
            low = _layer_number(match["low"], depth)
            high = low if match["high"] is None else _layer_number(match["high"], depth)
        if high < low:
            raise ConfigError(f"layers: {item!r} runs backwards; write the lower layer first")
        layers += range(low, high + 1)
    repeated = sorted({number for number in layers if layers.count(number) > 1})
    if repeated:
        raise ConfigError(f"layers: {text!r} names hidden state {repeated[0]} twice; name it once")
    return tuple(layers)


def _layer_number(number: str, depth: int) -> int:
    layer = int(number)
    if not -depth - 1 <= layer <= depth:
        raise ConfigError(
            f"layers: this model has hidden states 0 (embeddings) to {depth}, or -{depth + 1} "
            f"to -1, found {layer}"
        )
    return layer % (depth + 1)


def format_layers(layers: Sequence[int], depth: int) -> str:
    """Return the canonical expression of hidden states: ``last``, ``all``, numbers, ranges."""
    if tuple(layers) == (depth,):
        return "last"
    if tuple(layers) == tuple(range(depth + 1)):
        return "all"
    parts: list[str] = []
    start = 0
    for end in range(1, len(layers) + 1):
        if end < len(layers) and layers[end] == layers[end - 1] + 1:
            continue
        if end - start >= _SHORTEST_RANGE:
            parts.append(f"{layers[start]}..{layers[end - 1]}")
        else:
            parts += map(str, layers[start:end])
        start = end
    return ",".join(parts)


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Settings of an encoder; None leaves a setting open.

    An open setting takes the value of the index, else of the model's files, else the default.
    `encoder_keys` lists the meaning of each setting.

    Raises:
        ConfigError: a value or a combination of values is impossible for every model.
    """

    model: str | None = open_setting(
        "Model folder, name of a bundled model, hub id, file of word vectors or of ready vectors "
        "(.npy), or URL#NAME of an embeddings service.",
        default_text=DEFAULT_MODEL,
    )
    static: Static | None = open_setting(
        "Combine word vectors this way instead of running a model. The word vectors are the input "
        "embeddings of the model.",
        default_text="run the model",
        source="SIF: Arora et al. 2017; uSIF: Ethayarajh 2018; p-mean: Rücklé et al. 2018",
    )
    layers: str | None = open_setting(
        "Hidden states to use: last, last4, all, or numbers such as 0,6 or 1..4. 0 is the "
        "embedding output, -1 the last layer.",
        meaning="last",
        source="Hosseini et al. 2023",
        section=TRANSFORMER,
    )
    fusion: Fusion | None = open_setting(
        "How the vectors of the layers become one vector: mean, maximum per component, or "
        "concatenation in layer order. sbert-wk weights layers and words.",
        meaning="mean",
        source="concat: Ma et al. 2019; sbert-wk: Wang and Kuo 2020",
        section=TRANSFORMER,
    )
    pooling: Pooling | None = open_setting(
        "How token vectors become one vector.",
        meaning="mean",
        default_text="the model's own",
        source="Ma et al. 2019",
        section=TRANSFORMER,
    )
    special_tokens: SpecialTokens | None = open_setting(
        "Include [CLS] and [SEP] in pooling, or drop them.", meaning="keep", section=TRANSFORMER
    )
    head: bool | None = open_setting(
        "Apply the model's own pooler or projection after pooling.",
        meaning=False,
        default_text="if the model's files name a projection",
        source="Hosseini et al. 2023",
        section=TRANSFORMER,
    )
    normalize: bool | None = open_setting(
        "Scale vectors to length 1; otherwise search ranks by inner product.", meaning=True
    )
    dimensions: int | None = open_setting(
        "Number of leading components of each vector to keep, before scaling to length 1. The "
        "model must be trained for this.",
        low=1,
        high=GREATEST,
        default_text="all of them",
        source="Kusupati et al. 2022, Matryoshka",
    )
    query_prompt: str | None = open_setting(
        "Text put before each query.", meaning="", default_text="the model's own"
    )
    passage_prompt: str | None = open_setting(
        "Text put before each passage.", meaning="", default_text="the model's own"
    )
    max_length: int | None = open_setting(
        "Window in tokens, including special tokens and prompt.",
        low=SHORTEST_WINDOW,
        high=GREATEST,
        default_text="the model's own",
    )
    backend: Backend | None = open_setting(
        "Library that runs the model; auto takes the fastest installed library.",
        meaning="auto",
        section=COMPUTING,
    )
    dtype: AskedDtype | None = open_setting(
        "Number format of the computation. auto is bfloat16 if the processor computes in it; int8 "
        "needs OpenVINO.",
        meaning="float32",
        section=COMPUTING,
    )
    wk_preset: WKPreset | None = open_setting(
        "SBERT-WK: follow the paper or the released code.",
        default_text="paper",
        source="Wang and Kuo 2020",
        section=SBERT_WK,
    )
    window: int | None = open_setting(
        "SBERT-WK: number of neighboring layers on each side.",
        low=1,
        high=GREATEST,
        default_text="2",
        source=_WK + "Eqs. 5 and 7",
        section=SBERT_WK,
    )
    start_layer: int | None = open_setting(
        "SBERT-WK: lowest hidden state to fuse.",
        low=0,
        high=GREATEST,
        default_text="a third of the depth",
        source=_WK + "Sec. IV-B",
        section=SBERT_WK,
    )
    omega: float | None = open_setting(
        "SBERT-WK: weight of alignment against novelty.",
        low=0,
        high=1,
        default_text="0.5",
        source=_WK + "Eq. 9",
        section=SBERT_WK,
    )
    wk_variance: WKVariance | None = open_setting(
        "SBERT-WK: hidden states whose variance weights a word.",
        default_text="the preset's",
        source=_WK + "Eq. 12",
        section=SBERT_WK,
    )
    wk_words: WKWords | None = open_setting(
        "SBERT-WK: weights of words.",
        meaning="variance",
        source=_WK + "Table VII",
        section=SBERT_WK,
    )
    wk_layers: WKLayers | None = open_setting(
        "SBERT-WK: weights of layers; last uses only the last layer.",
        meaning="weighted",
        source=_WK + "Table VII",
        section=SBERT_WK,
    )

    def __post_init__(self) -> None:
        check_settings(self, keys=True)
        if self.model == "":
            raise ConfigError("model: expected a folder, a model's name or a hub id, found nothing")
        if self.layers is not None:
            object.__setattr__(self, "layers", check_layers(self.layers))
        if self.omega is not None:
            # 1 and 1.0, 0.0 and -0.0 get the same text form, which is compared.
            object.__setattr__(self, "omega", float(self.omega) + 0.0)
        for applies, names, reason in _conflicts(self):
            for name in names:
                if applies and getattr(self, name) is not None:
                    raise ConfigError(f"{_DECLARED[name].key}: {reason}")

    def __str__(self) -> str:
        """Return the canonical text form, which `parse_encoder` reads as an equal value."""
        parts = [_quote(self.model or "")]
        parts += [
            format_setting(*setting) for setting in self.named.items() if setting[0] != "model"
        ]
        return _SEPARATOR.join(parts)

    @property
    def number_format(self) -> Dtype:
        """The number format that `dtype` names; float32 if it names none."""
        return "float32" if self.dtype is None or self.dtype == "auto" else self.dtype

    def with_number_format(self, dtype: AskedDtype) -> EncoderSettings:
        """Return settings with a number format if they name none; auto and float32 stay unnamed."""
        named = self.dtype is not None or dtype in ("auto", "float32")
        return self if named else replace(self, dtype=dtype)

    # Its name in earlier releases.
    computed_in = with_number_format

    @property
    def named(self) -> dict[str, Any]:
        """The settings that are not open, by field."""
        values = {name: getattr(self, name) for name in _DECLARED}
        return {name: value for name, value in values.items() if value is not None}


_DECLARED = declared_settings(EncoderSettings)
# Fields of each section.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    section: tuple(name for name, declared in _DECLARED.items() if declared.section == section)
    for section in (TRANSFORMER, COMPUTING, SBERT_WK)
}
_BY_KEY = {declared.key: declared for declared in _DECLARED.values() if declared.name != "model"}
# Settings of each preset. Sources: Ma et al. 2019 (top-bottom), Wang and Kuo 2020 (sbert-wk),
# Hosseini et al. 2023 (lc).
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "last": {"layers": "last", "fusion": "mean"},
    "last4": {"layers": "last4", "fusion": "mean"},
    "top-bottom": {"layers": "-1,1", "fusion": "concat"},
    "sbert-wk": {"fusion": "sbert-wk"},
    "lc:LAYERS": {"layers": "LAYERS", "fusion": "mean"},
}


_Conflict = tuple[bool, tuple[str, ...], str]


def _conflicts(settings: EncoderSettings) -> Iterator[_Conflict]:
    """Yield whether a rule applies, the fields that it rules out, and the reason."""
    yield (
        settings.static is not None,
        SECTIONS[TRANSFORMER] + SECTIONS[COMPUTING] + SECTIONS[SBERT_WK],
        "a static encoder does not run the model: leave it out",
    )
    yield (
        settings.fusion != "sbert-wk",
        SECTIONS[SBERT_WK],
        "it belongs to SBERT-WK: add fusion=sbert-wk or leave it out",
    )
    if settings.fusion == "sbert-wk":
        yield from _sbert_wk_conflicts(settings)
    yield (
        settings.fusion == "concat" and bool(settings.head),
        ("head",),
        "the head of the model takes the width of one layer, not a concatenation; add head=no",
    )
    yield (
        settings.pooling in ("cls", "sep") and settings.special_tokens == "drop",
        ("pooling",),
        f"{settings.pooling} reads a special token: add special-tokens=keep",
    )
    backend = settings.backend or "auto"
    yield (
        settings.dtype not in (None, "auto", *_FORMATS[backend]),
        ("dtype",),
        f"the backend {backend} computes in {', '.join(_FORMATS[backend])}, found "
        f"{settings.dtype}; leave backend out, or choose another dtype",
    )


def _sbert_wk_conflicts(settings: EncoderSettings) -> Iterator[_Conflict]:
    is_released = settings.wk_preset == "released"
    yield True, ("layers",), "SBERT-WK fuses from start-layer up to the last layer"
    yield True, ("pooling",), "SBERT-WK weights the words itself: leave pooling out"
    yield (
        settings.wk_words == "uniform",
        ("wk_variance",),
        "wk-words=uniform takes no variance: leave it out",
    )
    yield (
        settings.wk_layers in ("uniform", "last"),
        ("window", "omega"),
        f"wk-layers={settings.wk_layers} does not weight layers: leave it out",
    )
    yield (
        is_released,
        ("special_tokens",),
        "wk-preset=released keeps [CLS] and drops the last piece",
    )
    yield (
        is_released and settings.wk_variance == "all",
        ("wk_variance",),
        "expected fused with wk-preset=released, found all; leave it out",
    )


def encoder_keys() -> tuple[Setting, ...]:
    """Return the settings of the text form, in its canonical order."""
    return tuple(_BY_KEY.values())


def parse_encoder(text: str | Path | EncoderSettings = "", **options: Any) -> EncoderSettings:
    """Read the text form of an encoder, completed by single settings.

    Args:
        text: text form, folder or settings; the model may be left out (``::lc:0,6``).
        options: fields of `EncoderSettings`; None leaves a field open.

    Raises:
        ConfigError: unknown key or preset, impossible value, or a setting given twice.
    """
    if not isinstance(text, str | Path | EncoderSettings):
        raise TypeError(
            f"model: expected a name, a folder or EncoderSettings, found {text!r:.60}; leave it "
            "out for the default, and give an object that encodes as encoder"
        )
    if isinstance(text, EncoderSettings):
        named = [*text.named.items()]
        texts = []
    else:
        model, *texts = str(text).split(_SEPARATOR)
        named = [("model", unquote(model))] if model else []
    for part in texts:
        key, equals, value = part.partition("=")
        if not equals:
            named += _preset(part).items()
        elif key not in _BY_KEY:
            expected = alternatives(tuple(_BY_KEY))
            raise ConfigError(f"encoder: unknown setting {key!r}; expected {expected}")
        else:
            named.append((_BY_KEY[key].name, _BY_KEY[key].parse(unquote(value))))
    named += [option for option in options.items() if option[1] is not None]
    values: dict[str, Any] = {}
    for name, value in named:
        if name in values:
            raise ConfigError(
                f"{_DECLARED[name].key}: given twice, as {values[name]} and as {value}"
            )
        values[name] = value
    return EncoderSettings(**values)


def is_automatic(encoder: str | Path | EncoderSettings) -> bool:
    """Return whether an encoder is the model ``auto``, and no folder has this name."""
    return parse_encoder(encoder).model == AUTO_MODEL and not os.path.isdir(AUTO_MODEL)


def over_model(form: str, model: str) -> str:
    """Return the text form; settings without a model, such as ``::last4``, are added to `model`."""
    if not form.startswith(_SEPARATOR):
        return form
    named = parse_encoder(model)
    if parse_encoder(form).static is not None and (named.backend or named.dtype):
        model = str(replace(named, backend=None, dtype=None))
    return f"{model}{form}"


def _preset(name: str) -> Mapping[str, Any]:
    if name.startswith("lc:"):
        return {**PRESETS["lc:LAYERS"], "layers": name.removeprefix("lc:")}
    if name not in PRESETS:
        raise ConfigError(
            f"encoder: expected key=value or a preset ({', '.join(PRESETS)}), found {name!r}"
        )
    return PRESETS[name]


def format_setting(name: str, value: Any) -> str:
    """Return ``key=value`` as in the text form."""
    return f"{_DECLARED[name].key}={_quote(format_value(value))}"


def _quote(value: str) -> str:
    """Percent-encode separators, control characters, and spaces at the ends."""
    value = value.replace("%", "%25").replace("::", "%3A%3A")
    unsafe = r":$|^ | $|[\x00-\x1f\x7f-\x9f\u2028\u2029]"
    return re.sub(unsafe, lambda match: quote(match[0], safe=""), value)
