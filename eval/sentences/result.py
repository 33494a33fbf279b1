"""The result of an evaluation of encoders on sets of sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.metrics.comparison import Score
from eval.reports import Report, ReportedResult
from eval.sentences.report import sentence_report

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class EncoderScore:
    """One encoder on one set.

    Attributes:
        encoder: its text form.
        cut: number of texts of the set that are longer than its window and lost their ends.
        values: by measure.
        extra: further numbers, as shares: correlations of the parts of a test, F1.
        note: what else a reader should know; may be empty.
        details: everything that is known, as JSON values.
        examples: (examples,) float64 for each example: the cosine or the predicted score of a pair,
            or the share of tests in which it was classified correctly.
    """

    encoder: str
    cut: int
    values: Mapping[str, Score]
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
        texts: number of different texts that were encoded.
        examples: columns of what was tested, of equal length: texts, labels or gold scores.
        scores: in the order in which the encoders were named.
        curve: if a set is learned from in several sizes, its name and this number of examples.
    """

    name: str
    facts: Mapping[str, str]
    texts: int
    examples: Mapping[str, Sequence[object]]
    scores: tuple[EncoderScore, ...]
    curve: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LayerGrid:
    """Every hidden state of a model with several poolings, on one set by one measure.

    Attributes:
        name: of the set.
        encoder: the text form of the model.
        measure: its name.
        poolings: of the columns.
        values: (hidden states, poolings) float64, the embedding output first.
        spread: like `values`, the standard deviation over the seeds; None for a single one.
        cut: number of texts that lost their ends.
        texts: number of different texts that were encoded.
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
class SentenceResult(ReportedResult):
    """An evaluation.

    Attributes:
        kind: "sts", "transfer", "probe", or "qa" for layers that rank passages.
        title: heading.
        settings: how it was made: name and text, such as the aggregation or the protocol.
        remarks: what a reader must know, one sentence each.
        measures: in the order of the report.
        sets: of the encoders' own vectors; empty if layers were scored.
        grids: layer by layer; may be empty.
        baseline: the encoder that the others are compared with; None if nothing is compared.
        device: as asked for.
        command: reproduces the result; may be empty.
    """

    kind: str
    title: str
    settings: Mapping[str, str]
    remarks: tuple[str, ...]
    measures: tuple[str, ...]
    sets: tuple[SetScores, ...] = ()
    grids: tuple[LayerGrid, ...] = ()
    baseline: str | None = None
    device: str | None = None
    command: str = ""

    def report(self) -> Report:
        """The result for a reader, with the values of examples as files."""
        return sentence_report(self)
