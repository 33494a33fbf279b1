"""Pairs of texts from a corpus alone, titles and texts: no question, no judgment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from eval.progress import Done, ignore
from retriever.documents import Document
from retriever.errors import BadInputError
from retriever.settings import Checked, setting
from retriever.training.sampling import Reservoir

PairKind = Literal["title"]


class TextPair(NamedTuple):
    """Two texts, and what is known of them."""

    left: str
    right: str
    # A score, a label, or a text that does not belong to the left one, unlike the right one.
    value: Any = None


@dataclass(frozen=True, slots=True)
class CorpusPairs(Checked):
    """Pairs to be drawn uniformly from a corpus, whose documents are read once as a stream."""

    documents: Iterable[Document]
    kind: PairKind = setting("title", "Pairs to make of a document.")
    sample: int = setting(10_000, "Maximum number of pairs; all are in memory.", low=2)
    seed: int = setting(0, "Random seed of what is drawn.", low=0)

    def draw(self, done: Done = ignore) -> list[TextPair]:
        """The sample, in random order; BadInputError if the corpus has fewer than two pairs."""
        drawn = Reservoir[TextPair](self.sample, self.seed)
        for document in self.documents:
            title, text = (document.title or "").strip(), document.text.strip()
            if title and text and title != text:
                drawn.add(TextPair(title, text))
            done(1)
        if drawn.seen < 2:
            raise BadInputError(
                "pairs: expected documents with both title and text, found "
                f"{drawn.seen} in the corpus; name another, or files of pairs"
            )
        order = np.random.default_rng(self.seed).permutation(len(drawn.items))
        return [drawn.items[place] for place in order]
