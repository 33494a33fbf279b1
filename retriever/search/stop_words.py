"""Queries of stop words alone, which the mode ``bm25`` finds as phrases in the texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from indexes.filters import compile_where, written_value
from retriever.documents.division import normalize
from retriever.errors import ConfigError, FilterError
from retriever.search.engine import Hit, check_cancelled, hit_of

if TYPE_CHECKING:
    from indexes import StoredDocument, View
    from indexes.filters import Where
    from retriever.search.engine import PassageFilter
    from retriever.search.settings import SearchSettings

# Maximum number of documents whose texts are read, beside those with matching titles.
_MOST_TEXTS = 1000
# Maximum number of words of a phrase that are compared with titles.
_MOST_WORDS = 20
_WORD = re.compile(r"\w+(?:'\w+)*")


def phrase_hits(
    view: View,
    text: str,
    settings: SearchSettings,
    where: Where | None,
    is_allowed: PassageFilter | None = None,
) -> list[Hit]:
    """Return the best `k` documents that hold the words of a query as a phrase.

    Case and punctuation make no difference. The phrase is looked for in the documents with the
    words in their titles, and in the first 1,000 that pass the filter, by id. The score of a hit is
    the saturated frequency of the phrase in its best passage, f / (f + k1), plus 1 if the title
    holds the phrase. `bm25` is 0, since a hit holds no term. `is_allowed` tells which passages may
    be hits.
    """
    phrase = _normalized_words(text)
    if not phrase:
        return []
    # Score and number of the best passage by document id.
    scored: dict[str, tuple[float, int]] = {}
    for document in _read_documents(view, phrase, where):
        check_cancelled()
        if document.id in scored:
            continue
        title_count = _count(phrase, document.title or "")
        counts = [
            (_count(phrase, document.text[start:stop]), -number)
            for number, start, stop in document.passages
            if is_allowed is None or is_allowed(document.id, number)
        ]
        if not counts:
            continue
        frequency, negated = max(counts)
        if not frequency and not title_count and _count(phrase, document.text):
            # The phrase extends over two passages.
            frequency = 1
        if frequency or title_count:
            saturated = frequency / (frequency + settings.bm25.k1) if frequency else 0.0
            scored[document.id] = (saturated + bool(title_count), -negated)
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
    """Describe how many of the documents that pass a filter are read."""
    noun = "document" if documents == 1 else "documents"
    limit = f"{_MOST_TEXTS:,} of " if documents > _MOST_TEXTS else ""
    return f"{limit}{documents:,} {noun}"


def _read_documents(view: View, phrase: str, where: Where | None) -> Iterator[StoredDocument]:
    """Yield documents whose titles may hold a phrase, then the first that pass a filter."""
    pattern = written_value(f"%{'%'.join(phrase.split()[:_MOST_WORDS])}%")
    outer_filter = "" if where is None else f" and ({where.text})"
    try:
        titled = view.documents(compile_where(f"title like {pattern}{outer_filter}"))
        yield from islice(titled, _MOST_TEXTS)
    except (ConfigError, FilterError):
        # A store without this comparison finds titles among the texts.
        pass
    yield from islice(view.documents(where), _MOST_TEXTS)


def _normalized_words(text: str) -> str:
    folded = normalize("NFKC", text).casefold().replace("’", "'")
    return " ".join(_WORD.findall(folded))


def _count(phrase: str, text: str) -> int:
    """Count the occurrences of a phrase in a text."""
    # Double spaces, since adjacent occurrences share the space between them.
    words = _normalized_words(text).replace(" ", "  ")
    return f" {words} ".count(f" {phrase.replace(' ', '  ')} ")
