"""The hidden states of single texts, for looking inside a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.transformer.model import TransformerModel

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
    model: TransformerModel,
    pieces: Sequence[Sequence[int]],
    texts: Sequence[str],
    prompt: int,
) -> Iterator[TextStates]:
    """The states of each text, in order, a batch at a time.

    Args:
        model: what runs.
        pieces: the ids of each text, with special tokens, within the window.
        texts: the same texts with their prompts, for the offsets.
        prompt: characters of the prompt before each.
    """
    for first in range(0, len(pieces), _BATCH):
        batch = pieces[first : first + _BATCH]
        states, kept = model.hidden_states(batch)
        for row, ids in enumerate(batch):
            yield TextStates(
                model.backbone.piece_names(ids),
                _spans(model, texts[first + row], len(ids), prompt),
                # Copies, so that a caller who keeps one text does not keep the batch.
                states[:, row, : len(ids)].copy(),
                kept[row, : len(ids)].copy(),
            )
        del states, kept


def _spans(model: TransformerModel, text: str, pieces: int, prompt: int) -> list[tuple[int, int]]:
    """Where each piece is in the text after its prompt; (0, 0) for special tokens and prompt."""
    special = model.backbone.special
    offsets = model.piece_offsets(text)
    cut = len(offsets) + special.before + special.after > pieces
    room = pieces - special.before - (0 if cut and model.cuts_off_ends else special.after)
    inside = [
        (max(start - prompt, 0), stop - prompt) if stop > prompt else (0, 0)
        for start, stop in offsets[:room]
    ]
    spans = [(0, 0)] * special.before + inside
    return spans + [(0, 0)] * (pieces - len(spans))
