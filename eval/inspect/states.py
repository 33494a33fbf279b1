"""The hidden states of many texts, one text after the other, for looking inside a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer.states import TextStates
from retriever.errors import ConfigError

# Texts that are sorted by length together, so that batches need little padding.
_WINDOW = 512


class StatesEncoder(Protocol):
    """What is asked of `retriever.encoders.encoder.Encoder`."""

    @property
    def spec(self) -> EncoderSpec:
        """Everything that decides what the model is run on."""

    @property
    def depth(self) -> int:
        """Transformer layers L; hidden states are 0 (embeddings) to L."""

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Word-piece ids of each text with its prompt and special tokens, however long."""

    def hidden_states(self, texts: Sequence[str]) -> Iterator[TextStates]:
        """All hidden states of each text, in order; one batch is alive at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class InspectedText:
    """One text, and what the model made of it.

    Attributes:
        text: what the offsets of `states` count in.
        states: its hidden states, and those of the encoder's passage prompt, if there is one.
    """

    text: str
    states: TextStates


class Inspection:
    """Iterates once over the hidden states of texts; no more than one batch of them is alive.

    Texts come in blocks of 512, each sorted by length, not in the order in which they are given.

    Args:
        encoder: what gives the states.
        texts: taken as they are needed.
        limit: the most texts that are taken, at least 1; None takes all.
        done: called after each text.

    Attributes:
        texts: how many texts there were so far.
        cut: how many of them were longer than the window, so that their ends were not read.

    Raises:
        ConfigError: while iterating, the layers of this model cannot be read one by one.
    """

    def __init__(
        self,
        encoder: StatesEncoder,
        texts: Iterable[str],
        limit: int | None = None,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self._encoder = encoder
        self._texts = islice(texts, limit)
        self._done = done
        self.texts = 0
        self.cut = 0

    def __iter__(self) -> Iterator[InspectedText]:
        while window := list(islice(self._texts, _WINDOW)):
            lengths = list(map(len, self._encoder.tokenize(window)))
            order = sorted(range(len(window)), key=lengths.__getitem__)
            ordered = [window[row] for row in order]
            self.cut += sum(length > self._encoder.spec.max_length for length in lengths)
            for text, states in zip(ordered, all_states(self._encoder, ordered), strict=True):
                self.texts += 1
                yield InspectedText(text, states)
                self._done()


def all_states(encoder: StatesEncoder, texts: Sequence[str]) -> Iterator[TextStates]:
    """The states of each text, in order, without a warning about those that were cut.

    Raises:
        ConfigError: while iterating, the layers of this model cannot be read one by one.
    """
    with warnings.catch_warnings():
        # It would be said once a block; the caller counts what was cut.
        warnings.filterwarnings("ignore", message=".*longer than the window", category=UserWarning)
        found = encoder.hidden_states(texts)
    for states in found:
        if len(states.states) != encoder.depth + 1:
            raise ConfigError(
                f"model: expected one whose {encoder.depth + 1} hidden states can be read one by "
                f"one, found {encoder.spec.model}, which gives the last alone; name another model"
            )
        yield states
