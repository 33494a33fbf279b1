"""Which triples a reranker or an encoder is trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.declaring import RARE, option, settings

if TYPE_CHECKING:
    from retriever.training.sampling import SamplingSettings


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
