"""What makes a probing set, and what it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from eval.datasets.probing.balance import Instance
from eval.datasets.probing.sentences import Sample, Sentence


@dataclass(frozen=True, slots=True)
class MadeSet:
    """A probing set.

    Attributes:
        task: "sentlen", "wc" or "bshift".
        splits: "tr", "va" and "te" to their instances.
        labels: how many there are.
        facts: of this task, ready for JSON.
    """

    task: str
    splits: Mapping[str, list[Instance]]
    labels: int
    facts: Mapping[str, object]


class Maker(ABC):
    """Makes one set from sentences that it sees once or twice.

    Attributes:
        task: the set's.
        passes: how often it must see all sentences: 1 or 2.
    """

    task: str
    passes: int

    @abstractmethod
    def see(self, sentence: Sentence, number: int) -> None:
        """See a sentence, in pass 1 or 2."""

    @abstractmethod
    def made(self) -> MadeSet:
        """The set; raises SourceError where the corpus is too small for it."""


def instances(sample: Sample, label: str) -> list[Instance]:
    """The sentences of a sample as they are, by rank."""
    return [Instance(one.order, label, " ".join(one.tokens)) for one in sample.sentences()]
