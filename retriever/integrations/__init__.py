"""An index in other frameworks: LangChain, LlamaIndex, Haystack, MTEB; one module for each.

Each imports its framework at the top and is imported by those who use that framework.
"""

from __future__ import annotations

from typing import Any

from retriever.search.engine import Hit

# Of the metadata that describes the hit itself.
HIT = "hit"
_FACTS = (
    *("rank", "score", "title", "start", "stop"),
    *("dense", "dense_rank", "bm25", "bm25_rank", "first_rank"),
)


def metadata_of(hit: Hit) -> dict[str, Any]:
    """The document's metadata, and under ``hit`` the title, offsets, scores and ranks."""
    place = {} if hit.place is None else {"place": hit.place.to_json()}
    return {**hit.metadata, HIT: {name: getattr(hit, name) for name in _FACTS} | place}
