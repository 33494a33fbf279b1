"""Encoders that share a model and its forward passes."""

from __future__ import annotations

from collections.abc import Sequence

from retriever.encoders.encoder import Encoder
from retriever.encoders.loading import load_model
from retriever.encoders.settings import parse_encoder
from retriever.encoders.transformer.shared import sharing


def load_encoders(
    forms: Sequence[str], *, device: str | None = None, download: bool = False
) -> list[Encoder]:
    """Load encoders; those with the same weights and number format share a `SharedBackbone`.

    Args:
        forms: text forms, see `retriever.encoders.settings`.
        device: a torch device; None takes a GPU if there is one.
        download: download models that are not in the local hub cache.

    Returns:
        One encoder for each form, in the same order.

    Raises:
        What `Encoder.load` raises.
    """
    backbone_of = sharing()
    return [
        Encoder(
            *load_model(
                parse_encoder(form), device=device, download=download, backbone_of=backbone_of
            )
        )
        for form in forms
    ]
