"""Encoders of the same weights that share a backbone, and with it its forward passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from retriever.encoders.transformer.backbone import Backbone, Batch, Visit
from retriever.encoders.transformer.light_backbone import LightBackbone

if TYPE_CHECKING:
    import torch

    from retriever.encoders.model_folders import ModelFolder
    from retriever.encoders.settings import Dtype


class SharedBackbone(Backbone):
    """A backbone that caches the word pieces and hidden states of its last batch.

    Encoders that read the same batch one after the other share a forward pass.
    """

    def __init__(self, folder: ModelFolder, device: str | None, dtype: Dtype) -> None:
        super().__init__(folder, device, dtype)
        self._layers: set[int] = set()
        self._ids: list[list[int]] = []
        self._batch: Batch | None = None
        self._states: dict[int, torch.Tensor] = {}
        self._last_call: tuple[list[str], int | None] = ([], None)
        self._last_ids: list[list[int]] = []

    def register_layers(self, layers: Collection[int]) -> None:
        """Register hidden states to compute from the next batch on."""
        self._layers |= set(layers)

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Tokenize texts; return the last result for the same texts. See `Backbone`."""
        call = (list(texts), max_length)
        if call != self._last_call:
            self._last_call = call
            self._last_ids = super().tokenize(texts, max_length)
        return list(self._last_ids)

    def batch(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] = ()) -> Batch:
        """Pad word pieces; return the last batch for the same pieces. See `Backbone`."""
        if types:
            return super().batch(ids, types)
        rows = [list(row) for row in ids]
        if self._batch is None or rows != self._ids:
            self._states = {}
            self._ids = rows
            self._batch = super().batch(rows)
        return self._batch

    def run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        """Compute hidden states, but only once for the last batch. See `Backbone`."""
        if batch is not self._batch:
            super().run(batch, layers, visit)
            return
        if not self._states.keys() >= set(layers):
            states: dict[int, torch.Tensor] = {}
            super().run(batch, self._layers | set(layers), states.__setitem__)
            self._states = states
        for layer in sorted(set(layers)):
            visit(layer, self._states[layer])


class BackboneSharing:
    """The backbones of encoders that are loaded together, in torch and without it."""

    def __init__(self) -> None:
        # By the SHA-256 of the weights.
        self._light_backbones: dict[str, LightBackbone] = {}
        self._torch_backbones: dict[tuple[str, Dtype], SharedBackbone] = {}

    def light(self, folder: ModelFolder) -> LightBackbone:
        """Return the shared backbone of a model without torch, made on first use.

        Raises:
            UnsupportedModelError: only torch runs the model.
        """
        if folder.weights not in self._light_backbones:
            self._light_backbones[folder.weights] = LightBackbone(folder)
        return self._light_backbones[folder.weights]

    def in_torch(self, folder: ModelFolder, device: str | None, dtype: Dtype) -> SharedBackbone:
        """Return the shared backbone of a model in torch, made on first use."""
        key = (folder.weights, dtype)
        if key not in self._torch_backbones:
            self._torch_backbones[key] = SharedBackbone(folder, device, dtype)
        return self._torch_backbones[key]
