"""The hidden states of many texts, one text after the other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from eval.progress import Notify, ignore
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer.states import TextStates
from retriever.errors import ConfigError, require_several

# Texts that are sorted by length together, so that batches need little padding.
_BLOCK = 512


class StatesEncoder(Protocol):
    """The part of `retriever.encoders.encoder.Encoder` that is read here."""

    @property
    def spec(self) -> EncoderSpec:
        """The complete settings of the encoder."""

    @property
    def depth(self) -> int:
        """Number L of transformer layers; hidden states are 0 (embeddings) to L."""

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Word-piece ids of each text with its prompt and special tokens, not truncated."""

    def hidden_states(self, texts: Sequence[str]) -> Iterator[TextStates]:
        """All hidden states of each text, in order; one batch is alive at a time."""


@dataclass(frozen=True, slots=True)
class TextsRead:
    """The texts that were read.

    Attributes:
        texts: their number.
        cut: number of those that are longer than the window and lost their ends.
        limited: whether reading stopped at the limit.
    """

    texts: int
    cut: int
    limited: bool

    def __str__(self) -> str:
        if self.texts == 1:
            return "1 text"
        return f"{'the first ' if self.limited else ''}{self.texts:,} texts"


@dataclass(frozen=True, slots=True, eq=False)
class InspectedText:
    """One text and its hidden states.

    Attributes:
        text: what the offsets of `states` count in.
        states: its hidden states, preceded by those of the encoder's passage prompt.
    """

    text: str
    states: TextStates


class Inspection:
    """Iterates once over the hidden states of texts, of which one batch is alive at a time.

    Texts are read in blocks of 512 and yielded by ascending length within a block.

    Args:
        encoder: computes the states.
        texts: read as they are needed.
        limit: maximum number of texts, at least 1; None reads all.
        done: called with 1 after each text.
        notify: called at the end with a warning if texts lost their ends at the window.

    Raises:
        TypeError: one string instead of several.
        ConfigError: while iterating, the layers of this model cannot be read one by one.
    """

    def __init__(
        self,
        encoder: StatesEncoder,
        texts: Iterable[str],
        limit: int | None = None,
        done: Callable[[int], object] = lambda texts: None,
        notify: Notify = ignore,
    ) -> None:
        require_several("texts", texts)
        self._encoder = encoder
        self._texts = islice(texts, limit)
        self._limit = limit
        self._done = done
        self._notify = notify
        self._count = 0
        self._cut = 0

    @property
    def read(self) -> TextsRead:
        """The texts so far."""
        return TextsRead(self._count, self._cut, self._count == self._limit)

    def __iter__(self) -> Iterator[InspectedText]:
        while block := list(islice(self._texts, _BLOCK)):
            lengths = list(map(len, self._encoder.tokenize(block)))
            order = sorted(range(len(block)), key=lengths.__getitem__)
            ordered = [block[row] for row in order]
            self._cut += sum(length > self._encoder.spec.max_length for length in lengths)
            for text, states in zip(ordered, all_states(self._encoder, ordered), strict=True):
                self._count += 1
                yield InspectedText(text, states)
                self._done(1)
        if self._cut:
            self._notify(cut_warning(self._cut, self._encoder))


def cut_warning(cut: int, encoder: StatesEncoder) -> str:
    """The warning that the ends of texts were not read."""
    texts = "1 text" if cut == 1 else f"{cut:,} texts"
    return (
        f"warning: {texts} exceeded the window of {encoder.spec.max_length} word pieces; the "
        "excess was not read"
    )


def all_states(encoder: StatesEncoder, texts: Sequence[str]) -> Iterator[TextStates]:
    """The states of each text, in order, without the encoder's warning about those that are cut.

    Raises:
        ConfigError: while iterating, the layers of this model cannot be read one by one.
    """
    with warnings.catch_warnings():
        # It would be repeated for each block; the caller counts the texts that are cut.
        warnings.filterwarnings("ignore", message=".*longer than the window", category=UserWarning)
        found = encoder.hidden_states(texts)
    for states in found:
        if len(states.states) != encoder.depth + 1:
            raise ConfigError(
                f"model: expected one whose {encoder.depth + 1} hidden states can be read one by "
                f"one, found {encoder.spec.model}, which yields only the last; name another model"
            )
        yield states
