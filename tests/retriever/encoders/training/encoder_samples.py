"""Small encoders to train, and examples that they learn in seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from retriever.encoders.training import (
    Examples,
    LabeledExamples,
    ScoredExamples,
    TrainableEncoder,
    paired_texts,
    train_encoder,
)
from retriever.training import Checkpoint, EncoderTrainingSettings, Epoch, SamplingSettings

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
    sampling=SamplingSettings(count=1, positives=1, batch=4),
)


def settings(**changed: Any) -> EncoderTrainingSettings:
    return replace(SETTINGS, **changed)


def gap(encoder: TrainableEncoder) -> float:
    """How much nearer positives are than negatives, in cosine."""
    u, v, w = (encoder.encode(texts) for texts in (ANCHORS, POSITIVES, NEGATIVES))
    return float(((u * v).sum(axis=1) - (u * w).sum(axis=1)).mean())


def train(
    folder: Path | str,
    examples: Examples = RANKED,
    asked: EncoderTrainingSettings = SETTINGS,
    dev: Any = gap,
    checkpoint: Path | None = None,
    **watch: Any,
) -> tuple[TrainableEncoder, tuple[Epoch, ...]]:
    """Train, with a checkpoint after each step if its folder is given; the encoder, the curve."""
    encoder = TrainableEncoder.load(str(folder), device="cpu")
    saved = checkpoint and Checkpoint(checkpoint, {"data": "made up"}, seconds=0)
    return encoder, train_encoder(encoder, examples, asked, dev, checkpoint=saved, **watch)
