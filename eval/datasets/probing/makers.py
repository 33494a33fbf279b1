"""The probing sets that need no parser, from any corpus of sentences.

As SentEval's own (Conneau et al., "What you can cram into a single $&!#* vector", ACL 2018, and the
description that comes with its files):

- *SentLen*: how many tokens, in six bins.
- *WC*: which of 1,000 words of middling frequency a sentence has.
- *BShift*: whether two neighbouring words were exchanged.

Sentences have 5 to 28 tokens. Those that differ only in case are one, written as the first of them,
and no sentence is in two splits. What is drawn depends on the seed and the sentences, not on their
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eval.datasets.probing.length import LengthMaker
from eval.datasets.probing.maker import MadeSet, Maker
from eval.datasets.probing.sentences import LONGEST, SHORTEST, sentence_of
from eval.datasets.probing.shift import ShiftMaker
from eval.datasets.probing.words import WordMaker
from retriever.errors import SourceError

MAKERS: Mapping[str, Callable[[], Maker]] = {
    "sentlen": LengthMaker,
    "wc": WordMaker,
    "bshift": ShiftMaker,
}
"""Task to what makes it with its published settings."""


def make_probing(
    texts: Callable[[], Iterable[str]], makers: Iterable[Maker], *, seed: int = 0
) -> tuple[list[MadeSet], int, int]:
    """Make sets from a corpus, one sentence a text.

    Args:
        texts: gives all texts, each time it is called; it is called once for each pass.
        makers: of the sets to make, not used before.
        seed: of all that is drawn.

    Returns:
        The sets in the order of `makers`, how many texts there are, and how many of them have 5 to
        28 tokens.

    Raises:
        SourceError: the corpus is too small for one of them.
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
                f"among {read:,}; name a corpus with a sentence a line"
            )
    return [maker.made() for maker in makers], read, used
