"""What a head on frozen vectors computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retriever.errors import ConfigError

Interaction = Literal["bilinear", "concat", "uv"]

# What a head reads of a pair, by interaction.
PARTS = {"bilinear": ("product",), "concat": ("u", "v"), "uv": ("u", "v", "product", "distance")}


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """What a head computes.

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
