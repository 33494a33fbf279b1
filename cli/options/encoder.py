"""Which encoder, and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from cli.options.declaring import RARE, Decorator, F, complete_model, option, settings

if TYPE_CHECKING:
    from retriever.encoders.encoder import ModelChoice
    from retriever.encoders.settings import (
        Backend,
        Dtype,
        Fusion,
        Pooling,
        SpecialTokens,
        Static,
        WKLayers,
        WKPreset,
        WKVariance,
        WKWords,
    )

MINILM = "all-MiniLM-L6-v2"

device_option = option(
    "--device",
    metavar="NAME",
    help="Device of the model: cpu, cuda, ...",
    shown_default="a GPU if there is one",
    section="Encoder",
)
download_option = option(
    "--download",
    is_flag=True,
    help="Download a model that is not in the local cache.",
    section="Encoder",
)


def model_option(default: str) -> Callable[[F], F]:
    """--model; `default` is what the help says is used without it."""
    return option(
        "--model",
        metavar="MODEL[::SETTING...]",
        shell_complete=complete_model,
        help="Model folder, name of a bundled model, hub id in the local cache, file of word "
        "vectors, or URL#NAME of an embeddings service; settings may follow, such as "
        "::max-length=256.",
        shown_default=default,
        section="Encoder",
    )


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """An encoder in its text form, and where it runs."""

    model: str | None
    device: str | None
    download: bool

    def choice(self) -> ModelChoice:
        """The encoder that the options name.

        Raises:
            ConfigError: the text form is malformed, or a setting is impossible.
        """
        from retriever.encoders.encoder import ModelChoice

        return ModelChoice(self.model or "", self.device, self.download)


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """An encoder with each setting as an option, and where it runs; None if not given."""

    model: str | None = None
    preset: str | None = None
    layers: str | None = None
    fusion: Fusion | None = None
    pooling: Pooling | None = None
    device: str | None = None
    download: bool = False
    special_tokens: SpecialTokens | None = None
    head: bool | None = None
    normalize: bool | None = None
    query_prompt: str | None = None
    passage_prompt: str | None = None
    max_length: int | None = None
    backend: Backend | None = None
    dtype: Dtype | None = None
    static: Static | None = None
    wk_preset: WKPreset | None = None
    window: int | None = None
    start_layer: int | None = None
    omega: float | None = None
    wk_variance: WKVariance | None = None
    wk_words: WKWords | None = None
    wk_layers: WKLayers | None = None

    def choice(self) -> ModelChoice:
        """The encoder that the options name.

        Raises:
            ConfigError: a setting is impossible, or given in --model and as an option.
        """
        from retriever.encoders.encoder import ModelChoice
        from retriever.encoders.settings import EncoderSettings, parse_encoder

        names = {field.name for field in fields(EncoderSettings)} - {"model"}
        asked = {name: getattr(self, name) for name in names}
        encoder = parse_encoder(self.model or "", self.preset, **asked)
        return ModelChoice(str(encoder), self.device, self.download)


def model_options(default: str) -> Callable[[F], Callable[..., Any]]:
    """--model, --device and --download: the command takes `encoder: ModelOptions`."""
    return settings(
        "encoder", ModelOptions, [model_option(default), device_option, download_option]
    )


# The settings that hidden states depend on, and those that SBERT-WK adds.
STATES = (
    *("model", "device", "download", "special_tokens", "passage_prompt", "max_length"),
    *("backend", "dtype"),
)
# Where indexes that exist are searched.
SERVING = ("model", "device", "download", "backend", "dtype")
WEIGHTING = (
    *("wk_preset", "window", "start_layer", "omega"),
    *("wk_variance", "wk_words", "wk_layers"),
)


def encoder_options(
    model: str, others: str | None = None, *, only: Collection[str] | None = None
) -> Callable[[F], Callable[..., Any]]:
    """The settings of an encoder: the command takes `encoder: EncoderOptions`.

    Args:
        model: what the help says is the model without --model.
        others: what it says are all other settings; None for the defaults of a new encoder.
        only: the fields of `EncoderOptions` that the command has options for; None for all.
    """
    options = _encoder_option_list(model, others)
    kept = [one for name, one in options.items() if only is None or name in only]
    return settings("encoder", EncoderOptions, kept)


def _encoder_option_list(model: str, others: str | None) -> dict[str, Decorator]:
    """The options of `EncoderOptions` by field, in the order of the help page."""

    def setting(*names: str, shown_default: str, **attributes: Any) -> Decorator:
        return option(*names, shown_default=others or shown_default, **attributes)

    return {
        "model": model_option(model),
        "preset": option(
            "--preset",
            metavar="NAME",
            help="Several settings by one name: last, last4, top-bottom, sbert-wk or lc:LAYERS.",
            section="Encoder",
        ),
        "layers": setting(
            "--layers",
            metavar="LAYERS",
            help="Hidden states to use: last, last4, all, 0,6 or 1..4; 0 is the embedding output, "
            "-1 the last layer.",
            shown_default="last",
            section="Encoder",
        ),
        "fusion": setting(
            "--fusion",
            type=click.Choice(["mean", "max", "concat", "sbert-wk"]),
            help="How the vectors of the layers become one.",
            shown_default="mean",
            section="Encoder",
        ),
        "pooling": setting(
            "--pooling",
            type=click.Choice(["mean", "max", "cls", "sep"]),
            help="How the vectors of the word pieces become one.",
            shown_default="the model's own",
            section="Encoder",
        ),
        "device": device_option,
        "download": download_option,
        "special_tokens": setting(
            "--special-tokens",
            type=click.Choice(["keep", "drop"]),
            help="Include [CLS] and [SEP] in pooling, or not.",
            shown_default="keep",
            section=RARE,
        ),
        "head": setting(
            "--head/--no-head",
            default=None,
            help="Apply the model's own pooler or projection after pooling.",
            shown_default="if the model's files name a projection",
            section=RARE,
        ),
        "normalize": setting(
            "--normalize/--no-normalize",
            default=None,
            help="Scale vectors to length 1.",
            shown_default="yes",
            section=RARE,
        ),
        "query_prompt": setting(
            "--query-prompt",
            metavar="TEXT",
            help="Text put before each query.",
            shown_default="the model's own",
            section=RARE,
        ),
        "passage_prompt": setting(
            "--passage-prompt",
            metavar="TEXT",
            help="Text put before each passage.",
            shown_default="the model's own",
            section=RARE,
        ),
        "max_length": setting(
            "--max-length",
            type=click.IntRange(min=8),
            metavar="N",
            help="Window in word pieces.",
            shown_default="the model's own",
            section=RARE,
        ),
        "backend": setting(
            "--backend",
            type=click.Choice(["auto", "torch", "openvino", "numpy"]),
            help="What runs the model; auto takes the fastest that is installed.",
            shown_default="auto",
            section=RARE,
        ),
        "dtype": setting(
            "--dtype",
            type=click.Choice(["float32", "bfloat16", "float16", "int8"]),
            help="Number format that the model computes in; int8 needs OpenVINO.",
            shown_default="float32",
            section=RARE,
        ),
        "static": option(
            "--static",
            type=click.Choice(["average", "sif", "usif", "p-mean"]),
            help="Combine word vectors this way instead of running a model.",
            section=RARE,
        ),
        "wk_preset": setting(
            "--wk-preset",
            type=click.Choice(["paper", "released"]),
            help="SBERT-WK: as in the paper or as in the released code.",
            shown_default="paper",
            section=RARE,
        ),
        "window": setting(
            "--window",
            type=click.IntRange(min=1),
            metavar="N",
            help="SBERT-WK: number of neighboring layers on each side.",
            shown_default="2",
            section=RARE,
        ),
        "start_layer": setting(
            "--start-layer",
            type=click.IntRange(min=0),
            metavar="N",
            help="SBERT-WK: lowest hidden state.",
            shown_default="a third of the depth",
            section=RARE,
        ),
        "omega": setting(
            "--omega",
            type=click.FloatRange(0, 1),
            metavar="WEIGHT",
            help="SBERT-WK: weight of alignment against novelty.",
            shown_default="0.5",
            section=RARE,
        ),
        "wk_variance": setting(
            "--wk-variance",
            type=click.Choice(["all", "fused"]),
            help="SBERT-WK: hidden states whose variance weights a word.",
            shown_default="the preset's",
            section=RARE,
        ),
        "wk_words": setting(
            "--wk-words",
            type=click.Choice(["variance", "uniform"]),
            help="SBERT-WK: weights of words.",
            shown_default="variance",
            section=RARE,
        ),
        "wk_layers": setting(
            "--wk-layers",
            type=click.Choice(["weighted", "uniform", "last"]),
            help="SBERT-WK: weights of layers; last reads the last layer alone.",
            shown_default="weighted",
            section=RARE,
        ),
    }
