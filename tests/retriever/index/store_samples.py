"""A collection whose encoder is at hand, so that a store and an index can be asked the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever import Document, Encoder, Index
from tests.retriever.index.moving_samples import WORDS, random_documents, word_vectors


class Lengths:
    """An encoder of some dimensions without a window: vectors tell the lengths of texts."""

    def __init__(self, dimensions: int) -> None:
        self.name = f"lengths{dimensions}"
        self._dimensions = dimensions

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[len(text), *[1] * (self._dimensions - 1)] for text in texts], np.float32)


@dataclass
class Collection:
    """Documents with the vectors of their texts."""

    model: str
    documents: list[Document]
    vectors: NDArray[np.float32]
    encoder: Encoder

    @classmethod
    def make(cls, folder: Path, count: int = 400, settings: str = "") -> Collection:
        model = f"{word_vectors(folder / 'words.txt')}{settings}"
        encoder = Encoder.load(model)
        texts = [one.text for one in random_documents(count)]
        # Texts with the same words in the same shares would tie.
        _, first = np.unique(np.round(encoder.encode(texts), 4), axis=0, return_index=True)
        documents = [
            Document(f"d{n}", texts[place], None, {"n": n, "even": n % 2 == 0, "name": f"t{n}"})
            for n, place in enumerate(sorted(first.tolist()))
        ]
        vectors = encoder.encode([one.text for one in documents])
        return cls(model, documents, vectors, encoder)

    def queries(self) -> list[str]:
        return [" ".join(WORDS[i : i + 3]) for i in range(0, 30, 3)]

    def found(self, index: Path, where: str | None = None) -> list[list[str]]:
        """The ten best documents of each query."""
        with Index.open(index, encoder=self.encoder) as opened:
            return [
                [hit.id for hit in opened.search(query, k=10, mode="dense", where=where)]
                for query in self.queries()
            ]

    def query_vectors(self) -> NDArray[np.float32]:
        return self.encoder.encode(self.queries(), query=True)
