"""Words of a corpus by several encoders, read as a stream that can be resumed.

The sums of products that determine covariances, or the words themselves, are committed to disk
under a key of texts and sources. The same run resumes after the last commit. It reads texts in the
same groups, so it ends with the same bits.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import storage_errors
from retriever.encoders.computing import BATCH_PIECES, filled_batches
from retriever.encoders.meta.linear import Floats, Integers, Moments
from retriever.encoders.meta.sources import MetaPieces, MetaSources, WordBatch, word_types
from retriever.training.checkpoint import ArrayCheckpoint
from retriever.training.sampling import Reservoir

Done = Callable[[int, int], None]

# Texts of a group. A commit follows a group.
_GROUP = 512
# Least seconds between commits.
_SECONDS = 10.0


def draw_texts(texts: Iterable[str], size: int, seed: int) -> tuple[list[str], int]:
    """Draw a uniform sample of the texts of a stream, in order; return it and their number."""
    reservoir = Reservoir[tuple[int, str]](size, seed)
    for text in texts:
        if text.strip():
            reservoir.add((reservoir.seen, text))
    return [text for _, text in sorted(reservoir.items)], reservoir.seen


def corpus_key(sources: MetaSources, texts: Sequence[str]) -> str:
    """Return the SHA-256 over sources, level and texts."""
    digest = hashlib.sha256()
    facts = [sources.level, *(spec.fingerprint for spec in sources.specs)]
    for part in (*facts, *texts):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def read_moments(
    sources: MetaSources, texts: Sequence[str], work: Path, done: Done, seconds: float = _SECONDS
) -> Moments:
    """Compute the moments of the words of all texts."""
    with storage_errors(work):
        work.mkdir(exist_ok=True)
    key = corpus_key(sources, texts)
    checkpoint = ArrayCheckpoint(work / f"moments-{key}", {"texts": key}, seconds)
    moments = Moments.empty(sources.widths)
    first = 0
    if (stored := checkpoint.read()) is not None:
        tensors, values = stored
        moments.gram = tensors["gram"]
        moments.words = values["words"]
        first = values["texts"]
    done(first, 0)
    for start in range(first, len(texts), _GROUP):
        group = texts[start : start + _GROUP]
        for _, batch in _batches(sources, group):
            vectors, _ = sources.vectors(batch)
            moments.add(vectors)
            done(len(batch), sum(map(len, batch)))
        if checkpoint.due():
            values = {"words": moments.words, "texts": start + len(group)}
            checkpoint.write({"gram": moments.gram}, values)
    return moments


@dataclass(frozen=True, slots=True, eq=False)
class StoredWords:
    """Arrays of a `WordBatch` on disk, and (sentences + 1,) starts of the words of each."""

    vectors: tuple[Floats, ...]
    types: Integers
    starts: Integers

    def batch(self, sentences: Integers) -> WordBatch:
        """Return the words of sentences, renumbered 0, 1, ... in this order."""
        counts = self.starts[sentences + 1] - self.starts[sentences]
        before = np.cumsum(counts) - counts
        rows = np.arange(int(counts.sum())) + np.repeat(self.starts[sentences] - before, counts)
        return WordBatch(
            tuple(np.ascontiguousarray(vectors[rows]) for vectors in self.vectors),
            np.repeat(np.arange(len(sentences)), counts),
            self.types[rows],
        )

    def batches(self, sentences: Integers, size: int) -> Iterator[WordBatch]:
        """Yield the words of sentences, `size` sentences at a time."""
        for start in range(0, len(sentences), size):
            yield self.batch(sentences[start : start + size])


def store_words(sources: MetaSources, texts: Sequence[str], work: Path, done: Done) -> StoredWords:
    """Write the words of all texts to disk. Their counts, written last, commit a group."""
    work = work / f"stored-{corpus_key(sources, texts)}"
    # Bytes of a row of each file.
    sizes = {f"vectors.{j}": 4 * width for j, width in enumerate(sources.widths)}
    sizes |= {"types": 8, "counts": 8}
    with storage_errors(work), ExitStack() as stack:
        work.mkdir(parents=True, exist_ok=True)
        files = [stack.enter_context((work / name).open("a+b")) for name in sizes]
        committed = np.fromfile(work / "counts", "<i8")
        first = len(committed)
        if first < len(texts):
            # Only whole groups count.
            first -= first % _GROUP
        words = int(committed[:first].sum())
        done(first, 0)
        for file, (name, size) in zip(files, sizes.items(), strict=True):
            file.truncate(size * (first if name == "counts" else words))
        for start in range(first, len(texts), _GROUP):
            vectors, types, counts = _encode_group(sources, texts[start : start + _GROUP], done)
            for file, part in zip(files, (*vectors, types, counts), strict=True):
                file.write(np.ascontiguousarray(part).tobytes())
                file.flush()
                os.fsync(file.fileno())
            words += len(types)

        def map_file(name: str, dtype: str, *shape: int) -> NDArray[Any]:
            if not words:
                # An empty file cannot be mapped.
                return np.empty(shape, dtype)
            return np.memmap(work / name, dtype, "r", shape=shape)

        vectors = [map_file(f"vectors.{j}", "<f4", words, d) for j, d in enumerate(sources.widths)]
        starts = np.cumsum([0, *np.fromfile(work / "counts", "<i8")])
        return StoredWords(tuple(vectors), map_file("types", "<i8", words), starts)


def _encode_group(
    sources: MetaSources, texts: Sequence[str], done: Done
) -> tuple[list[Floats], Integers, Integers]:
    """Return vectors, types and numbers of words of a group of texts, in order."""
    parts: list[list[Floats]] = [[np.zeros((0, width), np.float32)] for width in sources.widths]
    owners: list[Integers] = [np.zeros(0, np.int64)]
    types: list[list[int]] = [[] for _ in texts]
    for rows, batch in _batches(sources, texts):
        vectors, sentences = sources.vectors(batch)
        for part, source_vectors in zip(parts, vectors, strict=True):
            part.append(source_vectors)
        owners.append(rows[sentences])
        for row, pieces in zip(rows.tolist(), batch, strict=True):
            spans = pieces.spans if sources.level == "word" else [(0, len(pieces.text))]
            types[row] = word_types(pieces.text, spans)
        done(len(batch), sum(map(len, batch)))
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(texts)).astype(np.int64)
    forms = np.array([type_ for text_types in types for type_ in text_types], np.int64)
    return [np.concatenate(part)[order] for part in parts], forms, counts


def _batches(
    sources: MetaSources, texts: Sequence[str]
) -> Iterator[tuple[NDArray[np.int64], list[MetaPieces]]]:
    """Yield rows and pieces of the texts of a group that have pieces, cut to the window."""
    pieces = sources.tokenize(texts, sources.window)
    for rows in filled_batches(pieces, BATCH_PIECES["float32"]):
        yield rows, [pieces[row] for row in rows]
