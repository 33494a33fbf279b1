"""A cache of vectors on disk, by the fingerprint of the encoder and the text."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.protocol import LoadedEncoder, probe_lists, same_vectors
from retriever.errors import StorageError

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
        cut: number of texts that were longer than the window and lost their ends.
    """

    vectors: NDArray[np.float32]
    cut: int


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The cached vectors of some texts.

    Attributes:
        vectors: (texts, dimensions) float32; zeros for texts that are not cached.
        cut: (texts,) bool, which texts lost their ends.
        missing: positions of the texts that are not cached, ascending.
    """

    vectors: NDArray[np.float32]
    cut: NDArray[np.bool_]
    missing: list[int]


class VectorFile:
    """The vectors of one encoder; see `open_vectors`."""

    def __init__(self, database: sqlite3.Connection, dimensions: int) -> None:
        self._database = database
        self._dimensions = dimensions
        database.execute(_TABLE)

    def expect(self, probes: list[list[float]]) -> None:
        """Forget all vectors if they were made by an encoder with other probe vectors.

        Args:
            probes: see `retriever.encoders.protocol.probe_lists`; empty if there are none.
        """
        if not probes:
            return
        with self._database:
            self._database.execute("CREATE TABLE IF NOT EXISTS probes (vectors TEXT NOT NULL)")
            found = self._database.execute("SELECT vectors FROM probes").fetchone()
            if found is not None and same_vectors(
                json.loads(found[0]), np.array(probes, np.float32)
            ):
                return
            self._database.execute("DELETE FROM vectors")
            self._database.execute("DELETE FROM probes")
            self._database.execute("INSERT INTO probes VALUES (?)", (json.dumps(probes),))

    def read(self, texts: Sequence[str], *, query: bool = False) -> Kept:
        """The cached vectors of these texts, as queries or as passages."""
        vectors = np.zeros((len(texts), self._dimensions), np.float32)
        cut = np.zeros(len(texts), np.bool_)
        missing = []
        for row, text in enumerate(texts):
            found = self._database.execute(
                "SELECT cut, vector FROM vectors WHERE digest = ?", (_digest(text, query),)
            ).fetchone()
            if found is None:
                missing.append(row)
            else:
                cut[row], vectors[row] = found[0], np.frombuffer(found[1], "<f4")
        return Kept(vectors, cut, missing)

    def missing(self, texts: Sequence[str]) -> list[int]:
        """Positions of the passages that are not cached, ascending."""
        return [
            row
            for row, text in enumerate(texts)
            if self._database.execute(
                "SELECT 1 FROM vectors WHERE digest = ?", (_digest(text, False),)
            ).fetchone()
            is None
        ]

    def write(
        self,
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        cut: NDArray[np.bool_],
        *,
        query: bool = False,
    ) -> None:
        """Store the vectors of these texts, all of them or none."""
        with self._database:
            self._database.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                [
                    (_digest(text, query), int(one_cut), vector.astype("<f4").tobytes())
                    for text, vector, one_cut in zip(texts, vectors, cut, strict=True)
                ],
            )


@contextmanager
def open_vectors(folder: Path, encoder: LoadedEncoder) -> Iterator[VectorFile]:
    """Open the file of an encoder, or create it. Several processes may use it at once.

    The file of a URL, or of an object, is emptied if its probe vectors are not those of this
    encoder: another model answers under the name.

    Raises:
        StorageError: the folder cannot be written, or the file is damaged.
    """
    spec = encoder.spec
    dtype = spec.settings.dtype
    path = folder / f"{spec.fingerprint}{f'-{dtype}' if dtype else ''}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=60)) as database:
            file = VectorFile(database, spec.dimensions)
            file.expect(probe_lists(encoder))
            yield file
    except (OSError, sqlite3.DatabaseError, ValueError) as error:
        raise StorageError(
            f"{path}: the cache of vectors cannot be used ({' '.join(str(error).split())}); "
            "remove the file, set RETRIEVER_CACHE to a writable folder, or use --no-cache"
        ) from error


def embed(
    encoder: LoadedEncoder,
    texts: Sequence[str],
    folder: Path | None,
    *,
    query: bool = False,
    done: Callable[[int], object] = lambda texts: None,
) -> Embedded:
    """Encode texts, each distinct one once and none that is cached.

    Args:
        encoder: computes the vectors.
        texts: any number; may repeat.
        folder: the cache, one SQLite file for each encoder; created if missing. None caches
            nothing. Several processes may use it at once.
        query: whether they are queries, which may have another prompt.
        done: called with the number of texts after each batch.

    Raises:
        StorageError: the folder cannot be written, or the file is damaged.
    """
    unique = list(dict.fromkeys(texts))
    if folder is None:
        vectors, cut = _encode(encoder, unique, query, done)
    else:
        with open_vectors(folder, encoder) as file:
            vectors, cut = _through(file, encoder, unique, query, done)
    row = {text: number for number, text in enumerate(unique)}
    rows = np.array([row[text] for text in texts], np.int64)
    return Embedded(vectors[rows], int(cut[rows].sum()))


def _through(
    file: VectorFile,
    encoder: LoadedEncoder,
    texts: Sequence[str],
    query: bool,
    done: Callable[[int], object],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Read the cached vectors; encode and store the others block by block."""
    kept = file.read(texts, query=query)
    done(len(texts) - len(kept.missing))
    for start in range(0, len(kept.missing), _BLOCK):
        rows = kept.missing[start : start + _BLOCK]
        block = [texts[row] for row in rows]
        vectors, cut = _encode(encoder, block, query, done)
        file.write(block, vectors, cut, query=query)
        kept.vectors[rows], kept.cut[rows] = vectors, cut
    return kept.vectors, kept.cut


def cut_pieces(
    encoder: LoadedEncoder, texts: Sequence[str], *, query: bool = False
) -> tuple[list[Any], NDArray[np.bool_]]:
    """The word pieces of texts within the window, and (texts,) which texts lost their ends."""
    pieces = encoder.tokenize(texts, query=query)
    cut = np.array([len(ids) > encoder.spec.max_length for ids in pieces], np.bool_)
    long = np.flatnonzero(cut)
    shorter = encoder.truncate([texts[int(row)] for row in long], query=query)
    for row, ids in zip(long, shorter, strict=True):
        pieces[row] = ids
    return pieces, cut


def _encode(
    encoder: LoadedEncoder, texts: Sequence[str], query: bool, done: Callable[[int], object]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    pieces, cut = cut_pieces(encoder, texts, query=query)

    def count(texts: int, _: int) -> None:
        done(texts)

    return encoder.encode_pieces(pieces, count), cut


def _digest(text: str, query: bool) -> bytes:
    role = b"query\n" if query else b"passage\n"
    return hashlib.sha256(role + text.encode()).digest()
