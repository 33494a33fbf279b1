"""Settings of an encoder, and their one text form.

The text form is the model and then settings, each after ``::``::

    all-MiniLM-L6-v2
    all-MiniLM-L6-v2::lc:0,6
    all-MiniLM-L6-v2::fusion=sbert-wk::wk-preset=released::max-length=128
    ./my-model::query-prompt=query: %20::pooling=cls

A setting is ``key=value`` or the name of a preset. In the model and in values ``%25`` stands for
``%`` and ``%3A`` for ``:``, where two of them would end the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args
from urllib.parse import quote, unquote

from retriever.encoders.fusion.layers import check_layers
from retriever.errors import ConfigError

Fusion = Literal["mean", "max", "concat", "sbert-wk"]
Pooling = Literal["mean", "max", "cls", "sep"]
SpecialTokens = Literal["keep", "drop"]
Backend = Literal["auto", "torch", "openvino", "numpy"]
Dtype = Literal["float32", "bfloat16", "float16", "int8"]
WKPreset = Literal["paper", "released"]
WKVariance = Literal["all", "fused"]
WKWords = Literal["variance", "uniform"]
WKLayers = Literal["weighted", "uniform", "last"]
Static = Literal["average", "sif", "usif", "p-mean"]

_SEPARATOR = "::"
# How vectors are computed; not which encoder it is.
COMPUTING = ("backend", "dtype")
_WK = ("wk_preset", "window", "start_layer", "omega", "wk_variance", "wk_words", "wk_layers")
_TRANSFORMER = ("layers", "fusion", "pooling", "special_tokens", "head", *COMPUTING, *_WK)
SHORTEST_WINDOW = 8


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Settings of an encoder; None leaves a setting open.

    An open setting is the index's own if there is an index, else what the model's files say, else
    the default.

    Attributes:
        model: a model folder, a bundled model's name, a hub id, a file of word vectors or of ready
            vectors (`.npy`), or ``URL#NAME`` of an embeddings service.
        static: how word vectors become one vector: ``average``, ``sif``, ``usif`` or ``p-mean``;
            the model does not run then, its input embeddings are the word vectors.
        layers: the hidden states that are read: ``last``, ``last4``, ``all``, ``0,6``, ``1..4``;
            default ``last``.
        fusion: over the layers: their ``mean`` (default), the ``max``imum of each component, their
            ``concat``enation in the order of `layers`, or ``sbert-wk``, which weights layers and
            words itself.
        pooling: over the word pieces of a layer; default: the model's own, else ``mean``.
        special_tokens: whether pooling counts [CLS] and [SEP]; default ``keep``.
        head: whether the model's own pooler or projection follows; default: where the model's
            sentence settings name a projection.
        normalize: whether vectors get length 1; default True. If not, search ranks by inner
            product.
        query_prompt: goes before each query; default: the model's own, else nothing.
        passage_prompt: goes before each passage; default: the model's own, else nothing.
        max_length: the window in word pieces, special tokens and prompt included, at least 8;
            default: the model's own.
        backend: what runs the model: ``torch``, ``openvino``, ``numpy``, or ``auto`` (default),
            which takes the fastest one for the number of texts.
        dtype: of the model's matrix products; vectors are float32 always. Default ``float32``.
        wk_preset: SBERT-WK as in the ``paper`` (default) or as in the ``released`` code.
        window: SBERT-WK's neighboring layers on each side, at least 1; default 2.
        start_layer: the lowest hidden state that SBERT-WK fuses; default: a third of the depth.
        omega: SBERT-WK's weight of alignment against novelty, in [0, 1]; default 0.5.
        wk_variance: hidden states that a word's variance is taken over, ``all`` or those that are
            ``fused``; default: the preset's.
        wk_words: SBERT-WK's weights of words, from their ``variance`` (default) or ``uniform``.
        wk_layers: SBERT-WK's weights of layers: ``weighted`` by alignment and novelty (default),
            ``uniform``, or the ``last`` layer alone.

    Raises:
        ConfigError: a value, or a combination of values, is impossible for any model.
    """

    model: str | None = None
    static: Static | None = None
    layers: str | None = None
    fusion: Fusion | None = None
    pooling: Pooling | None = None
    special_tokens: SpecialTokens | None = None
    head: bool | None = None
    normalize: bool | None = None
    query_prompt: str | None = None
    passage_prompt: str | None = None
    max_length: int | None = None
    backend: Backend | None = None
    dtype: Dtype | None = None
    wk_preset: WKPreset | None = None
    window: int | None = None
    start_layer: int | None = None
    omega: float | None = None
    wk_variance: WKVariance | None = None
    wk_words: WKWords | None = None
    wk_layers: WKLayers | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(
                    f"{_key(name)}: expected {_alternatives(choices)}, found {value!r}"
                )
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                open_end = high == _ANY and value < low
                limits = f"at least {low}" if open_end else f"{low} to {high}"
                raise ConfigError(f"{_key(name)}: expected {limits}, found {value}")
        if self.model == "":
            raise ConfigError("model: expected a folder, a model's name or a hub id, found nothing")
        if self.layers is not None:
            object.__setattr__(self, "layers", check_layers(self.layers))
        if self.omega is not None:
            # One form for 1, 1.0 and -0.0, since the text form is compared.
            object.__setattr__(self, "omega", float(self.omega) + 0.0)
        self._check_texts()
        self._check_combination()

    def _check_texts(self) -> None:
        for name in ("model", "query_prompt", "passage_prompt"):
            try:
                (getattr(self, name) or "").encode()
            except UnicodeEncodeError:
                raise ConfigError(f"{_key(name)}: expected UTF-8, found other bytes") from None

    def _check_combination(self) -> None:
        if self.static is not None:
            self._refuse(_TRANSFORMER, "a static encoder does not run the model: leave it out")
        if self.fusion != "sbert-wk":
            self._refuse(_WK, "it belongs to SBERT-WK: add fusion=sbert-wk or leave it out")
        else:
            self._refuse(("layers",), "SBERT-WK fuses from start-layer up to the last layer")
            self._refuse(("pooling",), "SBERT-WK weights the words itself: leave pooling out")
        if self.wk_words == "uniform":
            self._refuse(("wk_variance",), "wk-words=uniform takes no variance: leave it out")
        if self.wk_layers in ("uniform", "last"):
            unused = f"wk-layers={self.wk_layers} does not weight layers: leave it out"
            self._refuse(("window", "omega"), unused)
        if self.wk_preset == "released":
            self._refuse(
                ("special_tokens",), "wk-preset=released keeps [CLS] and drops the last piece"
            )
            if self.wk_variance == "all":
                raise ConfigError(
                    "wk-variance: expected fused with wk-preset=released, found all; leave it out"
                )
        if self.fusion == "concat" and self.head:
            raise ConfigError(
                "head: the head of the model takes the width of one layer, not a concatenation; "
                "leave it out"
            )
        if self.pooling in ("cls", "sep") and self.special_tokens == "drop":
            raise ConfigError(
                f"pooling: {self.pooling} reads a special token: add special-tokens=keep"
            )

    def _refuse(self, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ConfigError(f"{_key(name)}: {reason}")

    def __str__(self) -> str:
        """The canonical text form; `parse_encoder` reads it back to an equal value."""
        parts = [_quote(self.model or "")]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "model" and value is not None:
                parts.append(format_setting(field.name, value))
        return _SEPARATOR.join(parts)


_ANY = 10**9 - 1
_CHOICES: dict[str, tuple[str, ...]] = {
    "static": get_args(Static),
    "fusion": get_args(Fusion),
    "pooling": get_args(Pooling),
    "special_tokens": get_args(SpecialTokens),
    "backend": get_args(Backend),
    "dtype": get_args(Dtype),
    "wk_preset": get_args(WKPreset),
    "wk_variance": get_args(WKVariance),
    "wk_words": get_args(WKWords),
    "wk_layers": get_args(WKLayers),
}
_RANGES: dict[str, tuple[float, float]] = {
    "max_length": (SHORTEST_WINDOW, _ANY),
    "window": (1, _ANY),
    "start_layer": (0, _ANY),
    "omega": (0, 1),
}
PRESETS = ("last", "last4", "top-bottom", "sbert-wk", "lc:LAYERS")


def parse_encoder(text: str = "", preset: str | None = None, **options: Any) -> EncoderSettings:
    """Read the text form, with a preset and single settings beside it.

    Args:
        text: the text form; the model may be left out (``::lc:0,6``).
        preset: a preset's name.
        options: fields of `EncoderSettings`; None leaves a field open.

    Raises:
        ConfigError: an unknown key or preset, a value that is impossible, a setting given twice.
    """
    model, *parts = text.split(_SEPARATOR)
    asked: dict[str, Any] = {"model": unquote(model)} if model else {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            _add(asked, _preset(part))
        elif key not in _PARSERS:
            raise ConfigError(f"encoder: unknown setting {key!r}; expected {_alternatives(_KEYS)}")
        else:
            _add(asked, {_name(key): _PARSERS[key](key, unquote(value))})
    if preset is not None:
        _add(asked, _preset(preset))
    _add(asked, {name: value for name, value in options.items() if value is not None})
    return EncoderSettings(**asked)


def over_model(form: str, model: str) -> str:
    """The text form with a model: settings alone, such as ``::last4``, are put over `model`.

    Of a model that names a backend or number format, a static encoder gets neither: it does not run
    the model.

    Raises:
        ConfigError: as `parse_encoder`.
    """
    if not form.startswith(_SEPARATOR):
        return form
    named = parse_encoder(model)
    if parse_encoder(form).static is not None and (named.backend or named.dtype):
        model = str(replace(named, backend=None, dtype=None))
    return f"{model}{form}"


def _add(asked: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if name in asked:
            raise ConfigError(f"{_key(name)}: given twice, as {asked[name]} and as {value}")
        asked[name] = value


def _preset(name: str) -> dict[str, Any]:
    """Ma et al. 2019 (top-bottom), Wang and Kuo 2020 (sbert-wk), Hosseini et al. 2023 (lc)."""
    if name in ("last", "last4"):
        return {"layers": name, "fusion": "mean"}
    if name == "top-bottom":
        return {"layers": "-1,1", "fusion": "concat"}
    if name == "sbert-wk":
        return {"fusion": "sbert-wk"}
    if name.startswith("lc:"):
        return {"layers": name.removeprefix("lc:"), "fusion": "mean"}
    raise ConfigError(
        f"encoder: expected key=value or a preset ({', '.join(PRESETS)}), found {name!r}"
    )


def _text(key: str, value: str) -> str:
    return value


def _flag(key: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise ConfigError(f"{key}: expected yes or no, found {value!r}")
    return value == "yes"


def _integer(key: str, value: str) -> int:
    # Not int(), which takes "1_0" and Arabic digits.
    if not re.fullmatch(r"-?[0-9]{1,9}", value):
        raise ConfigError(f"{key}: expected a whole number up to {_ANY}, found {value[:40]!r}")
    return int(value)


def _number(key: str, value: str) -> float:
    if not re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?|-?inf|nan", value):
        raise ConfigError(f"{key}: expected a number, found {value[:40]!r}")
    return float(value)


def _key(name: str) -> str:
    return name.replace("_", "-")


def _name(key: str) -> str:
    return key.replace("-", "_")


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "static": _text,
    "layers": _text,
    "fusion": _text,
    "pooling": _text,
    "special-tokens": _text,
    "head": _flag,
    "normalize": _flag,
    "query-prompt": _text,
    "passage-prompt": _text,
    "max-length": _integer,
    "backend": _text,
    "dtype": _text,
    "wk-preset": _text,
    "window": _integer,
    "start-layer": _integer,
    "omega": _number,
    "wk-variance": _text,
    "wk-words": _text,
    "wk-layers": _text,
}
_KEYS = tuple(_PARSERS)


def _alternatives(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def format_setting(name: str, value: Any) -> str:
    """``key=value`` as in the text form."""
    shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else _quote(str(value))
    return f"{_key(name)}={shown}"


def _quote(value: str) -> str:
    """Percent-encode what would not survive: separators, control characters, spaces at the ends."""
    value = value.replace("%", "%25").replace("::", "%3A%3A")
    unsafe = r":$|^ | $|[\x00-\x1f\x7f-\x9f\u2028\u2029]"
    return re.sub(unsafe, lambda match: quote(match[0], safe=""), value)
