"""BShift: whether two neighbouring words of a sentence were exchanged."""

from __future__ import annotations

from eval.datasets.probing.balance import Instance, balanced_splits, published_sizes
from eval.datasets.probing.maker import MadeSet, Maker, instances
from eval.datasets.probing.sentences import Sample, Sentence, folded, is_word

_QUOTES = frozenset('"“”„«»')
_QUOTED = frozenset({"``", "''"})
# Spares for exchanges that make a sentence of the corpus.
_SPARE = 1.05


class ShiftMaker(Maker):
    """Makes BShift.

    In half of the sentences (label I, the others are O) two neighbouring tokens are exchanged:
    neither is the first of the sentence or punctuation, and they are not the same word. Sentences
    with double quotes, or without two such tokens, are in neither half. An exchange that makes a
    sentence of the corpus, or one that is made already, is dropped.
    """

    task, passes = "bshift", 2

    def __init__(self) -> None:
        size = published_sizes(2).total
        self._kept = Sample(size)
        self._shifted = Sample(int(size * _SPARE))
        self._made: dict[str, Instance] = {}
        self._exchanged = 0

    def see(self, sentence: Sentence, number: int) -> None:
        """Offer it to one half, then see that no exchange has made it."""
        if number == 1:
            if _places(sentence.tokens):
                half = self._shifted if sentence.choice % 2 else self._kept
                half.offer(sentence)
            return
        if not self._exchanged:
            self._exchange()
        self._made.pop(folded(sentence.tokens), None)

    def _exchange(self) -> None:
        for sentence in self._shifted.sentences():
            tokens = list(sentence.tokens)
            places = _places(sentence.tokens)
            place = places[(sentence.choice >> 1) % len(places)]
            tokens[place], tokens[place + 1] = tokens[place + 1], tokens[place]
            self._made.setdefault(
                folded(tuple(tokens)), Instance(sentence.order, "I", " ".join(tokens))
            )
        self._exchanged = len(self._shifted)

    def made(self) -> MadeSet:
        """The set; raises SourceError where there are too few sentences."""
        classes = {"I": list(self._made.values()), "O": instances(self._kept, "O")}
        splits = balanced_splits(self.task, classes, "name a larger corpus")
        dropped = self._exchanged - len(self._made)
        return MadeSet(self.task, splits, len(classes), {"dropped": dropped})


def _places(tokens: tuple[str, ...]) -> list[int]:
    """Where a token and the next one can be exchanged, ascending."""
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
