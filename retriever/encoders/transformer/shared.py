"""A model whose forward pass serves several encoders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from retriever.encoders.models.finding import ModelFolder
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.backbone import Backbone, Batch
from retriever.encoders.transformer.layer_hooks import Visit

if TYPE_CHECKING:
    import torch


class SharedBackbone(Backbone):
    """A backbone that keeps the word pieces and hidden states of its last batch.

    Encoders that get the same batch one after the other cost one forward pass. The wanted states
    of one batch are in memory.

    Args:
        folder, device, dtype: as of `Backbone`.
        wanted: the hidden states that the first of its encoders has computed for the others; None
            stands for all of them.
    """

    def __init__(
        self,
        folder: ModelFolder,
        device: str | None = None,
        dtype: Dtype = "float32",
        wanted: Collection[int] | None = None,
    ) -> None:
        super().__init__(folder, device, dtype)
        self._wanted = set(range(self.depth + 1) if wanted is None else wanted)
        self._ids: list[list[int]] = []
        self._batch: Batch | None = None
        self._states: dict[int, torch.Tensor] = {}
        self._asked: tuple[list[str], int | None] = ([], None)
        self._found: list[list[int]] = []

    def want(self, layers: Collection[int]) -> None:
        """Compute these hidden states too from the next batch on."""
        self._wanted |= set(layers)

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
        if not self._states.keys() >= set(layers):
            states: dict[int, torch.Tensor] = {}
            super().run(batch, self._wanted | set(layers), states.__setitem__)
            self._states = states
        for layer in sorted(set(layers)):
            visit(layer, self._states[layer])


def sharing(
    wanted: Collection[int] | None = None,
) -> Callable[[ModelFolder, str | None, Dtype], SharedBackbone]:
    """A maker of backbones that gives the same one for the same weights and number format.

    Args:
        wanted: see `SharedBackbone`.
    """
    backbones: dict[tuple[str, Dtype], SharedBackbone] = {}

    def backbone_of(folder: ModelFolder, device: str | None, dtype: Dtype) -> SharedBackbone:
        key = (folder.weights, dtype)
        if key not in backbones:
            backbones[key] = SharedBackbone(folder, device, dtype, wanted)
        return backbones[key]

    return backbone_of
