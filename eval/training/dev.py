"""What chooses an epoch of an encoder: a measure of it on held-out data."""

from __future__ import annotations

import hashlib
import json
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs
from eval.metrics.correlation import RANKED_DECIMALS, Correlation, cosines
from eval.qa.pools import DEV_MEASURE, DevScore, EmbeddedPairs
from retriever.encoders.training.examples import LabeledExamples
from retriever.encoders.training.model import TrainableEncoder
from retriever.errors import BadInputError
from retriever.training.sampling import TrainingSet


class DevMeasure(Protocol):
    """Scores an encoder; higher is better.

    Attributes:
        name: of the measure.
    """

    name: str

    def __call__(self, encoder: TrainableEncoder) -> float:
        """The score, at most 1."""
        ...

    def digest(self) -> str:
        """SHA-256 over the data, in hexadecimal."""
        ...

    def __len__(self) -> int:
        """Number of questions or pairs."""
        ...


class PoolRanking:
    """Mean average precision of the cosine on questions with pools."""

    name = DEV_MEASURE

    def __init__(self, dev: DevScore) -> None:
        self._dev = dev
        self._questions, self._question = _distinct(dev.left)
        self._passages, self._passage = _distinct(dev.right)

    def __call__(self, encoder: TrainableEncoder) -> float:
        """In [0, 1]."""
        pairs = EmbeddedPairs(
            encoder.encode(self._questions, query=True),
            encoder.encode(self._passages),
            self._question,
            self._passage,
            cut=0,
        )
        return self._dev(pairs.cosines())

    def digest(self) -> str:
        """As that of the data of rerankers."""
        return self._dev.digest()

    def __len__(self) -> int:
        return len(self._dev.questions)


class HeldOutRanking:
    """Mean reciprocal rank of an anchor's first relevant passage among all held-out passages.

    Equal cosines count as if the relevant passage came last, as do those that are not a number.

    Args:
        data: held-out anchors with their passages.
    """

    name = "RR"

    def __init__(self, data: TrainingSet) -> None:
        self._data = data

    def __call__(self, encoder: TrainableEncoder) -> float:
        """In (0, 1]."""
        data = self._data
        v = encoder.encode(data.passages)
        u = encoder.encode(data.questions, query=True)
        rows, everything = np.arange(len(data.questions)), np.arange(len(data.passages))
        total = 0.0
        for part in np.array_split(rows, -(-len(rows) // _ROWS_AT_ONCE)):
            scores = np.round(u[part] @ v.T, RANKED_DECIMALS)
            relevant = data.pools.relevant(part, everything)
            best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)
            ranks = 1 + (~(scores < best) & ~relevant).sum(axis=1)
            total += float((1 / ranks).sum())
        return total / len(rows)

    def digest(self) -> str:
        """That of the data."""
        return self._data.digest()

    def __len__(self) -> int:
        return len(self._data.questions)


class Similarity:
    """Spearman's correlation of the cosines of pairs with their scores.

    Args:
        pairs: at least two, with different scores.

    Raises:
        BadInputError: they are not.
    """

    name = "Spearman"

    def __init__(self, pairs: ScoredPairs) -> None:
        try:
            self._correlation = Correlation(pairs.gold)
        except BadInputError as error:
            raise BadInputError(f"dev: {error}") from error
        self._pairs = pairs
        self._texts, self._rows = _distinct([*pairs.left, *pairs.right])

    def __call__(self, encoder: TrainableEncoder) -> float:
        """In [-1, 1]."""
        vectors = encoder.encode(self._texts)
        left, right = np.split(self._rows, 2)
        return float(self._correlation(cosines(vectors[left], vectors[right])[None])[0])

    def digest(self) -> str:
        """SHA-256 over texts and scores."""
        content = [self._pairs.left, self._pairs.right, self._pairs.gold.tolist()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._pairs)


class Accuracy:
    """The share of pairs whose class the softmax classifier of the training gets right.

    Args:
        data: held-out pairs; the classes are those of the training data.
    """

    name = "accuracy"

    def __init__(self, data: LabeledExamples) -> None:
        self._data = data

    def __call__(self, encoder: TrainableEncoder) -> float:
        """In [0, 1]."""
        found = encoder.classify(self._data.left, self._data.right)
        return float((found == self._data.labels).mean())

    def digest(self) -> str:
        """That of the data."""
        return self._data.digest()

    def __len__(self) -> int:
        return len(self._data)


_ROWS_AT_ONCE = 512


def _distinct(texts: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Each text once, and the row of each given one."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return list(rows), np.array([rows[text] for text in texts], np.int64)
