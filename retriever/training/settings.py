"""Settings of training, each declared once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from retriever.errors import ConfigError
from retriever.settings import Checked, check_settings, setting

NegativeSource = Literal["pool", "random", "hard", "batch"]
Objective = Literal["nli", "sts", "mnr", "hinge"]
Interaction = Literal["bilinear", "concat", "uv"]
Precision = Literal["auto", "float32", "bfloat16"]
# Parts of a pair that a head reads, by interaction.
PARTS = {"bilinear": ("product",), "concat": ("u", "v"), "uv": ("u", "v", "product", "distance")}
_MARGIN = (
    "Margin of the hinge loss. The paper's margin is 0, which gives a constant scorer no loss."
)


def trained_layers(train: str) -> int | None:
    """Return N of ``last:N``, or None for ``full``."""
    match = re.fullmatch(r"full|last:([1-9][0-9]{0,5})", train)
    if match is None:
        raise ConfigError(f"train: expected full or last:N, N at least 1, found {train[:40]!r}")
    return None if match[1] is None else int(match[1])


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """The pairs of a question in an epoch. Negatives are drawn from `JudgedPools`."""

    negatives: NegativeSource = setting(
        "pool",
        "Source of negatives: pool (candidates of the question), random (all passages) or hard "
        "(passages that BM25 ranks highest). For encoders also batch (passages of the other "
        "questions of a step).",
        section="Training",
    )
    count: int | None = setting(
        None,
        "Number of negatives per question and epoch.",
        low=1,
        default_text="all",
        section="Training",
    )
    positives: int | None = setting(
        None, "Maximum number of positives per question and epoch.", low=1, default_text="all"
    )
    batch: int = setting(32, "Number of questions per step.", low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.negatives == "random" and self.count is None:
            raise ConfigError(
                "count: random negatives need a number of them for each question; --set count=N"
            )

    def require_triples(self) -> None:
        """Raise ConfigError if questions get no negatives of their own for a pairwise loss."""
        if self.negatives == "batch":
            raise ConfigError(
                "negatives: a pairwise loss compares with negatives of the question itself; "
                "expected pool, random or hard, found 'batch'"
            )


@dataclass(frozen=True, slots=True)
class FineTuningSettings:
    """Settings of fine-tuning that cross-encoders and encoders share.

    Learning rates rise linearly during the warm-up and fall linearly over all steps. With a few
    hundred dev questions, two epochs may differ by more than the tolerance by chance. Earlier
    epochs have higher learning rates.
    """

    train: str = setting(
        "full",
        "Weights to train: all except the word embeddings, or the last N layers.",
        section="Training",
    )
    epochs: int = setting(3, "Maximum number of epochs.", low=1, section="Training")
    patience: int = setting(
        2,
        "Stop after this many epochs in a row without an epoch to keep.",
        low=1,
        section="Training",
    )
    tolerance: float = setting(
        0.02,
        "Keep the last epoch whose dev score (0 to 1) is at most this much below the best earlier "
        "epoch.",
        low=0,
    )
    learning_rate: float = setting(
        1e-4, "Learning rate of the transformer after the warm-up.", low=0
    )
    head_learning_rate: float = setting(
        1e-3, "Learning rate of the layers on top of the transformer.", low=0
    )
    weight_decay: float = setting(0.01, "Weight decay of matrices.", low=0)
    warmup: float = setting(0.1, "Share of the steps with rising learning rates.", low=0, high=1)
    clip: float = setting(1.0, "Maximum norm of gradients.", low=0, low_open=True)
    averaging: float = setting(
        0.95,
        "Decay of the moving average of the weights, which is the result; 0 keeps the last "
        "weights.",
        low=0,
        high=1,
        high_open=True,
    )
    train_word_embeddings: bool = setting(False, "Train the word embeddings too.")
    precision: Precision = setting(
        "auto",
        "Number format of products in training. auto is bfloat16 if the processor is faster with "
        "it.",
    )
    seed: int = setting(
        0,
        "Random seed of initial weights, dropout, samples and the order of examples.",
        low=0,
        section="Training",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        trained_layers(self.train)


@dataclass(frozen=True, slots=True)
class EncoderTrainingSettings(FineTuningSettings):
    """Settings of fine-tuning an encoder. The result is never worse on dev than the start."""

    tolerance: float = setting(
        0.0,
        "Keep the last epoch whose dev score is at most this much below the best earlier epoch.",
        low=0,
    )
    learning_rate: float = setting(
        5e-5, "Learning rate of the transformer after the warm-up.", low=0
    )
    objective: Objective | None = setting(
        None,
        "Loss: softmax over labels, squared error of the cosine, multiple negatives ranking, or "
        "pairwise hinge.",
        default_text="nli for labels, sts for scores, else mnr",
        section="Training",
    )
    scale: float = setting(
        20.0, "Factor of the cosines in the softmax of mnr.", low=0, low_open=True
    )
    max_length: int = setting(
        128, "Maximum number of tokens during training; the encoder keeps its own window.", low=8
    )
    margin: float = setting(0.2, "Margin of the hinge loss.", low=0, low_open=True)
    sampling: SamplingSettings = field(
        default_factory=lambda: SamplingSettings(count=4, positives=1)
    )

    def __post_init__(self) -> None:
        # Not super(), since slots replace the class defined here by another.
        FineTuningSettings.__post_init__(self)
        if self.objective == "hinge":
            self.sampling.require_triples()


@dataclass(frozen=True, slots=True)
class CrossTrainingSettings(FineTuningSettings):
    """Settings of fine-tuning a cross-encoder. The paper has no moving average of weights."""

    margin: float = setting(1.0, _MARGIN, low=0)
    sampling: SamplingSettings = field(
        default_factory=lambda: SamplingSettings(count=12, positives=3, batch=8)
    )

    def __post_init__(self) -> None:
        FineTuningSettings.__post_init__(self)
        self.sampling.require_triples()


@dataclass(frozen=True, slots=True)
class HeadSettings(Checked):
    """Settings of a head on frozen vectors u and v.

    ``bilinear`` is (uᵀM) * v, elementwise. ``concat`` is [u; v]. ``uv`` is [u; v; u * v; |u - v|].
    ``linear`` is a weight for each component and a bias. For ``bilinear`` it is the sum uᵀM v,
    since M would absorb weights. ``mlp`` is a hidden layer with ReLU and dropout, then a weight for
    each hidden unit and a bias.

    ``cosine`` starts with the dot product as score. M is the identity. The linear head weights
    u * v by 1 and the rest by 0. Two units of the MLP hold the positive and the negative part of
    the sum; the other units do not affect the score yet. ``concat`` cannot express a product and
    starts like ``random``, PyTorch's default for linear layers.
    """

    interaction: Interaction = setting("bilinear", "What is read of two vectors.")
    head: Literal["linear", "mlp"] = setting("linear", "What scores it.")
    hidden: int = setting(256, "Number of units in the hidden layer of an MLP.", low=2)
    dropout: float = setting(0.1, "Dropout of the hidden layer.", low=0, high=1, high_open=True)
    initial: Literal["cosine", "random"] = setting(
        "cosine",
        "Initial weights: weights that score as the cosine, if the head has them, or random "
        "weights.",
    )

    @property
    def starts_as_cosine(self) -> bool:
        """Whether the head scores like the cosine before training."""
        return self.initial == "cosine" and self.interaction != "concat"


@dataclass(frozen=True, slots=True)
class HeadTrainingSettings:
    """Settings of training a head.

    Scores start as cosines, which rarely differ by 1. With a margin of 1, nearly all triples count
    at first. Decay is decoupled from the gradient as in AdamW (Loshchilov and Hutter 2019). Weights
    decay towards their start as in L2-SP (Li et al. 2018), or to 0 after a random start.
    """

    epochs: int = setting(50, "Maximum number of epochs.", low=1, section="Training")
    patience: int = setting(5, "Stop after this many epochs without a better dev AP.", low=1)
    learning_rate: float = setting(1e-3, "Learning rate of Adam.", low=0)
    weight_decay: float = setting(
        0.01, "Strength of the pull of weights to their initial values.", low=0
    )
    margin: float = setting(1.0, _MARGIN, low=0)
    seed: int = setting(0, "Random seed of weights, dropout and the order of questions.", low=0)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)

    def __post_init__(self) -> None:
        check_settings(self)
        self.sampling.require_triples()
