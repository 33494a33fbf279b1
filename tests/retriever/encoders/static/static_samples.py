"""A few words with vectors, and texts of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = ["the", "The", "cat", "sat", "on", "mat", "dog", "don't", "e-mail", "state", "art", "ran"]
VECTORS = np.random.default_rng(7).standard_normal((len(WORDS), 5)).astype(np.float32) + 0.3
TEXTS = ["the cat sat on the mat", "the dog ran", "the cat ran on", "dog dog mat", "zzz", ""] * 3


def write_vectors(folder: Path) -> Path:
    """The words and their vectors in a text file that has a header."""
    path = folder / "words.vec"
    lines = [
        " ".join([word, *map(repr, map(float, row))])
        for word, row in zip(WORDS, VECTORS, strict=True)
    ]
    path.write_text(f"{len(WORDS)} 5\n" + "\n".join(lines) + "\n")
    return path
