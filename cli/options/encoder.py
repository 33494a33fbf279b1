"""From the encoder options of a command to the encoder that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retriever.encoders.choice import ModelChoice


def model_choice(options: Mapping[str, Any]) -> ModelChoice:
    """Read what `model_options` added to a command; other keywords are left alone.

    Raises:
        ConfigError: an option is impossible, or contradicts the text form in --model.
    """
    from retriever.encoders.choice import ModelChoice
    from retriever.encoders.settings import EncoderSettings, parse_encoder

    names = {field.name for field in fields(EncoderSettings)} - {"model"}
    asked = {name: options[name] for name in names & options.keys()}
    settings = parse_encoder(options["model"] or "", options["preset"], **asked)
    return ModelChoice(str(settings), options["device"], options["download"])
