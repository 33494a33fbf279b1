"""How `eval qa` trains its heads and cross-encoders; what is not given is the training's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.declaring import option, settings
from cli.options.training.cross_encoder import layer_decay_option, loss_option

if TYPE_CHECKING:
    from eval import CrossPlan, HeadPlan
    from retriever.rerankers.cross.settings import Loss


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
