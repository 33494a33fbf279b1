"""Small encoders to train, examples that they learn in seconds, and trainings that are killed.

Run as ``encoder_samples.py MODEL CHECKPOINT``: trains with a checkpoint after each step, and writes
a line to stdout after each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retriever.encoders.training.model import TrainableEncoder
from retriever.encoders.training.trainer import (
    EncoderTrainingSettings,
    Examples,
    LabeledExamples,
    ScoredExamples,
    paired_texts,
    train_encoder,
)
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import Epoch, Step
from retriever.training.sampling import SamplingSettings

# An anchor belongs to the passage with the number ten higher.
ANCHORS = [f"w{number} w{number + 1}" for number in range(10)]
POSITIVES = [f"w{number + 10} w{number + 11} w30" for number in range(10)]
NEGATIVES = [*POSITIVES[1:], POSITIVES[0]]
RANKED = paired_texts(ANCHORS, POSITIVES, NEGATIVES)
SCORED = ScoredExamples.of(
    [*ANCHORS, *ANCHORS], [*POSITIVES, *NEGATIVES], np.repeat([5.0, 1.0], 10)
)
LABELED = LabeledExamples.of(
    [*ANCHORS, *ANCHORS], [*POSITIVES, *NEGATIVES], ["yes"] * 10 + ["no"] * 10
)
SETTINGS = EncoderTrainingSettings(
    epochs=3,
    precision="float32",
    learning_rate=2e-3,
    averaging=0.5,
    patience=3,
    sampling=SamplingSettings(count=1, positives=1, questions=4),
)
STEPS = 9


def settings(**changed: Any) -> EncoderTrainingSettings:
    from dataclasses import replace

    return replace(SETTINGS, **changed)


def gap(encoder: TrainableEncoder) -> float:
    """How much nearer positives are than negatives, in cosine."""
    u, v, w = (encoder.encode(texts) for texts in (ANCHORS, POSITIVES, NEGATIVES))
    return float(((u * v).sum(axis=1) - (u * w).sum(axis=1)).mean())


def weights(encoder: TrainableEncoder) -> dict[str, torch.Tensor]:
    """Copies of all parameters by name."""
    named = encoder.backbone.model.named_parameters()
    return {name: one.detach().clone() for name, one in named}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether all parameters are equal, to the bit."""
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


@dataclass
class Training:
    """A training that can be stopped.

    Attributes:
        folder: of the model.
        checkpoint: folder of the checkpoint, written after each step; None for none.
        examples: what it is trained on.
        settings: how.
    """

    folder: Path
    checkpoint: Path | None = None
    examples: Examples = RANKED
    settings: EncoderTrainingSettings = SETTINGS

    def __call__(self, dev: Any = gap, **watch: Any) -> tuple[TrainableEncoder, tuple[Epoch, ...]]:
        """Train from where the checkpoint is; the encoder, and the curve."""
        encoder = TrainableEncoder.load(str(self.folder), device="cpu")
        saved = None
        if self.checkpoint is not None:
            saved = Checkpoint(self.checkpoint, {"data": "made up"}, seconds=0)
        curve = train_encoder(encoder, self.examples, self.settings, dev, checkpoint=saved, **watch)
        return encoder, curve


def _tell(step: Step) -> None:
    print(step.number, flush=True)  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)
    Training(Path(sys.argv[1]), Path(sys.argv[2]))(on_step=_tell)
