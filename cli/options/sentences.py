"""Which encoders are scored on sentences, and by which classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from cli.options.declaring import Decorator, is_given, option, settings
from cli.options.encoder import MINILM, device_option, download_option, model_option
from cli.options.evaluation import DataSet, cache_folder, cache_option

if TYPE_CHECKING:
    from eval import Loading
    from eval.transfer.evaluation import ClassifierName
    from retriever.encoders.settings import Pooling

datasets_argument = click.argument(
    "datasets", nargs=-1, required=True, metavar="DATASET...", type=DataSet()
)


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """Whether hidden states are scored, and how their word pieces are pooled."""

    by_layer: bool
    poolings: str

    def scored_poolings(self) -> tuple[Pooling, ...]:
        """Those of --by-layer, not checked; none without it.

        Raises:
            click.UsageError: they are given without it.
        """
        if not self.by_layer:
            if is_given("poolings"):
                raise click.UsageError(
                    "--poolings: those of --by-layer; add it, or name encoders with ::pooling="
                )
            return ()
        return cast("tuple[Pooling, ...]", tuple(one.strip() for one in self.poolings.split(",")))


@dataclass(frozen=True, slots=True)
class SentenceOptions(LayerOptions):
    """The encoders that are scored, and the one that the others are compared with."""

    encoders: tuple[str, ...]
    lists: tuple[str, ...]
    model: str | None
    device: str | None
    download: bool
    cache: bool
    baseline: str | None

    def names(self) -> tuple[str, ...]:
        """Their text forms; that of --model if no other is named.

        Raises:
            ConfigError: a setting is unknown, or an encoder is named twice.
        """
        from eval import named_encoders

        asked = self.encoders or (() if self.lists else (self.model or MINILM,))
        return named_encoders(asked, self.lists, self.model)

    def compared_with(self) -> str | None:
        """The text form of the baseline; without a model it is of --model."""
        from retriever.encoders.settings import over_model

        return self.baseline and over_model(self.baseline, self.model or MINILM)

    def loading(self) -> Loading:
        """Where models come from, and where vectors are kept."""
        from eval import Loading

        return Loading(self.device, self.download, cache_folder(self.cache))


def by_layer_options(of: str, section: Literal["Ranking", "Scoring"]) -> list[Decorator]:
    """--by-layer and --poolings.

    Args:
        of: whose hidden states are scored.
        section: of the help.
    """
    return [
        option(
            "--by-layer",
            is_flag=True,
            help=f"Score every hidden state of {of}, as a table and a heat map.",
            section=section,
        ),
        option(
            "--poolings",
            default="mean,max,cls,sep",
            metavar="NAME[,NAME...]",
            help="Poolings of the word pieces for --by-layer.",
            section=section,
        ),
    ]


sentence_options: Callable[[Any], Callable[..., Any]] = settings(
    "encoders",
    SentenceOptions,
    [
        option(
            "-e",
            "--encoder",
            "encoders",
            multiple=True,
            metavar="MODEL[::SETTING...]",
            help="Encoder to score, such as all-MiniLM-L6-v2::lc:0,6; without a model (::lc:0,6) "
            "it is of --model. static=sif and static=usif are fitted on the texts of each set. May "
            "be repeated.",
            shown_default="--model",
            section="Encoder",
        ),
        option(
            "--encoders",
            "lists",
            multiple=True,
            type=click.Choice(["paper"]),
            help="List of encoders over --model. paper: last, cls, max, last4, all layers, "
            "top-bottom, both SBERT-WK, lc:0,-1, SIF, uSIF, p-mean and average.",
            section="Encoder",
        ),
        model_option(MINILM),
        device_option,
        download_option,
        cache_option,
        *by_layer_options("each encoder's model instead", "Scoring"),
        option(
            "--baseline",
            metavar="ENCODER",
            help="Encoder that the others are compared with.",
            shown_default="the first",
            section="Scoring",
        ),
    ],
)


@dataclass(frozen=True, slots=True)
class ClassifierOptions:
    """What is trained on the vectors; None where nothing is asked."""

    classifier: ClassifierName
    seeds: int | None


classifier_options: Callable[[Any], Callable[..., Any]] = settings(
    "classifier",
    ClassifierOptions,
    [
        option(
            "--classifier",
            type=click.Choice(["lr", "lr-senteval", "mlp"]),
            default="lr",
            help="Logistic regression, that of SentEval's code, or an MLP with 50 hidden units.",
            section="Training",
        ),
        option(
            "--seeds",
            type=click.IntRange(min=1),
            shown_default="5",
            metavar="N",
            help="Number of random seeds, each with its own divisions and training.",
            section="Training",
        ),
    ],
)
