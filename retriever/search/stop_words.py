"""Queries of stop words alone: the mode ``bm25`` looks for them as a phrase in the texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from indexes import compile_where, written_value
from retriever.documents.division import normalized
from retriever.errors import ConfigError, FilterError
from retriever.search.engine import Hit, check_cancelled, hit_of

if TYPE_CHECKING:
    from indexes import StoredDocument, View, Where
    from retriever.search.settings import SearchSettings

# Documents whose texts are read, beside those that are found by their titles.
_MOST_TEXTS = 1000
# Words of a phrase that titles are compared with.
_MOST_WORDS = 20
_WORD = re.compile(r"\w+(?:'\w+)*")


def phrase_hits(
    view: View,
    text: str,
    settings: SearchSettings,
    where: Where | None,
    demands: Callable[[str, int], bool] | None = None,
) -> list[Hit]:
    """Return the best `k` documents that hold the words of a query one after the other.

    Case and punctuation make no difference. Documents are those whose titles hold the words, and
    the first 1,000 that pass the filter, by id. A hit scores the saturated frequency of the phrase
    in its best passage, f / (f + k1), and 1 more if the title holds it. It holds no term, so
    `bm25` is 0. `demands` says whether a passage of a document may be a hit.
    """
    phrase = _words(text)
    if not phrase:
        return []
    scored: dict[str, tuple[float, int]] = {}
    for document in _documents(view, phrase, where):
        check_cancelled()
        if document.id in scored:
            continue
        in_title = _count(phrase, document.title or "")
        counts = [
            (_count(phrase, document.text[start:stop]), -number)
            for number, start, stop in document.passages
            if demands is None or demands(document.id, number)
        ]
        if not counts:
            continue
        frequency, negated = max(counts)
        if not frequency and not in_title and _count(phrase, document.text):
            # It ends in another passage than it begins in.
            frequency = 1
        if frequency or in_title:
            saturated = frequency / (frequency + settings.bm25.k1) if frequency else 0.0
            scored[document.id] = (saturated + bool(in_title), -negated)
    best = sorted(scored.items(), key=lambda item: (-item[1][0], item[0]))[: settings.k]
    stored = view.passages([number for _, (_, number) in best])
    return [
        hit_of(stored[number], rank, score, (None, None, 0.0, None))
        for rank, (_, (score, number)) in enumerate(best, start=1)
    ]


def search_note(view: View, where: Where | None) -> str:
    """Describe the hits of a query of stop words alone."""
    texts = describe_texts(view.facets([], where, None, 1).documents)
    return (
        f"the query has only stop words: looked for as a phrase in titles and in the texts of "
        f"{texts}; the mode hybrid ranks all"
    )


def describe_texts(documents: int) -> str:
    """Say of how many documents the texts are read, where so many pass the filter."""
    noun = "document" if documents == 1 else "documents"
    limit = f"{_MOST_TEXTS:,} of " if documents > _MOST_TEXTS else ""
    return f"{limit}{documents:,} {noun}"


def _documents(view: View, phrase: str, where: Where | None) -> Iterator[StoredDocument]:
    """Documents whose titles may hold a phrase, then the first of all that pass a filter."""
    pattern = written_value(f"%{'%'.join(phrase.split()[:_MOST_WORDS])}%")
    also = "" if where is None else f" and ({where.text})"
    try:
        titled = view.documents(compile_where(f"title like {pattern}{also}"))
        yield from islice(titled, _MOST_TEXTS)
    except (ConfigError, FilterError):
        # A store that cannot compare so finds titles among the texts.
        pass
    yield from islice(view.documents(where), _MOST_TEXTS)


def _words(text: str) -> str:
    folded = normalized("NFKC", text).casefold().replace("’", "'")
    return " ".join(_WORD.findall(folded))


def _count(phrase: str, text: str) -> int:
    """Count the occurrences of a phrase's words, one after the other, in a text."""
    # A space between two occurrences belongs to both.
    words = _words(text).replace(" ", "  ")
    return f" {words} ".count(f" {phrase.replace(' ', '  ')} ")
