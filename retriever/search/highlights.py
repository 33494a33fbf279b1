"""The words of a query in a passage, without those that say little."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from retriever.documents.analyzer import Analyzer

_SHARE = 1 / 4
# Pronouns, auxiliaries, question words and the like, beyond the analyzer's short stop list. If
# texts are not questions, "how" and "I" are rare, and idf alone would take them for important.
_ENGLISH = """
    about above after again all am any because been before being below between both can cannot could
    did do does doing done don't down during each few from further get had has have having he her
    here hers him his how i i'd i'm i've its just like me may might more most much must my need nor
    now off once only other our ours out over own please same shall she should so some than them
    through too under until up us very want was we were what when where which while who whom whose
    why would you your yours
"""
_LANGUAGES = frozenset({"english", "porter"})


def highlights(
    text: str, analyzer: Analyzer, weights: Mapping[str, float]
) -> list[tuple[int, int]]:
    """The words of `text` that match an important term of a query.

    A term is important if it weighs at least a quarter of the query's heaviest one and is not an
    English function word, such as "how", "do" and "I" in "how do I sharpen a chisel". If the query
    has nothing but function words, their weights decide. At least one term is always important.

    Args:
        text: a passage.
        analyzer: finds its words.
        weights: of the query's terms, as `Index.term_weights` gives them.

    Returns:
        (start, stop) character offsets, ascending, without overlap.
    """
    function_words: frozenset[str] = frozenset()
    if analyzer.settings.language in _LANGUAGES:
        function_words = frozenset(chain.from_iterable(map(analyzer.tokens, _ENGLISH.split())))
    judged = {term: w for term, w in weights.items() if term not in function_words} or weights
    least = _SHARE * max(judged.values(), default=0.0)
    telling = {term for term, weight in judged.items() if weight >= least}
    # A word whose normal form is several words gives several terms with one span.
    spans = {(start, stop) for term, start, stop in analyzer.spans(text) if term in telling}
    return sorted(spans)
