"""How a cross-encoder is fine-tuned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from retriever.errors import ConfigError
from retriever.training.sampling import SamplingSettings
from retriever.training.settings import FineTuningSettings

Loss = Literal["hinge", "softmax", "pointwise"]


@dataclass(frozen=True, slots=True)
class CrossTrainingSettings(FineTuningSettings):
    """How a cross-encoder is fine-tuned.

    As in the paper, all weights are trained but the word embeddings, unless `trained` says
    otherwise; the moving average of the weights is not in the paper.

    Attributes:
        loss: see `retriever.rerankers.cross.losses`; the paper's is ``hinge``. ``pointwise`` uses
            questions without a relevant passage too.
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
