"""How a cross-encoder is fine-tuned."""

from __future__ import annotations

from dataclasses import dataclass, field

from retriever.training.sampling import SamplingSettings
from retriever.training.settings import FineTuningSettings


@dataclass(frozen=True, slots=True)
class CrossTrainingSettings(FineTuningSettings):
    """How a cross-encoder is fine-tuned.

    As in the paper, all weights are trained but the word embeddings; the moving average of the
    weights is not in the paper.

    Attributes:
        margin: of the hinge loss, 0 or more; the paper's is 0, for which a constant scorer has no
            loss.
        sampling: pairs of a question, questions of a step.

    Raises:
        ConfigError: a value that is out of range.
    """

    margin: float = 1.0
    sampling: SamplingSettings = field(
        default_factory=lambda: SamplingSettings(count=12, positives=3, questions=8)
    )

    def __post_init__(self) -> None:
        # Not super(): a class with slots is another one than the one that is defined here.
        FineTuningSettings.__post_init__(self)
        self._require("margin", 0.0)
        self.sampling.require_triples()
