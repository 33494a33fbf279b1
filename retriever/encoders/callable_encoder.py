"""An encoder that a program passes: any object that turns texts into vectors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import scale_to_unit
from retriever.encoders.model_folders import PASSAGE_PROMPTS
from retriever.encoders.registry import EncoderModel, SizedText
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import PROBES, EncoderSpec, TextEncoder
from retriever.errors import ConfigError

# Window of an encoder without a tokenizer, whose texts are not split.
_NO_WINDOW = 10**9 - 1
# Methods that replace `encode`, where an encoder has them: for passages and for queries.
_METHODS = ("encode_document", "encode_query")


class CallableEncoder(EncoderModel):
    """An object with an `encode` method."""

    # No limit: the object makes its own batches.
    batch_pieces = 10**9

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._tokenizer = getattr(encoder, "tokenizer", None)
        window = getattr(encoder, "max_seq_length", None)
        if not callable(self._tokenizer) or not window:
            self._tokenizer = None
            window = _NO_WINDOW
        # Prompts of passages and of queries, which the object adds itself.
        self._prompts = _read_prompt(encoder, query=False), _read_prompt(encoder, query=True)
        self._width: int | None = getattr(encoder, "dimensions", None)
        self.name = _read_name(encoder)
        self.probes = scale_to_unit(self._call_encode(list(PROBES), query=False))
        self.dimensions = self._width = self.probes.shape[1]
        digest = hashlib.sha256(np.round(self.probes, 2).tobytes()).hexdigest()
        settings = EncoderSettings(model=self.name, max_length=int(window))
        self.spec = EncoderSpec(settings, f"{EncoderSpec.PROBED}{digest}", self.dimensions)

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[SizedText]:
        """Return each text with its number of word pieces, or of words if there is no tokenizer."""
        if self._tokenizer is None:
            return [SizedText(text, max(1, len(text.split())), query) for text in texts]
        if not texts:
            return []
        prompt = self._prompts[query]
        prompted = [prompt + text for text in texts]
        piece_ids = self._tokenizer(prompted, truncation=False, verbose=False)["input_ids"]
        sized = []
        for text, ids in zip(texts, piece_ids, strict=True):
            excess = 0 if max_length is None else max(0, len(ids) - max_length)
            start_of_text = self._drop_last_pieces(text, excess) if excess else text
            sized.append(SizedText(start_of_text, len(ids) - excess, query))
        return sized

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each word piece, or of each word."""
        words = (word.span() for word in re.finditer(r"\S+", text))
        if self._tokenizer is None:
            return list(words)
        if not getattr(self._tokenizer, "is_fast", True):
            # Tokenizers written in Python give no offsets.
            return [offset for word in words for offset in self._divide_word(text, *word)]
        encoded = self._tokenizer(
            text,
            add_special_tokens=False,
            truncation=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        return [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]

    def _drop_last_pieces(self, text: str, pieces: int) -> str:
        offsets = self.piece_offsets(text)[:-pieces]
        return text[: offsets[-1][1]] if offsets else ""

    def _divide_word(self, text: str, start: int, stop: int) -> list[tuple[int, int]]:
        """Divide a word into equal spans, one for each of its pieces."""
        pieces = len(self._tokenizer.tokenize(text[start:stop]))  # type: ignore[union-attr]
        ends = [start + (stop - start) * part // max(1, pieces) for part in range(pieces + 1)]
        return list(pairwise(ends))

    def embed(self, pieces: Sequence[SizedText]) -> NDArray[np.float32]:
        """Return (texts, dimensions) float32 vectors, not normalized."""
        vectors = np.zeros((len(pieces), self.dimensions), np.float32)
        for query in (False, True):
            rows = [row for row, text in enumerate(pieces) if text.query is query]
            if rows:
                vectors[rows] = self._call_encode([pieces[row].text for row in rows], query=query)
        return vectors

    def _call_encode(self, texts: list[str], *, query: bool) -> NDArray[np.float32]:
        encode = getattr(self._encoder, _METHODS[query], None) or self._encoder.encode
        with np.errstate(over="ignore"):
            vectors = np.array(encode(texts), np.float32)
        width = self._width or (vectors.shape[1] if vectors.ndim == 2 else "dimensions")
        if vectors.shape != (len(texts), width):
            raise ConfigError(
                f"encoder {self.name}: expected vectors of shape ({len(texts)}, {width}), found "
                f"{vectors.shape}"
            )
        is_finite = np.isfinite(vectors)
        if not is_finite.all():
            row = int(is_finite.all(axis=1).argmin())
            value = vectors[row][~is_finite[row]][0]
            raise ConfigError(
                f"encoder {self.name}: expected numbers that float32 holds, found {value} in the "
                f"vector of the text {texts[row][:60]!r}"
            )
        return vectors


def _read_prompt(encoder: TextEncoder, *, query: bool) -> str:
    """Return the prompt that a `SentenceTransformer` puts before texts, empty if it has none."""
    prompts = getattr(encoder, "prompts", None)
    if not isinstance(prompts, Mapping):
        return ""
    names = [getattr(encoder, "default_prompt_name", None)]
    if hasattr(encoder, _METHODS[query]):
        names = [*(["query"] if query else PASSAGE_PROMPTS), *names]
    return next((str(prompts[name] or "") for name in names if name in prompts), "")


def _read_name(encoder: TextEncoder) -> str:
    card = getattr(encoder, "model_card_data", None)
    for name in (getattr(encoder, "name", None), getattr(card, "base_model", None)):
        if isinstance(name, str) and name:
            return name
    return type(encoder).__name__
