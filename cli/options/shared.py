"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

index_option = click.option(
    "-i",
    "--index",
    "folder",
    type=click.Path(path_type=Path),
    default=".retriever",
    envvar="RETRIEVER_INDEX",
    show_default=True,
    show_envvar=True,
    help="The index folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
on_error_option = click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="A bad record stops the command, or is counted and skipped.",
)


class ByteSize(click.ParamType[int]):
    """A size such as 500MB or 2.5GB (powers of 1,000), or a number of bytes."""

    name = "size"
    _UNITS: ClassVar = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The size in bytes, at least 1."""
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)", str(value).strip().upper())
        if found is None or found[2] not in self._UNITS:
            self.fail(f"expected a size such as 500MB or 2GB, found {value!r}", param, ctx)
        size = int(float(found[1]) * self._UNITS[found[2]])
        if size < 1:
            self.fail(f"expected 1 byte or more, found {value!r}", param, ctx)
        return size


def _named(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("expected a name or a FAISS factory string, found nothing")
    return value


index_type_option = click.option(
    "--index-type",
    callback=_named,
    help="How large segments are searched: auto, flat, hnsw, ivf, ivf-sq8, ivf-pq or a FAISS "
    "factory string. [default: auto]",
)
memory_option = click.option(
    "--memory", type=ByteSize(), help="What auto may take of it, such as 2GB. [default: no limit]"
)
device_option = click.option("--device", help="cpu, cuda, ... [default: a GPU if there is one]")
download_option = click.option(
    "--download", is_flag=True, help="Fetch a model that is not in the local hub cache."
)
LAYER_FUSIONS = ("mean", "concat", "sbert-wk")
_MODEL = "MODEL[::SETTING...]"


def measure_option(default: tuple[str, ...]) -> Callable[[Command], Command]:
    """--measure, with the measures that a command shows if none are named."""
    return click.option(
        "-m",
        "--measure",
        "measures",
        multiple=True,
        default=default,
        show_default=True,
        help="nDCG@k, R@k, P@k, Success@k, AP, RR; may be repeated.",
    )


def resampling_options(command: Command) -> Command:
    """--resamples and --seed, of the randomisation test and the bootstrap."""
    for option in (
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of both."
        ),
        click.option(
            "--resamples",
            type=click.IntRange(min=100),
            default=10_000,
            show_default=True,
            help="Of the randomisation test and the bootstrap.",
        ),
    ):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """Which encoder: the command takes them as keywords, for `cli.options.encoder.model_choice`."""
    return encoder_options(
        click.option(
            "--fusion",
            type=click.Choice(LAYER_FUSIONS),
            help="How layers become one. [default: mean]",
        )
    )(command)


def encoder_options(fusion: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """As `model_options`, with a --fusion of the command's own."""
    options: list[Callable[[Command], Command]] = [
        click.option(
            "--model",
            metavar=_MODEL,
            help="A model folder, a bundled model's name, a hub id in the local cache or a file of "
            "word vectors, with settings as key=value or a preset's name: "
            "all-MiniLM-L6-v2::lc:0,6. [default: the index's own; all-MiniLM-L6-v2 for a new one]",
        ),
        click.option("--preset", help="last, last4, top-bottom, sbert-wk, or lc:LAYERS."),
        click.option(
            "--layers",
            help="Hidden states: last, last4, all, 0,6 or 1..4; 0 is the embeddings, -1 the last.",
        ),
        fusion,
        click.option(
            "--pooling",
            type=click.Choice(["mean", "max", "cls", "sep"]),
            help="How word pieces become one. [default: the model's]",
        ),
        click.option(
            "--special-tokens",
            type=click.Choice(["keep", "drop"]),
            help="Whether [CLS] and [SEP] are pooled. [default: keep]",
        ),
        click.option(
            "--head/--no-head", default=None, help="The model's own pooler or projection follows."
        ),
        click.option(
            "--normalize/--no-normalize", default=None, help="Vectors of length 1. [default: yes]"
        ),
        click.option("--query-prompt", help="Goes before each query. [default: the model's]"),
        click.option("--passage-prompt", help="Goes before each passage. [default: the model's]"),
        click.option(
            "--max-length",
            type=click.IntRange(min=8),
            help="The window in word pieces. [default: the model's]",
        ),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "bfloat16", "float16"]),
            help="What the model computes in. [default: float32]",
        ),
        click.option(
            "--wk-preset", type=click.Choice(["paper", "released"]), help="SBERT-WK: which one."
        ),
        click.option(
            "--window", type=click.IntRange(min=1), help="SBERT-WK: neighbours on each side."
        ),
        click.option(
            "--start-layer", type=click.IntRange(min=0), help="SBERT-WK: the lowest hidden state."
        ),
        click.option(
            "--omega",
            type=click.FloatRange(0, 1),
            help="SBERT-WK: weight of alignment against novelty.",
        ),
        click.option(
            "--wk-variance",
            type=click.Choice(["all", "fused"]),
            help="SBERT-WK: hidden states that a word's variance is over.",
        ),
        click.option(
            "--static",
            type=click.Choice(["average", "sif", "usif", "p-mean"]),
            help="Word vectors alone, no forward pass.",
        ),
        device_option,
        download_option,
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def field_options(command: Command) -> Command:
    """--id-field, --text-field, --title-field."""
    for name, default in (
        ("title", "title"),
        ("text", "text, contents, passage or sentence"),
        ("id", "id or _id; made if there is none"),
    ):
        command = click.option(
            f"--{name}-field", help=f"The field that holds the {name}. [default: {default}]"
        )(command)
    return command
