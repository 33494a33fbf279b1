"""A backbone, a fusion of its layers, a pooling of its pieces and a head: pieces to vectors.

Hosseini et al. 2023 feed the mean of the layers through the head that SimCSE trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import ACCELERATOR_PIECES
from retriever.encoders.fusion.pooling import POOLINGS, Fuser, Pieces
from retriever.encoders.model_folders import Floats, ModelFolder, read_projections
from retriever.encoders.registry import Batches, Span, after_prompt
from retriever.encoders.transformer.backbone import Backbone, Batch
from retriever.encoders.transformer.word_pieces import PieceModel
from retriever.errors import ConfigError

if TYPE_CHECKING:
    import torch

Layer = Callable[["torch.Tensor"], "torch.Tensor"]
# Texts whose hidden states are in memory together.
_TEXTS = 32


def _dense(weight: Floats, bias: Floats, activation: str, device: torch.device) -> Layer:
    """A projection, which is small, and in float32 in every number format of the backbone."""
    import torch

    matrix, shift = (torch.from_numpy(one).to(device) for one in (weight, bias))
    function = getattr(torch.nn, activation)()
    return lambda vectors: function(torch.nn.functional.linear(vectors, matrix, shift))


@dataclass(frozen=True, slots=True)
class TextStates:
    """All hidden states of one text."""

    pieces: list[str]  # As the tokenizer writes them, special tokens included.
    spans: list[Span]  # Character offsets of each in the text; (0, 0) for special tokens.
    states: NDArray[np.float32]  # (layers, pieces, width), the embedding output first.
    kept: NDArray[np.bool_]  # (pieces,) Which of them the encoder pools.


class TransformerModel(PieceModel):
    """Turns word pieces into vectors.

    One batch of hidden states is in memory at a time; for mean and concatenation only the pooled
    vectors of the layers that were read so far.
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
        self._head: list[Layer] = []
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
        backbone.want(fuser.layers)

    def in_torch(self) -> TransformerModel:
        """Itself."""
        return self

    @property
    def reader(self) -> object:
        """Models of one backbone read the same pieces."""
        return self.backbone

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """One vector per text, not normalized, from word-piece ids with special tokens."""
        import torch

        with torch.inference_mode():
            result: NDArray[np.float32] = self.forward(pieces).cpu().numpy()
        return result

    def forward(self, pieces: Sequence[Sequence[int]]) -> torch.Tensor:
        """As `embed`, on the backbone's device, with gradients if they are needed."""
        batch = self.backbone.batch(pieces)
        places = self._pieces(batch)
        fuser = self._fuser
        pool = POOLINGS[self._settings.pooling or "mean"]
        found: dict[int, torch.Tensor] = {}

        def visit(layer: int, state: torch.Tensor) -> None:
            found[layer] = state if fuser.sbert_wk else pool(state, places)

        self.backbone.run(batch, fuser.layers, visit)
        if fuser.sbert_wk:
            return self._headed(fuser.vectors(list(found.values()), places))
        return self._headed(fuser.fuse(found))

    def _headed(self, vectors: torch.Tensor) -> torch.Tensor:
        for layer in self._head:
            vectors = layer(vectors)
        return vectors

    def piece_batches(self, pieces: Sequence[Sequence[int]]) -> Batches:
        """The vector of every piece, its layers averaged or concatenated, in one batch."""
        import torch

        states: dict[int, torch.Tensor] = {}
        with torch.inference_mode():
            batch = self.backbone.batch(pieces)
            self.backbone.run(batch, self._fuser.layers, states.__setitem__)
            fused = self._fuser.fuse({layer: one.float() for layer, one in states.items()})
            yield np.arange(len(pieces)), fused.cpu().numpy()

    def project(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The head applied to (texts, width) vectors; the same vectors if there is no head."""
        import torch

        with torch.inference_mode():
            projected = self._headed(torch.from_numpy(vectors).to(self.backbone.device))
            result: NDArray[np.float32] = projected.cpu().numpy()
        return result

    def text_states(
        self, pieces: Sequence[Sequence[int]], texts: Sequence[str], prompt: int
    ) -> Iterator[TextStates]:
        """The states of each text, in order, a batch at a time."""
        import torch

        for first in range(0, len(pieces), _TEXTS):
            part = pieces[first : first + _TEXTS]
            found: dict[int, torch.Tensor] = {}
            with torch.inference_mode():
                batch = self.backbone.batch(part)
                layers = range(self.backbone.depth + 1)
                self.backbone.run(batch, layers, found.__setitem__)
                states = torch.stack(list(found.values())).float().cpu().numpy()
            mask = self._pieces(batch).kept
            everything = np.ones(states.shape[1:3], np.bool_)
            kept = everything if mask is None else mask.cpu().numpy()
            for row, ids in enumerate(part):
                yield TextStates(
                    self.backbone.piece_names(ids),
                    self._spans(texts[first + row], len(ids), prompt),
                    # Copies, so that a caller who keeps one text does not keep the batch.
                    states[:, row, : len(ids)].copy(),
                    kept[row, : len(ids)].copy(),
                )
            del states, found

    def _spans(self, text: str, pieces: int, prompt: int) -> list[Span]:
        """Where each piece is in the text without its prompt; (0, 0) for what is not in it."""
        special = self.backbone.special
        offsets = self.piece_offsets(text)
        released = self._settings.wk_preset == "released"
        cut = len(offsets) + special.before + special.after > pieces
        room = pieces - special.before - (0 if cut and released else special.after)
        spans = [(0, 0)] * special.before + after_prompt(offsets[:room], prompt)
        return spans + [(0, 0)] * (pieces - len(spans))

    def _pieces(self, batch: Batch) -> Pieces:
        padded = "attention_mask" in batch.inputs
        return self._fuser.pieces(batch.lengths, batch.longest, padded=padded)
