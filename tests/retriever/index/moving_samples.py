"""Encoders of a few words that load at once, and indexes made with them."""

from __future__ import annotations

import random
from contextlib import closing

import numpy as np

from indexes.folder.view import FolderReader
from retriever import CommitSettings, Document, Index, SearchSettings

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
    """Its texts are cut into passages of at most twelve words."""
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
    """What ten queries find in each mode, with every score that does not hang on passage ids."""
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
            one.id: (
                one.title,
                one.text,
                one.metadata,
                [(start, stop) for _, start, stop in one.passages],
                view.vectors([passage for passage, _, _ in one.passages]).tolist(),
            )
            for one in view.documents()
        }
