"""Random texts and metadata, and an encoder of few distinct vectors."""

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from tests.indexes.where_reference import FILTERS, NAMES

WORDS = ["apple", "pear", "plum", "fig", "nut", "oat", "rye", "bean"]
VALUES = [
    0, 1, -1, 2, 1.0, 0.5, 1e300, -0.0, 1e16, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, "a", "A", "é",
    "b'", "%", "", True, False, None, ["a", 1, "é"], [[1]], {"a": 1, "b": "x"},
]  # fmt: skip


class WordDirections:
    """An encoder with few distinct vectors, so that many scores are equal."""

    name = "word-directions"
    max_length = 8

    def encode(self, sentences):
        rows = np.full((len(sentences), 6), 0.01)
        for row, text in zip(rows, sentences, strict=True):
            for word in text.split():
                row[WORDS.index(word) % 6 if word in WORDS else 0] += 1
        return rows


def random_metadata(chance):
    names = chance.sample(NAMES, k=chance.randint(0, 4))
    return {name: chance.choice(VALUES) for name in names}


def random_filters(count):
    """Return `count` random filters, the same in each run."""
    filters = []

    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(FILTERS)
    def collect(example):
        filters.append(example)

    collect()
    return filters
