"""A corpus read word by word under several encoders, resumed where it was killed.

Sums of products, from which covariances follow, or the words themselves are committed to disk under
a key that names texts and sources. The same run resumes after the last commit and, since texts are
read in the same groups, ends with the same bits.
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

from indexes import storage_errors
from retriever.encoders.computing import BATCH_PIECES, filled_batches
from retriever.encoders.meta.linear import Floats, Integers, Moments
from retriever.encoders.meta.sources import MetaPieces, Sources, WordBatch, word_types
from retriever.training.checkpoint import Checkpoint
from retriever.training.sampling import Reservoir

Done = Callable[[int, int], None]

# Texts that are read together; a commit is between two groups.
_GROUP = 512
_SECONDS = 10.0


def draw_texts(texts: Iterable[str], most: int, seed: int) -> tuple[list[str], int]:
    """Texts of a stream, each with the same chance, in the order of the stream."""
    drawn = Reservoir[tuple[int, str]](most, seed)
    for text in texts:
        if text.strip():
            drawn.add((drawn.seen, text))
    return [text for _, text in sorted(drawn.items)], drawn.seen


def corpus_key(sources: Sources, texts: Sequence[str]) -> str:
    """A SHA-256 over what decides the words: sources, level and texts."""
    digest = hashlib.sha256()
    facts = [sources.level, *(spec.fingerprint for spec in sources.specs)]
    for part in (*facts, *texts):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def read_moments(
    sources: Sources, texts: Sequence[str], work: Path, done: Done, seconds: float = _SECONDS
) -> Moments:
    """Sums over the words of all texts."""
    import torch

    with storage_errors(work):
        work.mkdir(exist_ok=True)
    key = corpus_key(sources, texts)
    checkpoint = Checkpoint(work / f"moments-{key}", {"texts": key}, seconds)
    moments = Moments.empty(sources.widths)
    first = 0
    if (state := checkpoint.read()) is not None:
        tensors, values = state
        moments.gram = tensors["gram"].numpy()
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
            checkpoint.write({"gram": torch.from_numpy(moments.gram)}, values)
    return moments


@dataclass(frozen=True, slots=True, eq=False)
class StoredWords:
    """Arrays of a `WordBatch` on disk, and (sentences + 1,) where the words of each begin."""

    vectors: tuple[Floats, ...]
    types: Integers
    starts: Integers

    def batch(self, sentences: Integers) -> WordBatch:
        """The words of some sentences, numbered 0, 1, ... in this order."""
        counts = self.starts[sentences + 1] - self.starts[sentences]
        before = np.cumsum(counts) - counts
        rows = np.arange(int(counts.sum())) + np.repeat(self.starts[sentences] - before, counts)
        return WordBatch(
            tuple(np.ascontiguousarray(one[rows]) for one in self.vectors),
            np.repeat(np.arange(len(sentences)), counts),
            self.types[rows],
        )

    def batches(self, sentences: Integers, size: int) -> Iterator[WordBatch]:
        """The words of some sentences, `size` of them at a time."""
        for start in range(0, len(sentences), size):
            yield self.batch(sentences[start : start + size])


def store_words(sources: Sources, texts: Sequence[str], work: Path, done: Done) -> StoredWords:
    """Write the words of all texts to disk, group by group; the counts come last and commit it."""
    work = work / f"stored-{corpus_key(sources, texts)}"
    # Bytes of a row.
    sizes = {f"vectors.{j}": 4 * width for j, width in enumerate(sources.widths)}
    sizes |= {"types": 8, "counts": 8}
    with storage_errors(work), ExitStack() as stack:
        work.mkdir(parents=True, exist_ok=True)
        files = [stack.enter_context((work / name).open("a+b")) for name in sizes]
        committed = np.fromfile(work / "counts", "<i8")
        first = len(committed)
        if first < len(texts):
            # A part of a group may have been written.
            first -= first % _GROUP
        words = int(committed[:first].sum())
        done(first, 0)
        for file, (name, size) in zip(files, sizes.items(), strict=True):
            file.truncate(size * (first if name == "counts" else words))
        for start in range(first, len(texts), _GROUP):
            vectors, types, counts = _words_of(sources, texts[start : start + _GROUP], done)
            for file, part in zip(files, (*vectors, types, counts), strict=True):
                file.write(np.ascontiguousarray(part).tobytes())
                file.flush()
                os.fsync(file.fileno())
            words += len(types)

        def mapped(name: str, dtype: str, *shape: int) -> NDArray[Any]:
            if not words:
                # An empty file cannot be mapped.
                return np.empty(shape, dtype)
            return np.memmap(work / name, dtype, "r", shape=shape)

        vectors = [mapped(f"vectors.{j}", "<f4", words, d) for j, d in enumerate(sources.widths)]
        starts = np.cumsum([0, *np.fromfile(work / "counts", "<i8")])
        return StoredWords(tuple(vectors), mapped("types", "<i8", words), starts)


def _words_of(
    sources: Sources, texts: Sequence[str], done: Done
) -> tuple[list[Floats], Integers, Integers]:
    """Vectors, types and numbers of words of a group of texts, in order."""
    parts: list[list[Floats]] = [[np.zeros((0, width), np.float32)] for width in sources.widths]
    owners: list[Integers] = [np.zeros(0, np.int64)]
    types: list[list[int]] = [[] for _ in texts]
    for rows, batch in _batches(sources, texts):
        vectors, sentences = sources.vectors(batch)
        for part, found in zip(parts, vectors, strict=True):
            part.append(found)
        owners.append(rows[sentences])
        for row, one in zip(rows.tolist(), batch, strict=True):
            spans = one.spans if sources.level == "word" else [(0, len(one.text))]
            types[row] = word_types(one.text, spans)
        done(len(batch), sum(map(len, batch)))
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(texts)).astype(np.int64)
    forms = np.array([form for one in types for form in one], np.int64)
    return [np.concatenate(part)[order] for part in parts], forms, counts


def _batches(
    sources: Sources, texts: Sequence[str]
) -> Iterator[tuple[NDArray[np.int64], list[MetaPieces]]]:
    """Rows and pieces of the texts of a group, cut at the window; texts without pieces left out."""
    pieces = sources.tokenize(texts, sources.window)
    for rows in filled_batches(pieces, BATCH_PIECES["float32"]):
        yield rows, [pieces[row] for row in rows]
