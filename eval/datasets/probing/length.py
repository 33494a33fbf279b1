"""SentLen: how many tokens a sentence has."""

from __future__ import annotations

from eval.datasets.probing.balance import balanced_splits, published_sizes
from eval.datasets.probing.maker import MadeSet, Maker, instances
from eval.datasets.probing.sentences import Sample, Sentence

LENGTHS = {"0": (5, 8), "1": (9, 12), "2": (13, 16), "3": (17, 20), "4": (21, 25), "5": (26, 28)}
"""Label to the least and the most tokens, as in SentEval's file."""


class LengthMaker(Maker):
    """Makes SentLen."""

    task, passes = "sentlen", 1

    def __init__(self) -> None:
        size = published_sizes(len(LENGTHS)).total
        self._samples = {label: Sample(size) for label in LENGTHS}
        self._bins = {
            length: label
            for label, (least, most) in LENGTHS.items()
            for length in range(least, most + 1)
        }

    def see(self, sentence: Sentence, number: int) -> None:
        """Offer the sentence to the sample of its bin."""
        if number == 1:
            self._samples[self._bins[len(sentence.tokens)]].offer(sentence)

    def made(self) -> MadeSet:
        """The set; raises SourceError where a bin has too few sentences."""
        classes = {label: instances(sample, label) for label, sample in self._samples.items()}
        splits = balanced_splits(
            self.task,
            classes,
            f"name a larger corpus (label 0 is of {LENGTHS['0'][0]} to {LENGTHS['0'][1]} tokens, 5 "
            f"of {LENGTHS['5'][0]} to {LENGTHS['5'][1]})",
        )
        return MadeSet(self.task, splits, len(classes), {})
