"""Where the words of a query stand in a passage, without those that say little."""

from __future__ import annotations

from collections.abc import Mapping

from retriever.analyzer import Analyzer

_SHARE = 1 / 3


def highlights(
    text: str, analyzer: Analyzer, weights: Mapping[str, float]
) -> list[tuple[int, int]]:
    """The words of `text` that a query's weightier terms match.

    A term counts if it weighs at least a third of the query's heaviest term: in "how do I sharpen
    a chisel" the words "how", "do" and "I", which most passages hold, do not. At least the heaviest
    one always counts.

    Args:
        text: a passage.
        analyzer: finds its words.
        weights: of the query's terms, as `Index.term_weights` gives them.

    Returns:
        (start, stop) character offsets, ascending, without overlap.
    """
    least = _SHARE * max(weights.values(), default=0.0)
    chosen = {term for term, weight in weights.items() if weight >= least}
    # A word whose normal form is several words gives several terms with one span.
    spans = {(start, stop) for term, start, stop in analyzer.spans(text) if term in chosen}
    return sorted(spans)
