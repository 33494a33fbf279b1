"""Encoders that share a model and its forward passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from retriever.encoders.encoder import Encoder
from retriever.encoders.loading import load_model
from retriever.encoders.models import ModelFolder
from retriever.encoders.settings import Dtype, parse_encoder
from retriever.encoders.transformer.backbone import Backbone, Batch
from retriever.encoders.transformer.layer_hooks import Visit

if TYPE_CHECKING:
    import torch


class SharedBackbone(Backbone):
    """A backbone that keeps the word pieces and hidden states of its last batch.

    Encoders that get the same batch one after the other cost one forward pass. The states of all
    layers of one batch are in memory.
    """

    def __init__(self, folder: ModelFolder, device: str | None, dtype: Dtype) -> None:
        super().__init__(folder, device, dtype)
        self._ids: list[list[int]] = []
        self._batch: Batch | None = None
        self._states: dict[int, torch.Tensor] = {}
        self._asked: tuple[list[str], int | None] = ([], None)
        self._found: list[list[int]] = []

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """See `Backbone`; the texts of the last call are not tokenized again."""
        asked = (list(texts), max_length)
        if asked != self._asked:
            self._asked, self._found = asked, super().tokenize(texts, max_length)
        return list(self._found)

    def batch(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] = ()) -> Batch:
        """See `Backbone`; returns the last batch if the word pieces are the same."""
        if types:
            return super().batch(ids, types)
        rows = [list(row) for row in ids]
        if self._batch is None or rows != self._ids:
            self._states = {}
            self._ids, self._batch = rows, super().batch(rows)
        return self._batch

    def run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        """See `Backbone`; the states of the last batch are computed only once."""
        if batch is not self._batch:
            super().run(batch, layers, visit)
            return
        if not self._states:
            states: dict[int, torch.Tensor] = {}
            super().run(batch, range(self.depth + 1), states.__setitem__)
            self._states = states
        for layer in sorted(layers):
            visit(layer, self._states[layer])


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
    backbones: dict[tuple[str, Dtype], SharedBackbone] = {}

    def backbone_of(folder: ModelFolder, device: str | None, dtype: Dtype) -> SharedBackbone:
        key = (folder.weights, dtype)
        if key not in backbones:
            backbones[key] = SharedBackbone(folder, device, dtype)
        return backbones[key]

    return [
        Encoder(
            *load_model(
                parse_encoder(form), device=device, download=download, backbone_of=backbone_of
            )
        )
        for form in forms
    ]
