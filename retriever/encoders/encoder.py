"""Text to vectors: a backbone, a pooling and a window behind one small interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.backbone import Backbone
from retriever.encoders.batching import token_batches
from retriever.encoders.models import DEFAULT_MODEL, ModelFolder, find_model
from retriever.encoders.pooling import mean_pooling
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, RetrieverError


class Encoder:
    """Turns texts into vectors; make one with `Encoder.load`.

    Attributes:
        spec: everything that decides the vectors.
    """

    def __init__(self, spec: EncoderSpec, backbone: Backbone) -> None:
        self.spec = spec
        self._backbone = backbone

    @classmethod
    def load(
        cls,
        model: str = DEFAULT_MODEL,
        *,
        max_length: int | None = None,
        device: str | None = None,
        download: bool = False,
    ) -> Encoder:
        """Load an encoder.

        Args:
            model: a local folder, a bundled model's name, or a hub id in the local cache.
            max_length: the window in word pieces, special tokens included; None takes the model's.
            device: a torch device; None takes a GPU where there is one.
            download: allow the network for a hub id that is not in the cache.

        Raises:
            ModelError: the model is missing, altered or not supported.
            MissingExtraError: a bundled model's package is not installed.
            ConfigError: the window is longer than the model's, or the device does not exist.
        """
        return cls._load(find_model(model, download=download), max_length, device)

    @classmethod
    def from_spec(
        cls, spec: EncoderSpec, *, device: str | None = None, download: bool = False
    ) -> Encoder:
        """Load the encoder that a stored specification describes.

        Raises:
            EncoderMismatchError: the model of that name is not the one the specification was
                made with; what `load` raises.
        """
        encoder = cls._load(find_model(spec.model, download=download), spec.max_length, device)
        if encoder.spec.fingerprint != spec.fingerprint:
            raise EncoderMismatchError(
                f"the model {spec.model} has changed: expected encoder {spec.fingerprint}, found "
                f"{encoder.spec.fingerprint}; install the model the index was made with, or make "
                "the index again with --recreate"
            )
        return encoder

    @classmethod
    def _load(cls, folder: ModelFolder, max_length: int | None, device: str | None) -> Encoder:
        backbone = Backbone(folder, device)
        window = max_length or min(folder.max_length or backbone.max_length, backbone.max_length)
        if window > backbone.max_length:
            raise ConfigError(
                f"max_length: the model {folder.name} reads at most {backbone.max_length} pieces, "
                f"found {window}"
            )
        spec = EncoderSpec(folder.name, folder.weights, backbone.dimensions, window)
        return cls(spec, backbone)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Word-piece ids of each text, special tokens included, however long."""
        return self._backbone.tokenize(texts)

    def truncate(self, texts: Sequence[str]) -> list[list[int]]:
        """Word-piece ids of each text, special tokens included, cut to the window."""
        return self._backbone.tokenize(texts, self.spec.max_length)

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece, special tokens left out."""
        return self._backbone.piece_offsets(text)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector a text; what is longer than the window is cut, with a warning that counts it.

        Returns:
            (texts, dimensions) float32, C-contiguous, rows in the order of `texts`, of length 1.
            A row does not depend on the other texts by more than rounding (about 1e-6).
        """
        pieces = self.tokenize(texts)
        long = [i for i, ids in enumerate(pieces) if len(ids) > self.spec.max_length]
        if long:
            warnings.warn(
                f"{len(long)} of {len(texts)} texts are longer than the window of "
                f"{self.spec.max_length} word pieces and were cut",
                stacklevel=2,
            )
            for i, ids in zip(long, self.truncate([texts[i] for i in long]), strict=True):
                pieces[i] = ids
        return self.encode_pieces(pieces)

    def encode_pieces(
        self,
        pieces: Sequence[Sequence[int]],
        done: Callable[[int, int], None] = lambda texts, pieces: None,
    ) -> NDArray[np.float32]:
        """One vector for each list of word-piece ids (with special tokens, within the window).

        Args:
            pieces: for each text its ids, at least one.
            done: called after each batch with the texts and word pieces it held.

        Returns:
            (texts, dimensions) float32, C-contiguous, rows in order, of length 1.

        Raises:
            RetrieverError: memory is too small even for a single text.
        """
        vectors = np.empty((len(pieces), self.spec.dimensions), np.float32)
        lengths = [len(ids) for ids in pieces]
        for rows in token_batches(lengths):
            vectors[rows] = self._encode_batch([pieces[row] for row in rows])
            done(len(rows), sum(lengths[row] for row in rows))
        return vectors

    def _encode_batch(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        try:
            return self._forward(pieces)
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            if len(pieces) == 1:
                raise RetrieverError(
                    f"memory is too small to encode one text of {len(pieces[0])} word pieces: "
                    "set a smaller --max-length"
                ) from error
        # Outside the handler, so that the failed batch's tensors are released first.
        half = len(pieces) // 2
        return np.concatenate(
            [self._encode_batch(pieces[:half]), self._encode_batch(pieces[half:])]
        )

    def _forward(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            hidden, mask = self._backbone.last_hidden_state(pieces)
            vectors = torch.nn.functional.normalize(mean_pooling(hidden, mask))
            result: NDArray[np.float32] = vectors.cpu().numpy()
        return result


def _out_of_memory(error: BaseException) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error)
