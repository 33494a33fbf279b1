"""What an evaluation of encoders on sets of sentences comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from eval.qa.result import environment
from retriever.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """An encoder against the baseline, on one set by one measure.

    Attributes:
        value: of the encoder less that of the baseline.
        low, high: its 95% bootstrap interval.
        p: of the paired test, two-sided.
        adjusted: p after Holm's correction over the encoders that are compared.
    """

    value: float
    low: float
    high: float
    p: float
    adjusted: float


@dataclass(frozen=True, slots=True)
class Value:
    """An encoder on one set by one measure.

    Attributes:
        value: a correlation in [-1, 1], or an accuracy in [0, 1]; the mean over the seeds.
        spread: the standard deviation (n - 1) over the seeds, or over the divisions of a search for
            layers; None where there is one.
        low, high: its 95% bootstrap interval over the examples.
        difference: from the baseline; None for the baseline itself.
    """

    value: float
    spread: float | None
    low: float
    high: float
    difference: Difference | None


@dataclass(frozen=True, slots=True, eq=False)
class EncoderScore:
    """One encoder on one set.

    Attributes:
        encoder: its text form.
        cut: how many texts of the set were longer than its window and lost their end.
        values: by measure.
        extra: further numbers, as shares: correlations of the parts of a test, F1.
        note: what else a reader should know; or empty.
        details: all that is known, as objects that JSON has.
        examples: (examples,) float64 for each example: the cosine or the predicted score of a pair,
            or how often it was classified rightly.
    """

    encoder: str
    cut: int
    values: Mapping[str, Value]
    extra: Mapping[str, float]
    note: str
    details: Mapping[str, object]
    examples: Floats


@dataclass(frozen=True, slots=True, eq=False)
class SetScores:
    """All encoders on one set.

    Attributes:
        name: of the set.
        facts: what it is like: name and text.
        texts: different ones that were encoded.
        examples: the columns of what was tested, of equal length: texts, labels or gold scores.
        scores: in the order in which encoders were named.
    """

    name: str
    facts: Mapping[str, str]
    texts: int
    examples: Mapping[str, Sequence[object]]
    scores: tuple[EncoderScore, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerGrid:
    """Every hidden state of a model under several poolings, on one set by one measure.

    Attributes:
        name: of the set.
        encoder: the text form of the model.
        measure: which one.
        poolings: of the columns.
        values: (hidden states, poolings) float64, the embedding output first.
        spread: as `values`, the standard deviation over the seeds; None where there is one.
        cut: texts that lost their end.
        texts: different ones that were encoded.
    """

    name: str
    encoder: str
    measure: str
    poolings: tuple[str, ...]
    values: Floats
    spread: Floats | None
    cut: int
    texts: int

    @property
    def best(self) -> tuple[int, str]:
        """Hidden state and pooling of the highest value; the first one of equal ones."""
        layer, column = divmod(int(np.argmax(self.values)), len(self.poolings))
        return layer, self.poolings[column]


@dataclass(frozen=True, slots=True, eq=False)
class SentenceResult:
    """An evaluation.

    Attributes:
        kind: "sts", "transfer" or "probe".
        title: a heading.
        settings: how it was made: name and text, such as the aggregation or the protocol.
        remarks: what a reader has to know, a sentence each.
        measures: in the order of the report.
        sets: of the encoders' own vectors; empty where layers were looked at.
        grids: layer by layer; or empty.
        baseline: the encoder that others are compared with; None where nothing is compared.
        command: what prints it again.
        environment: name to version of what decides the figures.
    """

    kind: str
    title: str
    settings: Mapping[str, str]
    remarks: tuple[str, ...]
    measures: tuple[str, ...]
    sets: tuple[SetScores, ...] = ()
    grids: tuple[LayerGrid, ...] = ()
    baseline: str | None = None
    command: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def layer_grid(
    name: str,
    encoder: str,
    measure: str,
    poolings: Sequence[str],
    cells: Sequence[Sequence[tuple[float, float | None]]],
    cut: int,
    texts: int,
) -> LayerGrid:
    """A grid from value and spread of each hidden state, pooling by pooling."""
    values = np.array([[value for value, _ in column] for column in cells]).T
    spreads = [[spread for _, spread in column] for column in cells]
    known = all(spread is not None for column in spreads for spread in column)
    spread = np.array(spreads, np.float64).T if known else None
    return LayerGrid(name, encoder, measure, tuple(poolings), values, spread, cut, texts)


def check_baseline(baseline: str | None, encoders: Sequence[str]) -> str:
    """The encoder that the others are compared with; None is the first.

    Raises:
        ConfigError: it is none of them.
    """
    if baseline is None:
        return encoders[0]
    if baseline not in encoders:
        raise ConfigError(
            f"baseline: expected one of the encoders ({', '.join(encoders)}), found {baseline!r}"
        )
    return baseline


def sentence_environment(device: str | None) -> dict[str, str]:
    """Name to version of what decides the figures, classifiers included."""
    found = environment(device)
    for name in ("scikit-learn", "scipy"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
