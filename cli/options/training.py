"""How models are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.declaring import RARE, Decorator, option, settings
from cli.options.evaluation import seed_option

if TYPE_CHECKING:
    from eval import CrossPlan, HeadPlan
    from retriever.rerankers.settings import Loss
    from retriever.training.sampling import SamplingSettings


def loss_option(default: str | None, what: str = "Loss") -> Decorator:
    """--loss.

    Args:
        default: None for an option that takes the training's own.
        what: what it is the loss of.
    """
    return option(
        "--loss",
        type=click.Choice(["hinge", "softmax", "pointwise"]),
        default=default,
        shown_default="hinge" if default is None else None,
        help=f"{what}: hinge compares two passages, softmax a relevant passage with all negatives; "
        "pointwise takes each passage by itself, and questions without a relevant one too.",
        section="Training",
    )


def layer_decay_option(default: float | None) -> Decorator:
    """--layer-decay; the argument is of `loss_option`."""
    return option(
        "--layer-decay",
        type=click.FloatRange(0, 1, min_open=True),
        default=default,
        shown_default="1" if default is None else None,
        metavar="FACTOR",
        help="Factor of a cross-encoder's learning rate from each layer to the one below it.",
        section=RARE,
    )


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Which triples a reranker is trained on."""

    negatives: Literal["pool", "random", "hard", "batch"]
    count: int | None
    positives: int | None
    batch: int
    margin: float

    def settings(self) -> SamplingSettings:
        """The same for a training, but for the margin.

        Raises:
            ConfigError: random negatives without a number of them.
        """
        from retriever.training.sampling import SamplingSettings

        return SamplingSettings(
            negatives=self.negatives,
            count=self.count,
            positives=self.positives,
            questions=self.batch,
        )


_NEGATIVES = (
    "Source of negatives: pool (the question's candidates), random (all passages) or hard (those "
    "that BM25 ranks highest)"
)
_BATCH = "; batch: only passages of the other questions of a step"
_MARGIN = "Margin of the hinge loss. The paper's is 0, for which a constant scorer has no loss."


def sampling_options(
    count: int | None,
    positives: int | None,
    questions: int,
    margin: float = 1.0,
    *,
    in_batch: bool = False,
) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `sampling: SamplingOptions`; the arguments are defaults.

    Args:
        count: number of negatives, None for all.
        positives: maximum number of positives, None for all.
        questions: in a step.
        margin: of the hinge loss.
        in_batch: whether a loss may take the passages of other questions alone.
    """
    sources = ["pool", "random", "hard", *(["batch"] if in_batch else [])]
    return settings(
        "sampling",
        SamplingOptions,
        [
            option(
                "--negatives",
                type=click.Choice(sources),
                default="pool",
                help=f"{_NEGATIVES}{_BATCH * in_batch}.",
                section="Training",
            ),
            option(
                "--count",
                type=click.IntRange(min=1),
                default=count,
                shown_default="all" if count is None else None,
                metavar="N",
                help="Number of negatives per question and epoch.",
                section="Training",
            ),
            option(
                "--positives",
                type=click.IntRange(min=1),
                default=positives,
                shown_default="all" if positives is None else None,
                metavar="N",
                help="Maximum number of positives per question and epoch.",
                section=RARE,
            ),
            option(
                "--batch",
                type=click.IntRange(min=1),
                default=questions,
                metavar="N",
                help="Number of questions per step.",
                section=RARE,
            ),
            option(
                "--margin",
                type=click.FloatRange(min=0),
                default=margin,
                metavar="M",
                help=_MARGIN if margin == 1 else "Margin of the hinge loss, in cosine.",
                section=RARE,
            ),
        ],
    )


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
        from retriever.training.loop import Trained

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


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Settings of `train reranker` and `train cross-encoder`; None if not given."""

    negatives: Literal["pool", "random", "hard"] | None
    count: int | None
    margin: float | None
    loss: Loss | None
    layer_decay: float | None
    initial: Literal["cosine", "random"] | None
    epochs: int | None
    cross_epochs: int | None

    def head(self, *, trained: bool) -> HeadPlan:
        """How heads are trained; the default if none is.

        Raises:
            ConfigError: random negatives without a number of them.
        """
        from eval import HeadPlan

        plan = HeadPlan()
        if not trained:
            return plan
        return replace(
            plan,
            head=replace(plan.head, **_given(initial=self.initial)),
            training=self._changed(plan.training, self.epochs),
        )

    def cross(self) -> CrossPlan:
        """How cross-encoders are fine-tuned.

        Raises:
            ConfigError: random negatives without a number of them, or a margin with another loss
                than the hinge.
        """
        from eval import CrossPlan

        plan = CrossPlan()
        own = _given(loss=self.loss, layer_decay=self.layer_decay)
        return replace(plan, training=self._changed(plan.training, self.cross_epochs, **own))

    def _changed(self, training: Any, epochs: int | None, **own: Any) -> Any:
        sampling = replace(training.sampling, **_given(negatives=self.negatives, count=self.count))
        shared = _given(margin=self.margin, epochs=epochs)
        return replace(training, sampling=sampling, **shared, **own)


def _given(**asked: Any) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}


# The command takes `training: TrainingOptions`.
training_options: Callable[[Any], Callable[..., Any]] = settings(
    "training",
    TrainingOptions,
    [
        option(
            "--negatives",
            type=click.Choice(["pool", "random", "hard"]),
            help="Source of negatives: the question's pool, all passages (with --count), or those "
            "that BM25 ranks highest.",
            shown_default="pool",
            section="Training",
        ),
        option(
            "--count",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of negatives per question and epoch.",
            shown_default="all; 12 for cross-encoders",
            section="Training",
        ),
        option(
            "--margin",
            type=click.FloatRange(min=0),
            metavar="M",
            help="Margin of the hinge loss.",
            shown_default="1",
            section="Training",
        ),
        loss_option(None, "Loss of cross-encoders that name none"),
        layer_decay_option(None),
        option(
            "--initial",
            type=click.Choice(["cosine", "random"]),
            help="Initial weights of heads that name none: those that score as the cosine, where "
            "the head can, or random ones.",
            shown_default="cosine",
            section="Training",
        ),
        option(
            "--epochs",
            type=click.IntRange(min=1),
            metavar="N",
            help="Maximum number of epochs of each head.",
            shown_default="50",
            section="Training",
        ),
        option(
            "--cross-epochs",
            type=click.IntRange(min=1),
            metavar="N",
            help="Maximum number of epochs of each cross-encoder.",
            shown_default="3",
            section="Training",
        ),
    ],
)
