"""The encoder of a command that shows what SBERT-WK does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cli.options.encoder import model_choice

if TYPE_CHECKING:
    from retriever.encoders.choice import ModelChoice


def wk_choice(options: Mapping[str, Any]) -> ModelChoice:
    """As `model_choice`; where no fusion is named, SBERT-WK.

    Raises:
        ConfigError: another fusion is named, or what `model_choice` raises.
    """
    from retriever.errors import ConfigError

    _, *settings = (options["model"] or "").split("::")
    named = [one for one in settings if one.startswith("fusion=") or "=" not in one]
    if not named and options["preset"] is None and options["fusion"] is None:
        options = {**options, "fusion": "sbert-wk"}
    choice = model_choice(options)
    if choice.settings.fusion != "sbert-wk":
        raise ConfigError(
            f"fusion: expected sbert-wk, which this command shows, found {choice.settings.fusion}; "
            "leave it and the preset out"
        )
    return choice
