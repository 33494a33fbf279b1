"""Options that several commands of `retriever train` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cli.options import Settings, option
from retriever.training import CrossTrainingSettings, EncoderTrainingSettings, SamplingSettings

restart_option = option(
    "--restart",
    is_flag=True,
    help="Start over instead of resuming from a checkpoint; replace the result of another "
    "training.",
    section="Training",
)


def sampling_options(defaults: SamplingSettings) -> Callable[[Any], Callable[..., Any]]:
    """Return options of sampling; the command takes `sampling: SamplingSettings`."""
    values = {name: value for name, value in asdict(defaults).items() if value is not None}
    return Settings("sampling", SamplingSettings, "negatives", defaults=values)


def fine_tuning_options(
    kind: type[CrossTrainingSettings] | type[EncoderTrainingSettings], first: str = ""
) -> Callable[[Any], Callable[..., Any]]:
    """Return options of fine-tuning; the command takes `training` of this kind.

    `first` are settings whose options stand before the others.
    """
    return Settings("training", kind, f"{first} train epochs", metavars={"train": "full|last:N"})
