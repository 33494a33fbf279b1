"""The hidden states of single texts, for looking inside a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.transformer import TransformerModel

_BATCH = 32


@dataclass(frozen=True, slots=True)
class TextStates:
    """All hidden states of one text.

    Attributes:
        pieces: its word pieces as the tokenizer writes them, special tokens included.
        spans: (start, stop) character offsets of each in the text; (0, 0) for special tokens.
        states: (layers, pieces, width) float32, the embedding output first.
        kept: (pieces,) bool, which of them the encoder pools.
    """

    pieces: list[str]
    spans: list[tuple[int, int]]
    states: NDArray[np.float32]
    kept: NDArray[np.bool_]


def text_states(
    model: TransformerModel, pieces: Sequence[Sequence[int]], texts: Sequence[str]
) -> Iterator[TextStates]:
    """The states of each text, in order, a batch at a time.

    Args:
        model: what runs.
        pieces: the ids of each text, with special tokens, within the window.
        texts: the same texts, for the offsets.
    """
    special = model.backbone.special
    for first in range(0, len(pieces), _BATCH):
        batch = pieces[first : first + _BATCH]
        states, kept = model.hidden_states(batch)
        for row, ids in enumerate(batch):
            # A text that was cut has more offsets than pieces.
            room = len(ids) - special.before - special.after
            spans = [(0, 0)] * special.before
            spans += model.piece_offsets(texts[first + row])[:room]
            spans += [(0, 0)] * (len(ids) - len(spans))
            yield TextStates(
                model.backbone.piece_names(ids),
                spans,
                states[:, row, : len(ids)],
                kept[row, : len(ids)],
            )
