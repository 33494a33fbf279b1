"""How transformers and heads are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from cli.options import option, settings
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever.training.sampling import SamplingSettings

restart_option = option(
    "--restart",
    is_flag=True,
    help="Start over instead of resuming from a checkpoint, and replace the result of another "
    "training.",
    section="Training",
)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Which triples a reranker or an encoder is trained on."""

    negatives: Literal["pool", "random", "hard", "batch"] = setting(
        "pool",
        "Source of negatives: pool (the question's candidates), random (all passages), hard (those "
        "that BM25 ranks highest) or, for encoders, batch (only passages of the other questions of "
        "a step).",
        section="Training",
    )
    count: int | None = setting(
        None, "Number of negatives per question and epoch.", low=1, shown="all", section="Training"
    )
    positives: int | None = setting(
        None, "Maximum number of positives per question and epoch.", low=1, shown="all"
    )
    batch: int = setting(32, "Number of questions per step.", low=1)
    margin: float = setting(
        1.0,
        "Margin of the hinge loss. The paper's is 0, for which a constant scorer has no loss.",
        low=0,
    )

    def settings(self) -> SamplingSettings:
        """The same for a training, but for the margin."""
        from retriever.training.sampling import SamplingSettings

        return SamplingSettings(
            negatives=self.negatives,
            count=self.count,
            positives=self.positives,
            questions=self.batch,
        )


def sampling_options(**defaults: Any) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `sampling: SamplingOptions`, with these defaults."""
    return settings("sampling", SamplingOptions, "negatives count", defaults=defaults)


@dataclass(frozen=True, slots=True)
class FineTuningOptions:
    """How a transformer is fine-tuned."""

    train: str = setting(
        "full",
        "Weights to train: all but the word embeddings, those of the last N layers, or low-rank "
        "adapters, which learn at ten times the rate and are merged.",
        section="Training",
    )
    epochs: int = setting(3, "Maximum number of epochs.", low=1, section="Training")
    patience: int = setting(
        2, "Stop after this many epochs in a row that are not kept.", low=1, section="Training"
    )
    tolerance: float = setting(
        0.02,
        "Keep the last epoch whose dev score (0 to 1) is at most this much below the best before "
        "it.",
        low=0,
    )
    learning_rate: float = setting(
        1e-4, "Learning rate of the transformer after the warm-up.", low=0, low_open=True
    )
    head_learning_rate: float = setting(
        1e-3, "Learning rate of the layers on top of the transformer.", low=0, low_open=True
    )
    weight_decay: float = setting(0.01, "Weight decay of matrices.", low=0)
    warmup: float = setting(
        0.1, "Share of the steps during which the learning rates rise.", low=0, high=1
    )
    clip: float = setting(1.0, "Norm that gradients are clipped to.", low=0, low_open=True)
    averaging: float = setting(
        0.95,
        "Decay of the moving average of the weights, which is kept; 0 keeps the last weights.",
        low=0,
        high=1,
        high_open=True,
    )
    train_word_embeddings: bool = setting(False, "Train the word embeddings too.")
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "auto",
        "Number format of products in training; auto is bfloat16 where the processor is faster "
        "with it.",
    )
    seed: int = setting(
        0,
        "Random seed of first weights, dropout, what is drawn and the order of examples.",
        low=0,
        section="Training",
    )

    def named(self) -> dict[str, Any]:
        """Arguments of settings that are a `FineTuningSettings`."""
        from retriever.training.loop import Trained

        others = asdict(self)
        trained = Trained.parse(others.pop("train"))
        return {**others, "trained": trained}


def fine_tuning_options(**defaults: Any) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `tuning: FineTuningOptions`, with these defaults."""
    return settings(
        "tuning",
        FineTuningOptions,
        "train epochs seed",
        metavars={"train": "full|last:N|lora:RANK"},
        defaults=defaults,
    )
