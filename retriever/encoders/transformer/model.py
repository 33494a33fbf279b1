"""A transformer in torch: backbone, fusion of layers, pooling of pieces, and head.

The mean of the layers may pass through the head that SimCSE trained (Hosseini et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import ACCELERATOR_PIECES
from retriever.encoders.fusion.pooling import POOLINGS, Fuser, PooledPieces
from retriever.encoders.model_folders import Floats, ModelFolder, read_projections
from retriever.encoders.registry import Batches, Span, after_prompt
from retriever.encoders.transformer.backbone import Backbone, Batch
from retriever.encoders.transformer.tokenizer import PieceModel
from retriever.errors import ConfigError

if TYPE_CHECKING:
    import torch

HeadLayer = Callable[["torch.Tensor"], "torch.Tensor"]
# Number of texts whose hidden states are in memory together.
_TEXTS = 32


def _dense(weight: Floats, bias: Floats, activation: str, device: torch.device) -> HeadLayer:
    """Return a projection, in float32 for every number format of the backbone."""
    import torch

    matrix, shift = (torch.from_numpy(array).to(device) for array in (weight, bias))
    function = getattr(torch.nn, activation)()
    return lambda vectors: function(torch.nn.functional.linear(vectors, matrix, shift))


@dataclass(frozen=True, slots=True)
class TextStates:
    """All hidden states of one text."""

    pieces: list[str]  # In the tokenizer's spelling, special tokens included.
    spans: list[Span]  # Character offsets of each piece in the text; (0, 0) for special tokens.
    states: NDArray[np.float32]  # (layers, pieces, width), the embedding output first.
    kept: NDArray[np.bool_]  # (pieces,) whether the encoder pools the piece.


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
        special = backbone.special
        for name, place in (("cls", special.cls), ("sep", special.sep)):
            if settings.pooling == name and place is None:
                raise ConfigError(
                    f"pooling: this model's tokenizer puts no [{name.upper()}] around a text; "
                    "choose mean or max"
                )
        self._head: list[HeadLayer] = []
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
    def reader(self) -> object:
        """Identity of the tokenizer: models of one backbone read the same pieces."""
        return self.backbone

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

    def text_states(
        self, pieces: Sequence[Sequence[int]], texts: Sequence[str], prompt: int
    ) -> Iterator[TextStates]:
        """Yield the hidden states of each text, in order."""
        import torch

        for first in range(0, len(pieces), _TEXTS):
            block = pieces[first : first + _TEXTS]
            states_by_layer: dict[int, torch.Tensor] = {}
            with torch.inference_mode():
                batch = self.backbone.batch(block)
                layers = range(self.backbone.depth + 1)
                self.backbone.run(batch, layers, states_by_layer.__setitem__)
                states = torch.stack(list(states_by_layer.values())).float().cpu().numpy()
            mask = self._pooled_pieces(batch).mask
            all_pooled = np.ones(states.shape[1:3], np.bool_)
            pooled = all_pooled if mask is None else mask.cpu().numpy()
            for row, ids in enumerate(block):
                yield TextStates(
                    self.backbone.piece_names(ids),
                    self._spans(texts[first + row], len(ids), prompt),
                    # Copies, so a caller who keeps a text does not keep the batch.
                    states[:, row, : len(ids)].copy(),
                    pooled[row, : len(ids)].copy(),
                )
            del states, states_by_layer

    def _spans(self, text: str, pieces: int, prompt: int) -> list[Span]:
        """Return the span of each piece in the text without prompt; (0, 0) for other pieces."""
        special = self.backbone.special
        offsets = self.piece_offsets(text)
        released = self._settings.wk_preset == "released"
        cut = len(offsets) + special.before + special.after > pieces
        room = pieces - special.before - (0 if cut and released else special.after)
        spans = [(0, 0)] * special.before + after_prompt(offsets[:room], prompt)
        return spans + [(0, 0)] * (pieces - len(spans))

    def _pooled_pieces(self, batch: Batch) -> PooledPieces:
        padded = "attention_mask" in batch.inputs
        return self._fuser.pieces(batch.lengths, batch.longest, padded=padded)
