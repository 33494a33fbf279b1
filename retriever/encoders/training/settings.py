"""How an encoder is fine-tuned."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from retriever.errors import ConfigError
from retriever.training.sampling import SamplingSettings
from retriever.training.settings import FineTuningSettings

Objective = Literal["nli", "sts", "mnr", "hinge"]
TrainedPart = Literal["full", "last", "lora"]
SHORTEST_TEXT = 8


@dataclass(frozen=True, slots=True)
class Trained:
    """Which weights of a transformer are trained.

    Attributes:
        part: ``full`` is all that vectors depend on; ``last`` the last `size` transformer layers;
            ``lora`` low-rank adapters of rank `size` on the linear maps of every layer (Hu et al.
            2022), which are added to the weights when the encoder is saved.
        size: number of layers, or rank; 0 with ``full``.

    Raises:
        ConfigError: an unknown part, or a size below 1 for one that has a size.
    """

    part: TrainedPart = "full"
    size: int = 0

    def __post_init__(self) -> None:
        if self.part not in get_args(TrainedPart) or (self.size < 1) != (self.part == "full"):
            raise ConfigError(f"train: {_EXPECTED}, found {self}")

    @classmethod
    def parse(cls, text: str) -> Trained:
        """Read ``full``, ``last:N`` or ``lora:RANK``.

        Raises:
            ConfigError: it is none of them.
        """
        match = re.fullmatch(r"(full)|(last|lora):([0-9]{1,6})", text)
        if match is None:
            raise ConfigError(f"train: {_EXPECTED}, found {text[:40]!r}")
        if match[1]:
            return cls()
        return cls("last" if match[2] == "last" else "lora", int(match[3]))

    def __str__(self) -> str:
        return self.part if self.part == "full" else f"{self.part}:{self.size}"


_EXPECTED = "expected full, last:N or lora:RANK, N and RANK at least 1"


@dataclass(frozen=True, slots=True)
class EncoderTrainingSettings(FineTuningSettings):
    """How an encoder is fine-tuned.

    The untrained encoder counts as epoch 0: what is kept is never worse on dev.

    Attributes:
        objective: ``nli``, ``sts``, ``mnr`` or ``hinge``; see
            `retriever.encoders.training.objectives`.
        trained: which weights change.
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
    trained: Trained = field(default_factory=Trained)
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
