"""The base class of transformers in torch and without it: reading of texts, and hidden states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.registry import EncoderModel, Span, after_prompt

if TYPE_CHECKING:
    from retriever.encoders.fusion.pooling import Fuser
    from retriever.encoders.settings import EncoderSettings
    from retriever.encoders.transformer.tokenizer import PairTokenizer

# Number of texts whose hidden states are in memory together.
_TEXTS = 32


@dataclass(frozen=True, slots=True)
class TextStates:
    """All hidden states of one text."""

    pieces: list[str]  # In the tokenizer's spelling, special tokens included.
    spans: list[Span]  # Character offsets of each piece in the text; (0, 0) for special tokens.
    states: NDArray[np.float32]  # (layers, pieces, width), the embedding output first.
    is_pooled: NDArray[np.bool_]  # (pieces,) whether the encoder pools the piece.


class PieceModel(EncoderModel):
    """A transformer that reads word pieces: `TransformerModel` in torch, `LightModel` without."""

    _tokenizer: PairTokenizer
    _settings: EncoderSettings
    _fuser: Fuser

    @property
    def word_dimensions(self) -> int:
        """Number of components of a word's vector; 0 if pieces have no vectors of their own."""
        return self.dimensions if self._fuser.fuses_pieces else 0

    @property
    def reader(self) -> object:
        """Identity of the tokenizer: models of one backbone read the same pieces."""
        return self._tokenizer

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """Return the word-piece ids of each text with special tokens, cut to `max_length` ids."""
        if self._settings.wk_preset == "released":
            # The published code cuts the ids, so a cut text has no [SEP].
            return [ids[:max_length] for ids in self._tokenizer.tokenize(texts)]
        return self._tokenizer.tokenize(texts, max_length)

    def piece_offsets(self, text: str) -> list[Span]:
        """Return the (start, stop) character offsets of each word piece, without special tokens."""
        return self._tokenizer.piece_offsets(text)

    def tokenize_with_offsets(
        self, texts: Sequence[str], *, query: bool = False
    ) -> tuple[list[list[int]], list[list[Span]]]:
        """Return the ids of whole texts and their offsets, (0, 0) for special tokens."""
        return self._tokenizer.tokenize_with_offsets(texts)

    @abstractmethod
    def all_states(self, pieces: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """Return for each text its hidden states, (layers, pieces, width), not padded."""

    def text_states(
        self, pieces: Sequence[Sequence[int]], texts: Sequence[str], prompt: int
    ) -> Iterator[TextStates]:
        """Yield the hidden states of each text, in order."""
        for first in range(0, len(pieces), _TEXTS):
            block = pieces[first : first + _TEXTS]
            states_of_texts = self.all_states(block)
            for row, ids in enumerate(block):
                mask = self._fuser.pieces(np.array([len(ids)]), len(ids)).mask
                assert mask is not None
                yield TextStates(
                    self._tokenizer.piece_names(ids),
                    self._spans(texts[first + row], len(ids), prompt),
                    states_of_texts[row],
                    mask[0],
                )

    def _spans(self, text: str, pieces: int, prompt: int) -> list[Span]:
        """Return the span of each piece in the text without prompt; (0, 0) for other pieces."""
        special = self._fuser.special
        offsets = self.piece_offsets(text)
        released = self._settings.wk_preset == "released"
        cut = len(offsets) + special.before + special.after > pieces
        room = pieces - special.before - (0 if cut and released else special.after)
        spans = [(0, 0)] * special.before + after_prompt(offsets[:room], prompt)
        return spans + [(0, 0)] * (pieces - len(spans))
