"""Encoders that share a model and its forward passes."""

from __future__ import annotations

from collections.abc import Sequence

from retriever.encoders.encoder import Encoder
from retriever.encoders.loading.load import load_model
from retriever.encoders.settings import parse_encoder
from retriever.encoders.transformer.shared import sharing


def load_encoders(
    forms: Sequence[str], *, device: str | None = None, download: bool = False
) -> list[Encoder]:
    """Load encoders; those with the same weights and number format share a `SharedBackbone`.

    They run in torch, unless they name another backend or a number format that torch lacks.

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

    def load(form: str) -> Encoder:
        asked = parse_encoder(form)
        if asked.backend in ("openvino", "numpy") or asked.dtype == "int8":
            return Encoder.load(asked, device=device, download=download)
        return Encoder(
            *load_model(asked, device=device, download=download, backbone_of=backbone_of)
        )

    return [load(form) for form in forms]
