"""Probing sets that need no parser, made from any corpus of sentences.

Like SentEval's own (Conneau et al., "What you can cram into a single $&!#* vector", ACL 2018, and
the description that comes with its files):

- *SentLen*: the number of tokens, in six bins.
- *WC*: which of 1,000 words of medium frequency a sentence contains.
- *BShift*: whether two adjacent words are swapped.

Sentences have 5 to 28 tokens. Sentences that differ only in case count as one, written as the first
of them, and no sentence is in two splits. What is drawn depends on the seed and on the sentences,
not on their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from eval.datasets.probing.balance import (
    LEAST_HELD,
    Instance,
    balanced_splits,
    published_sizes,
)
from eval.datasets.probing.sentences import (
    LONGEST,
    SHORTEST,
    Sample,
    Sentence,
    folded,
    is_word,
    sentence_of,
)
from retriever.errors import ConfigError, SourceError

LENGTHS = {"0": (5, 8), "1": (9, 12), "2": (13, 16), "3": (17, 20), "4": (21, 25), "5": (26, 28)}
"""SentLen: label to the minimum and maximum number of tokens, as in SentEval's file."""
WORDS = 1_000
"""WC: default number of words."""
FIRST_RANK = 2_001
"""WC: rank by frequency, from 1, of the first word."""
_LEAST_LETTERS = 4
_QUOTES = frozenset('"“”„«»')
_QUOTED = frozenset({"``", "''"})
# Spares for swaps that make a sentence of the corpus.
_SPARE = 1.05


@dataclass(frozen=True, slots=True)
class ProbingSet:
    """A probing set.

    Attributes:
        task: "sentlen", "wc" or "bshift".
        splits: "tr", "va" and "te" to their instances.
        labels: number of labels.
        facts: of this task, as JSON values.
    """

    task: str
    splits: Mapping[str, list[Instance]]
    labels: int
    facts: Mapping[str, object]


class Maker(ABC):
    """Makes one set from sentences that it sees once or twice.

    Attributes:
        task: of the set.
        passes: number of times that it must see all sentences: 1 or 2.
    """

    task: str
    passes: int

    @abstractmethod
    def see(self, sentence: Sentence, number: int) -> None:
        """See a sentence, in pass 1 or 2."""

    @abstractmethod
    def made(self) -> ProbingSet:
        """The set; raises SourceError if the corpus is too small for it."""


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

    def made(self) -> ProbingSet:
        """The set; raises SourceError if a bin has too few sentences."""
        classes = {label: instances(sample, label) for label, sample in self._samples.items()}
        splits = balanced_splits(
            self.task,
            classes,
            f"name a larger corpus (label 0 is of {LENGTHS['0'][0]} to {LENGTHS['0'][1]} tokens, 5 "
            f"of {LENGTHS['5'][0]} to {LENGTHS['5'][1]})",
        )
        return ProbingSet(self.task, splits, len(classes), {})


class WordMaker(Maker):
    """Makes WC.

    The words are the first lower-case ones of at least four letters, and nothing but letters, among
    the corpus's tokens by frequency from rank 2,001; equal frequencies are ordered by code points.
    A sentence contains exactly one of them, once, in any case.
    """

    task, passes = "wc", 2

    def __init__(self, words: int = WORDS) -> None:
        if words < 2:
            raise ConfigError(f"words: expected 2 or more, found {words}")
        self._words = words
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, Sample] = {}
        self._last_rank = 0

    def see(self, sentence: Sentence, number: int) -> None:
        """Count its tokens, then offer it to the sample of its word."""
        if number == 1:
            self._counts.update(sentence.tokens)
            return
        if not self._samples:
            self._choose()
        found = [word for token in sentence.tokens if (word := token.lower()) in self._samples]
        if len(found) == 1:
            self._samples[found[0]].offer(sentence)

    def _choose(self) -> None:
        by_frequency = sorted(self._counts, key=lambda token: (-self._counts[token], token))
        size = published_sizes(self._words).total
        for rank, token in enumerate(by_frequency[FIRST_RANK - 1 :], FIRST_RANK):
            if token.isalpha() and token == token.lower() and len(token) >= _LEAST_LETTERS:
                self._samples[token] = Sample(size)
                self._last_rank = rank
                if len(self._samples) == self._words:
                    return
        fewer = ", or fewer words with --words" if len(self._samples) > 1 else ""
        raise SourceError(
            f"{self.task}: expected {self._words:,} words of {_LEAST_LETTERS} letters or more from "
            f"rank {FIRST_RANK:,} of the corpus's tokens, found {len(self._samples):,} among "
            f"{len(by_frequency):,} tokens; name a larger corpus{fewer}"
        )

    def made(self) -> ProbingSet:
        """The set; raises SourceError if a word has too few sentences."""
        classes = {word: instances(sample, word) for word, sample in self._samples.items()}
        # With fewer words than this, each word needs more sentences.
        fewer = ", or fewer words with --words" if self._words > LEAST_HELD else ""
        splits = balanced_splits(self.task, classes, f"name a larger corpus{fewer}")
        facts = {"words": self._words, "ranks": [FIRST_RANK, self._last_rank]}
        return ProbingSet(self.task, splits, len(classes), facts)


class ShiftMaker(Maker):
    """Makes BShift.

    In half of the sentences (label I, the others are O) two adjacent tokens are swapped: neither is
    the first of the sentence or punctuation, and they are not the same word. Sentences with double
    quotes, or without two such tokens, are in neither half. A swap that makes a sentence of the
    corpus, or one that has been made before, is dropped.
    """

    task, passes = "bshift", 2

    def __init__(self) -> None:
        size = published_sizes(2).total
        self._kept = Sample(size)
        self._shifted = Sample(int(size * _SPARE))
        self._made: dict[str, Instance] = {}
        self._swapped = 0

    def see(self, sentence: Sentence, number: int) -> None:
        """Offer it to one half, then drop the swap that makes it."""
        if number == 1:
            if _places(sentence.tokens):
                half = self._shifted if sentence.choice % 2 else self._kept
                half.offer(sentence)
            return
        if not self._swapped:
            self._swap()
        self._made.pop(folded(sentence.tokens), None)

    def _swap(self) -> None:
        for sentence in self._shifted.sentences():
            tokens = list(sentence.tokens)
            places = _places(sentence.tokens)
            place = places[(sentence.choice >> 1) % len(places)]
            tokens[place], tokens[place + 1] = tokens[place + 1], tokens[place]
            self._made.setdefault(
                folded(tuple(tokens)), Instance(sentence.order, "I", " ".join(tokens))
            )
        self._swapped = len(self._shifted)

    def made(self) -> ProbingSet:
        """The set; raises SourceError if there are too few sentences."""
        classes = {"I": list(self._made.values()), "O": instances(self._kept, "O")}
        splits = balanced_splits(self.task, classes, "name a larger corpus")
        dropped = self._swapped - len(self._made)
        return ProbingSet(self.task, splits, len(classes), {"dropped": dropped})


def _places(tokens: tuple[str, ...]) -> list[int]:
    """Places where a token and the next one can be swapped, ascending."""
    if any(token in _QUOTED or not _QUOTES.isdisjoint(token) for token in tokens):
        return []
    words = [is_word(token) for token in tokens]
    return [
        place
        for place in range(1, len(tokens) - 1)
        if words[place]
        and words[place + 1]
        and tokens[place].casefold() != tokens[place + 1].casefold()
    ]


def instances(sample: Sample, label: str) -> list[Instance]:
    """The sentences of a sample as they are, by rank."""
    return [Instance(one.order, label, " ".join(one.tokens)) for one in sample.sentences()]


MAKERS: Mapping[str, Callable[[], Maker]] = {
    "sentlen": LengthMaker,
    "wc": WordMaker,
    "bshift": ShiftMaker,
}
"""Task to what makes its set with the published settings."""


def make_sets(
    texts: Callable[[], Iterable[str]], makers: Iterable[Maker], *, seed: int = 0
) -> tuple[list[ProbingSet], int, int]:
    """Make sets from a corpus in which each text is a sentence.

    Args:
        texts: returns all texts; called once for each pass.
        makers: of the sets to make, not used before.
        seed: of everything that is drawn.

    Returns:
        The sets in the order of `makers`, the number of texts, and the number of texts with 5 to 28
        tokens.

    Raises:
        SourceError: the corpus is too small for one of the sets.
    """
    makers = list(makers)
    read = used = 0
    for number in range(1, max(maker.passes for maker in makers) + 1):
        active = [maker for maker in makers if number <= maker.passes]
        read = used = 0
        for text in texts():
            read += 1
            sentence = sentence_of(text, seed)
            if sentence is None:
                continue
            used += 1
            for maker in active:
                maker.see(sentence, number)
        if not used:
            raise SourceError(
                f"expected texts of {SHORTEST} to {LONGEST} tokens, each a sentence, found none "
                f"among {read:,}; name a corpus with one sentence per line"
            )
    return [maker.made() for maker in makers], read, used
