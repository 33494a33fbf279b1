"""How an encoder is fine-tuned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from retriever.errors import ConfigError
from retriever.training.loop import FineTuningSettings
from retriever.training.sampling import SamplingSettings

Objective = Literal["nli", "sts", "mnr", "hinge"]
SHORTEST_TEXT = 8


@dataclass(frozen=True, slots=True)
class EncoderTrainingSettings(FineTuningSettings):
    """How an encoder is fine-tuned.

    The untrained encoder counts as epoch 0: what is kept is never worse on dev.

    Attributes:
        objective: ``nli``, ``sts``, ``mnr`` or ``hinge``; see
            `retriever.encoders.training.objectives`.
        scale: of the cosines in ``mnr``, more than 0.
        margin: of ``hinge``, in units of the cosine; more than 0.
        max_length: the window in word pieces in training, unless the encoder's own is shorter; the
            encoder that is saved keeps its own.
        sampling: negatives of a question and questions of a step; with ``nli`` and ``sts``, whose
            pairs are given, only the pairs of a step count.

    Raises:
        ConfigError: a value that is out of range.
    """

    learning_rate: float = 5e-5
    epochs: int = 3
    tolerance: float = 0.0
    objective: Objective = "mnr"
    scale: float = 20.0
    margin: float = 0.2
    max_length: int = 128
    sampling: SamplingSettings = field(
        default_factory=lambda: SamplingSettings(count=4, positives=1, questions=32)
    )

    def __post_init__(self) -> None:
        # Not super(): a class with slots is another one than the one that is defined here.
        FineTuningSettings.__post_init__(self)
        if self.objective not in get_args(Objective):
            raise ConfigError(
                f"objective: expected {', '.join(get_args(Objective))}, found {self.objective!r}"
            )
        for name in ("scale", "margin"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: expected more than 0, found {getattr(self, name):g}")
        self._require("max_length", SHORTEST_TEXT)
        if self.objective == "hinge":
            self.sampling.require_triples()
