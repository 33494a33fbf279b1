"""An encoder of random hidden states, for what looks inside a model."""

import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from retriever.encoders import EncoderSettings, EncoderSpec, TextStates

_PIECE = re.compile(r"\w{1,3}|[^\w\s]")


class FakeStates:
    """Stands in for the hidden states of an encoder: pieces have up to three letters.

    The states of a piece depend on it and its position alone. `requests` lists the texts of each
    call of `hidden_states`.
    """

    def __init__(
        self, depth: int = 4, max_length: int = 32, prompt: str = "", drop_last: bool = False
    ) -> None:
        self.depth = depth
        self.spec = EncoderSpec(
            EncoderSettings(model="fake", max_length=max_length, passage_prompt=prompt), "0" * 64, 8
        )
        self.requests: list[list[str]] = []
        self._prompt = prompt
        self._drop_last = drop_last

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [[0] * (len(_PIECE.findall(self._prompt + text)) + 2) for text in texts]

    def hidden_states(self, texts: Sequence[str]) -> Iterator[TextStates]:
        self.requests.append(list(texts))
        return map(self._states_of, texts)

    def _states_of(self, text: str) -> TextStates:
        matches = list(_PIECE.finditer(self._prompt + text))[: self.spec.max_length - 2]
        pieces = ["[CLS]", *(match.group().lower() for match in matches), "[SEP]"]
        before = len(self._prompt)
        places = [(match.start() - before, match.end() - before) for match in matches]
        spans = [(0, 0), *((0, 0) if place[0] < 0 else place for place in places), (0, 0)]
        seeds = [[zlib.crc32(piece.encode()), place] for place, piece in enumerate(pieces)]
        steps = [np.random.default_rng(seed).standard_normal((self.depth + 1, 8)) for seed in seeds]
        states = np.stack(steps, axis=1)
        counted = np.ones(len(pieces), np.bool_)
        counted[-1] = not self._drop_last
        return TextStates(pieces, spans, states.cumsum(axis=0).astype(np.float32), counted)
