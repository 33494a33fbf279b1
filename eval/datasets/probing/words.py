"""WC: which of many words of middling frequency a sentence has."""

from __future__ import annotations

from collections import Counter

from eval.datasets.probing.balance import LEAST_HELD, balanced_splits, published_sizes
from eval.datasets.probing.maker import MadeSet, Maker, instances
from eval.datasets.probing.sentences import Sample, Sentence
from retriever.errors import ConfigError, SourceError

WORDS = 1_000
"""How many words there are by default."""
FIRST_RANK = 2_001
"""Rank by frequency, from 1, from which on they are taken."""
_LEAST_LETTERS = 4


class WordMaker(Maker):
    """Makes WC.

    The words are the first in lower case, of four letters or more and nothing but letters, of the
    corpus's tokens by frequency from rank 2,001 on; of equal frequency, by code points. A
    sentence has one of them, once, whatever its case.
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
            f"rank {FIRST_RANK:,} of the corpus's tokens on, found {len(self._samples):,} among "
            f"{len(by_frequency):,} tokens; name a larger corpus{fewer}"
        )

    def made(self) -> MadeSet:
        """The set; raises SourceError where a word has too few sentences."""
        classes = {word: instances(sample, word) for word, sample in self._samples.items()}
        # Of fewer than these, each word would need more sentences.
        fewer = ", or fewer words with --words" if self._words > LEAST_HELD else ""
        splits = balanced_splits(self.task, classes, f"name a larger corpus{fewer}")
        facts = {"words": self._words, "ranks": [FIRST_RANK, self._last_rank]}
        return MadeSet(self.task, splits, len(classes), facts)
