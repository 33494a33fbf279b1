"""For how long and how fast a model is trained, and how a transformer is fine-tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import click

from cli.options.declaring import RARE, Decorator, option, settings
from cli.options.evaluation import seed_option


def optimization_options(
    *, epochs: int, patience: int, unkept: str, learning_rate: float, of: str, decay: str
) -> list[Decorator]:
    """--epochs, --patience, --learning-rate and --weight-decay.

    Args:
        epochs: default, like `patience` and `learning_rate`.
        patience: see `epochs`.
        unkept: which epochs --patience counts.
        learning_rate: see `epochs`.
        of: what the learning rate is of.
        decay: help of --weight-decay.
    """
    return [
        option(
            "--epochs",
            type=click.IntRange(min=1),
            default=epochs,
            metavar="N",
            help="Maximum number of epochs.",
            section="Training",
        ),
        option(
            "--patience",
            type=click.IntRange(min=1),
            default=patience,
            metavar="N",
            help=f"Stop after this many epochs {unkept}.",
            section="Training",
        ),
        option(
            "--learning-rate",
            type=click.FloatRange(min=0, min_open=True),
            default=learning_rate,
            metavar="RATE",
            help=f"Learning rate of {of}.",
            section="Training",
        ),
        option(
            "--weight-decay",
            type=click.FloatRange(min=0),
            default=0.01,
            metavar="D",
            help=decay,
            section=RARE,
        ),
    ]


@dataclass(frozen=True, slots=True)
class FineTuningOptions:
    """How a transformer is fine-tuned."""

    trained: str
    epochs: int
    patience: int
    tolerance: float
    learning_rate: float
    head_learning_rate: float
    weight_decay: float
    warmup: float
    clip: float
    averaging: float
    train_word_embeddings: bool
    precision: Literal["auto", "float32", "bfloat16"]
    seed: int

    def named(self) -> dict[str, Any]:
        """Arguments of settings that are a `FineTuningSettings`.

        Raises:
            ConfigError: `trained` is no such text.
        """
        from retriever.training.settings import Trained

        return asdict(self) | {"trained": Trained.parse(self.trained)}


restart_option = option(
    "--restart",
    is_flag=True,
    help="Start over instead of resuming from a checkpoint, and replace the result of another "
    "training.",
    section="Training",
)


def fine_tuning_options(
    *, learning_rate: float, tolerance: float, score: str, head: str, words: str, seed: str
) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `tuning: FineTuningOptions`.

    Args:
        learning_rate: default, as the next.
        tolerance: in units of the dev score.
        score: name of the dev score.
        head: what `--head-learning-rate` is the rate of.
        words: what follows "Train the word embeddings too".
        seed: what the seed decides.
    """
    return settings(
        "tuning",
        FineTuningOptions,
        [
            option(
                "--train",
                "trained",
                default="full",
                metavar="full|last:N|lora:RANK",
                help="Weights to train: all but the word embeddings, those of the last N layers, "
                "or low-rank adapters, which learn at ten times the rate and are merged.",
                section="Training",
            ),
            *optimization_options(
                epochs=3,
                patience=2,
                unkept="in a row that are not kept",
                learning_rate=learning_rate,
                of="the transformer after the warm-up",
                decay="Weight decay of matrices.",
            ),
            option(
                "--tolerance",
                type=click.FloatRange(min=0),
                default=tolerance,
                metavar="SCORE" if score != "AP" else "AP",
                help=f"Keep the last epoch whose dev {score} (0 to 1) is at most this much below "
                "the best before it.",
                section="Training",
            ),
            option(
                "--head-learning-rate",
                type=click.FloatRange(min=0, min_open=True),
                default=1e-3,
                metavar="RATE",
                help=f"Learning rate of {head}.",
                section=RARE,
            ),
            option(
                "--warmup",
                type=click.FloatRange(0, 1),
                default=0.1,
                metavar="SHARE",
                help="Share of the steps during which the learning rates rise.",
                section=RARE,
            ),
            option(
                "--clip",
                type=click.FloatRange(min=0, min_open=True),
                default=1.0,
                metavar="NORM",
                help="Norm that gradients are clipped to.",
                section=RARE,
            ),
            option(
                "--averaging",
                type=click.FloatRange(0, 1, max_open=True),
                default=0.95,
                metavar="DECAY",
                help="Decay of the moving average of the weights, which is kept; 0 keeps the last "
                "weights.",
                section=RARE,
            ),
            option(
                "--train-word-embeddings",
                is_flag=True,
                help=f"Train the word embeddings too{words}.",
                section=RARE,
            ),
            option(
                "--precision",
                type=click.Choice(["auto", "float32", "bfloat16"]),
                default="auto",
                help="Number format of products in training; auto is bfloat16 where the processor "
                "is faster with it.",
                section=RARE,
            ),
            seed_option(seed),
        ],
    )
