"""A passage together with those beside it in its document."""

from __future__ import annotations

from dataclasses import dataclass

from indexes import View
from retriever.errors import BadInputError
from retriever.search.engine import Hit


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of a document's text.

    Attributes:
        id: the document's id.
        start, stop: character offsets in the document's text.
        text: the document's text from `start` to `stop`.
        length: number of characters of the document's whole text.
    """

    id: str
    start: int
    stop: int
    text: str
    length: int


def excerpt_of(view: View, hit: Hit, before: int, after: int) -> Excerpt:
    """The passage of a hit with its neighbors; see `Index.excerpt`."""
    if before < 0 or after < 0:
        raise BadInputError(f"excerpt: expected 0 or more passages, found {min(before, after)}")
    stored = view.document(hit.id)
    passages = [] if stored is None else stored.passages
    own = (hit.passage_number, hit.start, hit.stop)
    if stored is None or own not in passages:
        raise KeyError(hit.id)
    place = passages.index(own)
    beside = passages[max(0, place - before) : place + after + 1]
    start, stop = beside[0][1], max(stop for _, _, stop in beside)
    return Excerpt(hit.id, start, stop, stored.text[start:stop], len(stored.text))
