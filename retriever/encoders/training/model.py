"""An encoder whose weights change: vectors with gradients, and vectors to score it on dev."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import TRAINING_PIECES, scale_to_unit, token_batches
from retriever.encoders.encoder import Encoder
from retriever.encoders.models.finding import ModelFolder
from retriever.encoders.registry import LoadContext, load_model
from retriever.encoders.settings import Dtype, EncoderSettings, parse_encoder
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.training.objectives import pair_features
from retriever.encoders.transformer.backbone import Backbone
from retriever.encoders.transformer.model import TransformerModel
from retriever.errors import ConfigError

if TYPE_CHECKING:
    import torch

# What the files of a sentence-transformers model can say.
_KEPT = {
    "model",
    "pooling",
    "head",
    "normalize",
    "query_prompt",
    "passage_prompt",
    "max_length",
}


class TrainableEncoder:
    """An encoder that was loaded for training; make one with `load`.

    Attributes:
        spec: of the encoder before training.
        base: the model's folder.
        backbone: of the model.
        dimensions: components of a vector.
        classifier: the softmax classifier of the objective ``nli``, None without it.
    """

    def __init__(self, spec: EncoderSpec, model: TransformerModel, base: ModelFolder) -> None:
        self.spec = spec
        self.base = base
        self.backbone = model.backbone
        self.dimensions = model.dimensions
        self.classifier: torch.nn.Module | None = None
        self._model = model
        self._encoder = Encoder(spec, model)

    @classmethod
    def load(
        cls,
        encoder: str | EncoderSettings = "",
        *,
        device: str | None = None,
        download: bool = False,
    ) -> TrainableEncoder:
        """Load an encoder to train.

        Args:
            encoder: settings, or their text form; the bundled model where no model is named.
            device: torch device; None uses a GPU if there is one.
            download: allow downloads of a hub id that is not in the cache.

        Raises:
            ConfigError: the encoder is not a transformer, or has settings that the files of a
                sentence-transformers model cannot hold, such as a choice of layers.
            What `Encoder.load` raises.
        """
        asked = parse_encoder(encoder) if isinstance(encoder, str) else encoder
        bases: list[ModelFolder] = []

        def trainable(folder: ModelFolder, device: str | None, dtype: Dtype) -> Backbone:
            bases.append(folder)
            return Backbone(folder, device, dtype, training=True)

        spec, loaded = load_model(asked, LoadContext(device, download, trainable))
        model = loaded.in_torch()
        if model is None:
            raise ConfigError(f"{spec}: a static encoder has no weights to train; name another")
        _require_plain(spec.settings)
        return cls(spec, model, bases[0])

    def tokenize(self, texts: Sequence[str], window: int, *, query: bool) -> list[list[int]]:
        """Word-piece ids with prompt and special tokens, cut to `window` pieces."""
        settings = self.spec.settings
        prompt = (settings.query_prompt if query else settings.passage_prompt) or ""
        return self._model.tokenize([prompt + text for text in texts], window)

    def vectors(self, pieces: Sequence[Sequence[int]]) -> torch.Tensor:
        """(texts, dimensions) float32 with gradients, not normalized.

        They are computed in parts of like length. Where the activations of all parts would take too
        much memory, each part is computed again for its gradient, with the same dropout.
        """
        import torch
        from torch.utils.checkpoint import checkpoint

        lengths = [len(ids) for ids in pieces]
        parts = list(token_batches(lengths, TRAINING_PIECES))
        size = sum(lengths) * self.backbone.depth * self.backbone.width
        again = torch.is_grad_enabled() and size > _MOST_STATES
        found = []
        for rows in parts:
            part = [pieces[row] for row in rows]
            if again:
                found.append(checkpoint(self._model.forward, part, use_reentrant=False))
            else:
                found.append(self._model.forward(part))
        return torch.cat(found)[torch.from_numpy(np.argsort(np.concatenate(parts)))]

    def encode(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """(texts, dimensions) float32 of length 1, without dropout; long texts are cut.

        The zero vector stays zero.
        """
        was_training = self.backbone.model.training
        self.backbone.model.eval()
        vectors = self._encoder.encode_pieces(self._encoder.truncate(texts, query=query))
        self.backbone.model.train(was_training)
        return scale_to_unit(vectors)

    def classify(self, left: Sequence[str], right: Sequence[str]) -> NDArray[np.int64]:
        """The most probable class of each pair, (pairs,) int64."""
        import torch

        assert self.classifier is not None
        self.backbone.model.eval()
        window = self.spec.max_length
        with torch.no_grad():
            found = []
            for start in range(0, len(left), _PAIRS_AT_ONCE):
                texts = [
                    *left[start : start + _PAIRS_AT_ONCE],
                    *right[start : start + _PAIRS_AT_ONCE],
                ]
                u, v = self.vectors(self.tokenize(texts, window, query=False)).chunk(2)
                found.append(self.classifier(pair_features(u, v)).argmax(dim=1))
        self.backbone.model.train()
        classes: NDArray[np.int64] = torch.cat(found).cpu().numpy()
        return classes


_PAIRS_AT_ONCE = 256
# Numbers in the hidden states of a step; its activations are some 100 bytes for each.
_MOST_STATES = 2**24


def _require_plain(settings: EncoderSettings) -> None:
    plain = replace(EncoderSettings(), **{name: getattr(settings, name) for name in _KEPT})
    if settings != plain:
        raise ConfigError(
            f"model: expected an encoder of the last layer in float32, found {settings}; a trained "
            "encoder's folder cannot say more than pooling, window and prompts, so choose layers "
            "afterwards"
        )
    if settings.pooling == "sep":
        raise ConfigError("pooling: a trained encoder pools by mean, max or cls, found sep")
