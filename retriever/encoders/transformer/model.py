"""A transformer in torch: backbone, fusion of layers, pooling of pieces, and head.

The mean of the layers may pass through the head that SimCSE trained (Hosseini et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import ACCELERATOR_PIECES
from retriever.encoders.fusion.pooling import POOLINGS, Fuser, PooledPieces
from retriever.encoders.model_folders import Floats, ModelFolder
from retriever.encoders.registry import Batches
from retriever.encoders.transformer.backbone import Backbone, Batch
from retriever.encoders.transformer.head_weights import read_projections
from retriever.encoders.transformer.piece_model import PieceModel

if TYPE_CHECKING:
    import torch

# Function of (texts, width) vectors, after pooling.
TorchLayer = Callable[["torch.Tensor"], "torch.Tensor"]


def _dense(weight: Floats, bias: Floats, activation: str, device: torch.device) -> TorchLayer:
    """Return a projection, in float32 for every number format of the backbone."""
    import torch

    matrix, shift = (torch.from_numpy(array).to(device) for array in (weight, bias))
    function = getattr(torch.nn, activation)()
    return lambda vectors: function(torch.nn.functional.linear(vectors, matrix, shift))


class TransformerModel(PieceModel):
    """A transformer in torch.

    A single batch of hidden states is in memory at a time. Except for SBERT-WK, each layer is
    pooled as soon as it is computed.
    """

    runs_in_torch = True

    def __init__(self, backbone: Backbone, folder: ModelFolder, fuser: Fuser) -> None:
        settings = fuser.settings
        self._tokenizer = self.backbone = backbone
        self.max_length = backbone.max_length
        self.computed = {(settings.number_format, "torch")}
        self._settings = settings
        self._fuser = fuser
        backbone.special.require(settings.pooling)
        self._head: list[TorchLayer] = []
        self.dimensions = fuser.width(backbone.width)
        if settings.head and folder.settings.projections:
            for weight, bias, activation in read_projections(folder, self.dimensions):
                self._head.append(_dense(weight, bias, activation, backbone.device))
                self.dimensions = len(weight)
        elif settings.head:
            backbone.require_pooler()
            self._head.append(backbone.pooler)
        if str(backbone.device) != "cpu":
            self.batch_pieces = ACCELERATOR_PIECES
        backbone.register_layers(fuser.layers)

    def in_torch(self) -> TransformerModel:
        """Return the model itself."""
        return self

    @property
    def depth(self) -> int:
        """Number L of layers; hidden states are 0 (embeddings) to L."""
        self.backbone.require_layers()
        return self.backbone.depth

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return (texts, dimensions) vectors of word-piece ids, not normalized."""
        import torch

        with torch.inference_mode():
            result: NDArray[np.float32] = self.forward(pieces).cpu().numpy()
        return result

    def forward(self, pieces: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return vectors like `embed`, on the backbone's device, with gradients if needed."""
        batch = self.backbone.batch(pieces)
        pieces_mask = self._pooled_pieces(batch)
        fuser = self._fuser
        pool = POOLINGS[self._settings.pooling or "mean"]
        states: dict[int, torch.Tensor] = {}

        def visit(layer: int, state: torch.Tensor) -> None:
            states[layer] = state if fuser.sbert_wk else pool(state, pieces_mask)

        self.backbone.run(batch, fuser.layers, visit)
        if fuser.sbert_wk:
            return self._apply_head(fuser.vectors(list(states.values()), pieces_mask))
        return self._apply_head(fuser.fuse(states))

    def _apply_head(self, vectors: torch.Tensor) -> torch.Tensor:
        for layer in self._head:
            vectors = layer(vectors)
        return vectors

    def piece_batches(self, pieces: Sequence[Sequence[int]]) -> Batches:
        """Yield the fused vector of every piece, in one batch."""
        import torch

        states: dict[int, torch.Tensor] = {}
        with torch.inference_mode():
            batch = self.backbone.batch(pieces)
            self.backbone.run(batch, self._fuser.layers, states.__setitem__)
            fused = self._fuser.fuse({layer: state.float() for layer, state in states.items()})
            yield np.arange(len(pieces)), fused.cpu().numpy()

    def project(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the head, if there is one, to (texts, width) vectors."""
        import torch

        with torch.inference_mode():
            projected = self._apply_head(torch.from_numpy(vectors).to(self.backbone.device))
            result: NDArray[np.float32] = projected.cpu().numpy()
        return result

    def all_states(self, pieces: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """Return for each text its hidden states, (layers, pieces, width), not padded."""
        import torch

        states_by_layer: dict[int, torch.Tensor] = {}
        with torch.inference_mode():
            batch = self.backbone.batch(pieces)
            self.backbone.run(batch, range(self.depth + 1), states_by_layer.__setitem__)
            states = torch.stack(list(states_by_layer.values())).float().cpu().numpy()
        # Copies, so a caller who keeps a text does not keep the batch.
        return [states[:, row, : len(ids)].copy() for row, ids in enumerate(pieces)]

    def _pooled_pieces(self, batch: Batch) -> PooledPieces:
        padded = "attention_mask" in batch.inputs
        return self._fuser.pieces(batch.lengths, batch.longest, padded=padded)
