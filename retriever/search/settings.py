"""Ranking: how to rank, as one value or as keywords; the engine, fusion and reranking beside it.

`BM25` and what it takes rank texts in memory, without an index, for evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

from indexes import BM25Settings, Mode
from retriever.errors import unexpected_keyword
from retriever.search.fusion import FusionSettings, Method, check_used
from retriever.settings import Checked, setting

# The setting of an index that holds probabilities, by mode; see `retriever.search.calibration`.
CALIBRATION = "calibration"


@dataclass(frozen=True, slots=True)
class SearchSettings(Checked):
    """How to rank.

    Attributes:
        mode: ``dense`` by cosine, ``bm25``, or ``hybrid``, which fuses the two.
        k: maximum number of hits, at least 1.
        depth: number of candidate passages from each component in the mode ``hybrid``, at least
            1; raised to 2 * k, and further if they belong to fewer than `k` documents. It does
            not change the results of the other modes. With a reranker, also the number of hits
            that it scores.
        fusion: how ``hybrid`` combines the two scores.
        bm25: variant and parameters of BM25.
        recall: recall@10 of the dense component against an exact search, above 0 and at most 1.
            A segment with a search structure is searched with the least effort that reached it
            when the structure was built; None stands for 0.95. Other segments are searched
            exactly.
        raw: whether a query is searched for as it is. Otherwise ``"an exact phrase"`` in quotes
            must be in a document, and a document with a ``-word`` is no hit; see `parse_query`.
        collapse: fold hits whose passage nearly repeats that of a better one into it.

    Raises:
        ConfigError: a value that is out of range.
    """

    mode: Mode = setting("hybrid", "What ranks.")
    k: int = setting(10, "Maximum number of hits.", low=1)
    depth: int = setting(100, "Number of candidates from each component.", low=1)
    fusion: FusionSettings = field(default_factory=FusionSettings)
    bm25: BM25Settings = field(default_factory=BM25Settings)
    recall: float | None = setting(
        None, "Recall@10 against an exact search.", low=0, high=1, low_open=True
    )
    raw: bool = setting(True, "A query is searched for as it is.")
    collapse: bool = setting(False, "Near-copies are folded.")


_DEFAULT = SearchSettings()


class SearchKeywords(TypedDict, total=False):
    """Every field of search, fusion and BM25 settings; `fusion` also takes the name of a method."""

    mode: Mode
    k: int
    depth: int
    recall: float | None
    raw: bool
    collapse: bool
    fusion: FusionSettings | Method
    method: Method
    alpha: float
    normalization: Literal["min-max", "z-score"]
    rrf_k: float
    bm25: BM25Settings
    variant: Literal["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]
    k1: float
    b: float
    delta: float | None
    epsilon: float


def search_settings(
    settings: SearchSettings | None, keywords: Mapping[str, Any], others: Sequence[str] = ()
) -> SearchSettings:
    """Settings with single fields replaced; `others` are keywords that the caller takes itself."""
    if settings is None:
        settings = _DEFAULT
    elif not isinstance(settings, SearchSettings):
        raise TypeError(
            f"settings: expected SearchSettings, found {settings!r:.60}; give single settings by "
            "name, such as k=3"
        )
    if not keywords:
        return settings
    given = dict(keywords)
    if isinstance(given.get("fusion"), str):
        given["method"] = given.pop("fusion")
    fusion = given.pop("fusion", settings.fusion)
    bm25 = given.pop("bm25", settings.bm25)
    for kind, value in ((FusionSettings, fusion), (BM25Settings, bm25)):
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__} or single settings, found {value!r:.60}")
    own, fused, of_bm25 = (
        {name: given.pop(name) for name in kind.__dataclass_fields__ if name in given}
        for kind in (SearchSettings, FusionSettings, BM25Settings)
    )
    if given:
        raise unexpected_keyword(min(given), (*SearchKeywords.__annotations__, *others))
    if fused.get("method", fusion.method) != fusion.method:
        # The settings of another method stay behind.
        fusion = FusionSettings()
    if fused:
        fusion = replace(fusion, **fused)
        check_used(fusion.method, fused)
    if of_bm25:
        bm25 = replace(bm25, **of_bm25)
    return replace(settings, **own, fusion=fusion, bm25=bm25)
