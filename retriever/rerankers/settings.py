"""What rerankers compute and how they are trained."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from retriever.errors import ConfigError
from retriever.training.loop import FineTuningSettings
from retriever.training.sampling import SamplingSettings

Interaction = Literal["bilinear", "concat", "uv"]
Loss = Literal["hinge", "softmax", "pointwise"]

# What a head reads of a pair, by interaction.
PARTS = {"bilinear": ("product",), "concat": ("u", "v"), "uv": ("u", "v", "product", "distance")}


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """What a head on frozen vectors computes.

    Attributes:
        interaction: ``bilinear`` is (uᵀM) * v, elementwise; ``concat`` is [u; v]; ``uv`` is
            [u; v; u * v; |u - v|].
        head: ``linear`` is a weight for each component and a bias; of ``bilinear`` it is the sum of
            the components, uᵀM v, for M would absorb weights. ``mlp`` is a hidden layer with ReLU
            and dropout, then a weight for each hidden unit and a bias.
        hidden: units of the hidden layer; 2 or more.
        dropout: share of the hidden units that are left out in training; below 1.
        initial: ``cosine`` scores as the dot product of u and v before any training, which is the
            cosine of vectors of length 1: M is the identity, the linear head weighs u * v by 1
            and the rest by 0, and of the MLP two units hold the positive and the negative part of
            that sum while the others do not reach the score yet. A head that starts there and keeps
            its best epoch on a dev set never ends below the cosine on it. ``concat`` cannot
            express a product and starts as with ``random``, PyTorch's default for linear layers.

    Raises:
        ConfigError: a value that is out of range.
    """

    interaction: Interaction = "bilinear"
    head: Literal["linear", "mlp"] = "linear"
    hidden: int = 256
    dropout: float = 0.1
    initial: Literal["cosine", "random"] = "cosine"

    def __post_init__(self) -> None:
        for name, choices in (
            ("interaction", tuple(PARTS)),
            ("head", ("linear", "mlp")),
            ("initial", ("cosine", "random")),
        ):
            value = getattr(self, name)
            if value not in choices:
                expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
                raise ConfigError(f"{name}: expected {expected}, found {value!r}")
        if self.hidden < 2:
            raise ConfigError(f"hidden: expected 2 or more, found {self.hidden}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: expected 0 or more and below 1, found {self.dropout:g}")

    @property
    def starts_as_cosine(self) -> bool:
        """Whether the head scores as the cosine before training."""
        return self.initial == "cosine" and self.interaction != "concat"


@dataclass(frozen=True, slots=True)
class HeadTrainingSettings:
    """How a head is trained.

    The loss of a triple is max(0, margin - S(q, a+) + S(q, a-)).

    Attributes:
        margin: 0 or more; the paper's is 0, for which a constant scorer has no loss. Scores start
            as cosines, which are rarely 1 apart: with a margin of 1 nearly all triples count at
            first, with one of 0.2 those alone that are out of order or nearly so. A scale on the
            scores would do nothing that the margin does not: Adam's steps do not depend on it.
        optimizer: ``adam`` or ``sgd`` (momentum 0.9).
        learning_rate: of either, constant.
        weight_decay: how strongly weights are drawn to where they started, times the learning rate
            at each step; to 0 where they started at random. Decoupled from the gradient as in AdamW
            (Loshchilov and Hutter 2019), towards the start as in L2-SP (Li et al. 2018).
        epochs: at most.
        patience: epochs without a better dev score after which training stops.
        seed: of the first weights, dropout and the order of questions.
        sampling: pairs of a question, questions of a step.

    Raises:
        ConfigError: a value that is out of range.
    """

    margin: float = 1.0
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    epochs: int = 50
    patience: int = 5
    seed: int = 0
    sampling: SamplingSettings = field(default_factory=SamplingSettings)

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "sgd"):
            raise ConfigError(f"optimizer: expected adam or sgd, found {self.optimizer!r}")
        for low, names in (
            (0, ("margin", "learning_rate", "weight_decay", "seed")),
            (1, ("epochs", "patience")),
        ):
            for name in names:
                value = getattr(self, name)
                if not low <= value < math.inf:
                    raise ConfigError(f"{name}: expected {low} or more, found {value:g}")
        self.sampling.require_triples()


@dataclass(frozen=True, slots=True)
class CrossTrainingSettings(FineTuningSettings):
    """How a cross-encoder is fine-tuned.

    As in the paper, all weights are trained but the word embeddings, unless `trained` says
    otherwise; the moving average of the weights is not in the paper.

    Attributes:
        loss: a function of `retriever.rerankers.cross_training`; the paper's is ``hinge``.
            ``pointwise`` uses questions without a relevant passage too.
        margin: of the hinge loss, 0 or more; the paper's is 0, for which a constant scorer has no
            loss.
        layer_decay: factor in (0, 1] of the learning rate from each layer of the transformer to the
            one below it; 1 gives all the same rate.
        sampling: pairs of a question, questions of a step.

    Raises:
        ConfigError: a value that is out of range, or a margin that the loss does not use.
    """

    loss: Loss = "hinge"
    margin: float = 1.0
    layer_decay: float = 1.0
    sampling: SamplingSettings = field(
        default_factory=lambda: SamplingSettings(count=12, positives=3, questions=8)
    )

    def __post_init__(self) -> None:
        # Not super(): a class with slots is another one than the one that is defined here.
        FineTuningSettings.__post_init__(self)
        if self.loss not in get_args(Loss):
            raise ConfigError(f"loss: expected hinge, softmax or pointwise, found {self.loss!r}")
        self._require("margin", 0.0)
        # A margin that is given its default cannot be told from one that is left out.
        if self.loss != "hinge" and self.margin != 1:
            raise ConfigError(
                f"margin: it belongs to the hinge loss, found loss {self.loss}; leave one of them "
                "out"
            )
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(
                f"layer_decay: expected more than 0 and at most 1, found {self.layer_decay:g}"
            )
        self.sampling.require_triples()

    @property
    def pointwise(self) -> bool:
        """Whether each passage is an example of its own."""
        return self.loss == "pointwise"
