"""A model behind a URL, as part of an `Encoder`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.registry import (
    EncoderModel,
    Kind,
    LoadContext,
    SizedText,
    Span,
    plain_settings,
    refuse_settings,
    require_asked,
)
from retriever.encoders.remote.address import Address
from retriever.encoders.remote.client import Client
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import PROBES, EncoderSpec

# Pieces of a passage by default: 256 of them are 300 to 400 word pieces of common tokenizers.
WINDOW = 256
_IN_FLIGHT = 8
_TEXTS = 64
_PIECES = 4096
# The model's own tokenizer is not known. A word is a piece for every 12 characters of it; a
# character of a script without spaces is one.
_PIECE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|"
    r"[^\s\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,12}"
)
_OWN = ("model", "normalize", "query_prompt", "passage_prompt", "max_length")


class RemoteModel(EncoderModel):
    """Sends texts to an embeddings service and gives its vectors.

    Args:
        client: knows the address.

    Attributes:
        dimensions: components of a vector.
        probes: (3, dimensions) float32: vectors of fixed texts, which tell models apart.
        batch_pieces: pieces of one call of `embed`, which are several requests in flight.

    Raises:
        ModelError: the server cannot be reached or gives no vectors.
    """

    batch_pieces = _IN_FLIGHT * _PIECES
    not_a_source = "is behind a URL; expected encoders on this machine"

    def __init__(self, client: Client) -> None:
        self._client = client
        self.probes = client.vectors(PROBES)
        self.dimensions = self.probes.shape[1]

    def spec(self, asked: EncoderSettings) -> EncoderSpec:
        """The specification of the vectors.

        Raises:
            ConfigError: a setting belongs to models whose layers are at hand.
        """
        reason = "is behind a URL, and only its vectors can be read; leave it out"
        refuse_settings(asked, _OWN, reason)
        settings = plain_settings(
            asked, model=str(self._client.address), max_length=asked.max_length or WINDOW
        )
        return EncoderSpec(settings, self._client.address.identity, self.dimensions)

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[SizedText]:
        """Each text with the number of its pieces, cut at `max_length` if given."""
        found = []
        for text in texts:
            offsets = self.piece_offsets(text)
            if max_length is not None and len(offsets) > max_length:
                found.append(SizedText(text[: offsets[max_length - 1][1]], max_length))
            else:
                found.append(SizedText(text, len(offsets)))
        return found

    def piece_offsets(self, text: str) -> list[Span]:
        """(start, stop) character offsets of each piece."""
        return [match.span() for match in _PIECE.finditer(text)]

    def embed(self, pieces: Sequence[SizedText]) -> NDArray[np.float32]:
        """(texts, dimensions) float32, not normalized; several requests are in flight."""
        requests = list(_requests(pieces))
        if len(requests) == 1:
            return self._client.vectors(requests[0], self.dimensions)
        with ThreadPoolExecutor(min(_IN_FLIGHT, len(requests))) as pool:
            waiting = [pool.submit(self._client.vectors, one, self.dimensions) for one in requests]
            try:
                return np.concatenate([one.result() for one in waiting])
            except BaseException:
                self._client.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _requests(pieces: Sequence[SizedText]) -> Iterator[list[str]]:
    """The texts of each request, in order."""
    texts: list[str] = []
    held = 0
    for one in pieces:
        if texts and (len(texts) == _TEXTS or held + len(one) > _PIECES):
            yield texts
            texts, held = [], 0
        texts.append(one.text)
        held += len(one)
    yield texts


def _load(asked: EncoderSettings, _: LoadContext) -> tuple[EncoderSpec, RemoteModel]:
    model = RemoteModel(Client(Address.parse(asked.model or "")))
    return model.spec(asked), model


KIND = Kind(
    load=_load,
    weights=lambda asked, download: Address.parse(asked.model or "").identity,
    require_asked=require_asked,
)
