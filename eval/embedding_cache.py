"""Vectors of texts kept on disk, by the fingerprint of the encoder and the text."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.errors import StorageError
from retriever.encoders.encoder import Encoder

# Texts that are encoded before their vectors are stored.
_BLOCK = 4096
_TABLE = """
    CREATE TABLE IF NOT EXISTS vectors (
        digest BLOB PRIMARY KEY, cut INTEGER NOT NULL, vector BLOB NOT NULL
    ) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Vectors of texts.

    Attributes:
        vectors: (texts, dimensions) float32, as `Encoder.encode` gives them.
        cut: how many of the texts were longer than the window and lost their end.
    """

    vectors: NDArray[np.float32]
    cut: int


def embed(
    encoder: Encoder,
    texts: Sequence[str],
    folder: Path | None,
    *,
    query: bool = False,
    done: Callable[[int], object] = lambda texts: None,
) -> Embedded:
    """Encode texts, each different one once and none that is kept already.

    Args:
        encoder: what gives the vectors.
        texts: in any number, also several times.
        folder: where vectors are kept, one SQLite file for each encoder; made if missing. None
            keeps nothing. Several programs may use it at once.
        query: whether they are queries, which may have another prompt.
        done: called with the number of texts after each batch.

    Raises:
        StorageError: the folder cannot be written, or the file is damaged.
    """
    unique = list(dict.fromkeys(texts))
    if folder is None:
        vectors, cut = _encode(encoder, unique, query, done)
    else:
        path = folder / f"{encoder.spec.fingerprint}.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=60)) as database:
                vectors, cut = _through(database, encoder, unique, query, done)
        except (OSError, sqlite3.DatabaseError, ValueError) as error:
            raise StorageError(
                f"{path}: the cache of vectors cannot be used ({' '.join(str(error).split())}); "
                "remove the file, set RETRIEVER_CACHE to a writable folder, or give --no-cache"
            ) from error
    row = {text: number for number, text in enumerate(unique)}
    rows = np.array([row[text] for text in texts], np.int64)
    return Embedded(vectors[rows], int(cut[rows].sum()))


def _through(
    database: sqlite3.Connection,
    encoder: Encoder,
    texts: Sequence[str],
    query: bool,
    done: Callable[[int], object],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Read what is there, encode and store the rest a block at a time."""
    database.execute(_TABLE)
    digests = [_digest(text, query) for text in texts]
    vectors = np.zeros((len(texts), encoder.spec.dimensions), np.float32)
    cut = np.zeros(len(texts), np.bool_)
    missing = []
    for row, digest in enumerate(digests):
        found = database.execute(
            "SELECT cut, vector FROM vectors WHERE digest = ?", (digest,)
        ).fetchone()
        if found is None:
            missing.append(row)
        else:
            cut[row], vectors[row] = found[0], np.frombuffer(found[1], "<f4")
    done(len(texts) - len(missing))
    for start in range(0, len(missing), _BLOCK):
        rows = missing[start : start + _BLOCK]
        vectors[rows], cut[rows] = _encode(encoder, [texts[row] for row in rows], query, done)
        with database:
            database.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                [
                    (digests[row], int(cut[row]), vectors[row].astype("<f4").tobytes())
                    for row in rows
                ],
            )
    return vectors, cut


def _encode(
    encoder: Encoder, texts: Sequence[str], query: bool, done: Callable[[int], object]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    pieces = encoder.tokenize(texts, query=query)
    cut = np.array([len(ids) > encoder.spec.max_length for ids in pieces], np.bool_)
    long = np.flatnonzero(cut)
    shorter = encoder.truncate([texts[int(row)] for row in long], query=query)
    for row, ids in zip(long, shorter, strict=True):
        pieces[row] = ids

    def tell(texts: int, _: int) -> None:
        done(texts)

    return encoder.encode_pieces(pieces, tell), cut


def _digest(text: str, query: bool) -> bytes:
    role = b"query\n" if query else b"passage\n"
    return hashlib.sha256(role + text.encode()).digest()
