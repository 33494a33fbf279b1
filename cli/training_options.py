"""How transformers and heads are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cli.options import option, settings
from retriever.training.settings import (
    CrossTrainingSettings,
    EncoderTrainingSettings,
    SamplingSettings,
)

restart_option = option(
    "--restart",
    is_flag=True,
    help="Start over instead of resuming from a checkpoint, and replace the result of another "
    "training.",
    section="Training",
)


def sampling_options(defaults: SamplingSettings) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `sampling: SamplingSettings`, with these defaults."""
    given = {name: value for name, value in asdict(defaults).items() if value is not None}
    return settings("sampling", SamplingSettings, "negatives count", defaults=given)


def fine_tuning_options(
    kind: type[CrossTrainingSettings] | type[EncoderTrainingSettings], shown: str
) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `training` of this kind; `shown` is its first option."""
    return settings(
        "training",
        kind,
        f"{shown} train epochs seed",
        metavars={"train": "full|last:N|lora:RANK"},
    )
