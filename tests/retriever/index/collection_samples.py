"""Encoders of a few words that load at once, and indexes made with them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.folder.view import FolderReader
from retriever import CommitSettings, Document, Encoder, Index, SearchSettings

WORDS = [f"w{number}" for number in range(60)]
SMALL = CommitSettings(passages=40, window_passages=40)
MODES = ("dense", "bm25", "hybrid")


def word_vectors(path, *, seed=0, dimensions=8):
    """A file of word vectors, which is a model: a text is the mean of its words."""
    chance = np.random.default_rng(seed)
    with path.open("w") as file:
        for word in WORDS:
            numbers = " ".join(f"{number:.5f}" for number in chance.standard_normal(dimensions))
            file.write(f"{word} {numbers}\n")
    return path


def choice_of(path, settings="max-length=12"):
    """Return an encoder expression; by default, passages have at most twelve words."""
    return f"{path}::{settings}" if settings else str(path)


def random_documents(count, seed=0):
    chance = random.Random(seed)
    documents = []
    for number in range(count):
        text = " ".join(chance.choices(WORDS, k=chance.randint(1, 30)))
        title = " ".join(chance.choices(WORDS, k=2)) if chance.random() < 0.5 else None
        documents.append(Document(f"d{number}", text, title, {"n": number, "é": [None, 1.5]}))
    return documents


def make_index(folder, choice, documents, **settings):
    with Index.create(folder, choice, **settings) as index:
        index.add(documents, commit=SMALL)
    return folder


def answers(folder, k=20, seed=1):
    """Return the hits of ten queries in each mode, without passage ids."""
    chance = random.Random(seed)
    queries = [" ".join(chance.choices(WORDS, k=3)) for _ in range(10)]
    with Index.open(folder) as index:
        return [
            [
                (hit.id, hit.score, hit.title, hit.passage, hit.metadata)
                for hit in index.search(query, SearchSettings(mode=mode, k=k))
            ]
            for mode in MODES
            for query in queries
        ]


def stored(folder):
    """{id: (title, text, metadata, spans, vectors)} of an index."""
    with closing(FolderReader(folder)) as reader, reader.view() as view:
        return {
            document.id: (
                document.title,
                document.text,
                document.metadata,
                [(start, stop) for _, start, stop in document.passages],
                view.vectors([passage for passage, _, _ in document.passages]).tolist(),
            )
            for document in view.documents()
        }


class Lengths:
    """An encoder of some dimensions without a window: vectors tell the lengths of texts."""

    def __init__(self, dimensions: int) -> None:
        self.name = f"lengths{dimensions}"
        self._dimensions = dimensions

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[len(text), *[1] * (self._dimensions - 1)] for text in texts], np.float32)


@dataclass
class Collection:
    """Documents with the vectors of their texts, and the encoder: a store and an index answer."""

    model: str
    documents: list[Document]
    vectors: NDArray[np.float32]
    encoder: Encoder

    @classmethod
    def make(cls, folder: Path, count: int = 400, settings: str = "") -> Collection:
        model = f"{word_vectors(folder / 'words.txt')}{settings}"
        encoder = Encoder.load(model)
        texts = [document.text for document in random_documents(count)]
        # Texts with the same words in the same shares would tie.
        _, first = np.unique(np.round(encoder.encode(texts), 4), axis=0, return_index=True)
        documents = [
            Document(f"d{n}", texts[place], None, {"n": n, "even": n % 2 == 0, "name": f"t{n}"})
            for n, place in enumerate(sorted(first.tolist()))
        ]
        vectors = encoder.encode([document.text for document in documents])
        return cls(model, documents, vectors, encoder)

    def queries(self) -> list[str]:
        return [" ".join(WORDS[i : i + 3]) for i in range(0, 30, 3)]

    def top_tens(self, index: Path, where: str | None = None) -> list[list[str]]:
        """Return the ids of the ten best documents of each query."""
        with Index.open(index, encoder=self.encoder) as opened:
            return [
                [hit.id for hit in opened.search(query, k=10, mode="dense", where=where)]
                for query in self.queries()
            ]

    def query_vectors(self) -> NDArray[np.float32]:
        return self.encoder.encode(self.queries(), query=True)
