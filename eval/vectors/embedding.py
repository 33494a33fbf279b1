"""Vectors of one set of texts under many encoders, with one forward pass per text and model.

Encoders that share a model (see `shared_backbone`) and read the same word pieces of a text share
its forward pass, whatever their layers, fusion and pooling. Encoders with another window, prompt or
truncation read other pieces of some texts, and only these go through the model again. Static
encoders run no model. Meta-embeddings of the same sources share what these say of each text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.vectors.cache import Embedded, VectorFile, cut_pieces, open_vectors
from retriever.encoders.encoder import Encoder
from retriever.encoders.protocol import LoadedEncoder
from retriever.encoders.transformer.batching import BATCH_PIECES, token_batches
from retriever.errors import ConfigError

# Texts that are encoded before their vectors are stored.
_BLOCK = 2048

# Ids of a text as a tuple, or what a meta-embedding has in their place; hashable.
_Pieces = Any


class TextVectors:
    """The vectors of texts, by text.

    Args:
        texts: any number; may repeat.
        vectors: (texts, ...), one for each text.
    """

    def __init__(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self._row = {text: row for row, text in enumerate(texts)}
        self._vectors = vectors

    def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts, ...) float32, in the order of these texts; each of them must be known."""
        return self._vectors[np.array([self._row[text] for text in texts], np.int64)]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The texts of a block that are encoded under one encoder.

    Attributes:
        place: number of the encoder.
        texts: their positions.
        pieces: of each text.
        cut: which texts lost their ends.
        vectors: (texts, dimensions) float32, filled as batches are encoded.
    """

    place: int
    texts: list[int]
    pieces: list[_Pieces]
    cut: NDArray[np.bool_]
    vectors: NDArray[np.float32]


def embed_all(
    encoders: Sequence[LoadedEncoder],
    texts: Sequence[str],
    folder: Path | None,
    done: Callable[[int], object] = lambda vectors: None,
) -> Iterator[Embedded]:
    """The vectors of all texts, as passages, under one encoder after the other.

    All missing vectors are encoded before the first result; the vectors of one encoder at a time
    are in memory.

    Args:
        encoders: load them with `load_encoders`, so that they share models.
        texts: any number; may repeat. Each distinct text is encoded once.
        folder: the cache, shared with `eval.vectors.cache.embed`; only vectors that are missing
            there are encoded. None uses a temporary folder.
        done: called with the number of new vectors; in all `len(encoders)` times the number of
            distinct texts.

    Yields:
        For each encoder (texts, dimensions) float32 in the order of `texts`, and the number of
        texts that were cut at its window.

    Raises:
        StorageError: the folder cannot be written, or a file is damaged.
        RetrieverError: memory is too small even for a single text.
    """
    unique = list(dict.fromkeys(texts))
    row = {text: number for number, text in enumerate(unique)}
    rows = np.array([row[text] for text in texts], np.int64)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory()))
        for group in _groups(encoders):
            _fill(group, unique, folder, done)
        for encoder in encoders:
            with open_vectors(folder, encoder) as file:
                kept = file.read(unique)
            yield Embedded(kept.vectors[rows], int(kept.cut[rows].sum()))


def _groups(encoders: Sequence[LoadedEncoder]) -> list[list[LoadedEncoder]]:
    """The encoders by model and computation; a static encoder is a group by itself."""
    groups: dict[tuple[object, ...], list[LoadedEncoder]] = {}
    for place, encoder in enumerate(encoders):
        spec = encoder.spec
        static = spec.settings.static is not None
        computed = spec.meaning("backend"), spec.meaning("dtype")
        key = (place,) if static else _sources(encoder) or (spec.weights, *computed)
        groups.setdefault(key, []).append(encoder)
    return list(groups.values())


def _sources(encoder: LoadedEncoder) -> tuple[object, ...]:
    """What meta-embeddings share that read the same of every text; empty for other encoders."""
    if not isinstance(encoder, Encoder):
        return ()
    try:
        parts = encoder.meta_parts()
    except ConfigError:
        return ()
    return parts.level, *(spec.fingerprint for spec in parts.sources)


def _fill(
    encoders: Sequence[LoadedEncoder],
    texts: Sequence[str],
    folder: Path,
    done: Callable[[int], object],
) -> None:
    """Encode the vectors that these encoders lack, and store them block by block."""
    lacking: list[list[int]] = []
    for encoder in encoders:
        with open_vectors(folder, encoder) as file:
            lacking.append(file.missing(texts))
        done(len(texts) - len(lacking[-1]))
    wanted = sorted(set().union(*lacking))
    sets = [set(one) for one in lacking]
    for start in range(0, len(wanted), _BLOCK):
        block = wanted[start : start + _BLOCK]
        parts = [
            _part(place, encoder, block, sets[place], texts)
            for place, encoder in enumerate(encoders)
        ]
        _encode(encoders, parts, done)
        for encoder, part in zip(encoders, parts, strict=True):
            with open_vectors(folder, encoder) as file:
                _store(file, part, texts)


def _part(
    place: int,
    encoder: LoadedEncoder,
    block: Sequence[int],
    lacking: set[int],
    texts: Sequence[str],
) -> _Part:
    rows = [row for row in block if row in lacking]
    pieces, cut = cut_pieces(encoder, [texts[row] for row in rows])
    vectors = np.zeros((len(rows), encoder.spec.dimensions), np.float32)
    keys = [tuple(ids) if isinstance(ids, list) else ids for ids in pieces]
    return _Part(place, rows, keys, cut, vectors)


def _encode(
    encoders: Sequence[LoadedEncoder], parts: Sequence[_Part], done: Callable[[int], object]
) -> None:
    """Fill the vectors; word pieces that the same encoders need are encoded together."""
    wanting: dict[_Pieces, list[tuple[int, int]]] = {}
    for part in parts:
        for row, ids in enumerate(part.pieces):
            wanting.setdefault(ids, []).append((part.place, row))
    by_encoders: dict[frozenset[int], list[_Pieces]] = {}
    for ids, uses in wanting.items():
        by_encoders.setdefault(frozenset(place for place, _ in uses), []).append(ids)
    limit = BATCH_PIECES[encoders[0].spec.settings.dtype or "float32"]
    for places, listed in by_encoders.items():
        # A text without a known word has no pieces and a zero vector.
        for batch in token_batches([max(len(ids), 1) for ids in listed], limit):
            chosen = [listed[number] for number in batch]
            for place in sorted(places):
                # The same batch for each encoder, so that a shared backbone runs once.
                found = encoders[place].encode_pieces(chosen)
                for ids, vector in zip(chosen, found, strict=True):
                    rows = [row for user, row in wanting[ids] if user == place]
                    parts[place].vectors[rows] = vector
                    done(len(rows))


def _store(file: VectorFile, part: _Part, texts: Sequence[str]) -> None:
    file.write([texts[row] for row in part.texts], part.vectors, part.cut)
