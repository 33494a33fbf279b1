"""How to rank, as one value or as keywords."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, TypedDict

from indexes import Mode
from indexes.bm25 import BM25Settings, BM25Variant
from retriever.errors import ConfigError, unexpected_keyword
from retriever.settings import Checked, Setting, check_settings, optional_fields, setting

FusionMethod = Literal["convex", "rrf"]
Normalization = Literal["min-max", "z-score"]

# The setting of an index that holds probabilities, by mode; see `retriever.search.calibration`.
CALIBRATION = "calibration"
# Name of the stored setting with the measured weight; see `retriever.search.fit`.
FIT = "fit"
# The setting that says why the model ``auto`` is the encoder of an index.
MODEL_REASON = "model_reason"
# Default weight of the dense component, for an index without a measured one.
DEFAULT_WEIGHT = 0.6
# The settings that each method of fusion uses.
USED_BY_METHOD: Mapping[FusionMethod, tuple[str, ...]] = {
    "convex": ("alpha", "normalization"),
    "rrf": ("rrf_k",),
}


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How the hybrid mode combines its two components.

    Attributes:
        method: ``convex`` is alpha * dense + (1 - alpha) * bm25 of normalized scores; ``rrf`` is
            reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009).
        alpha: weight of the dense component in ``convex``, 0 to 1; None for the weight that the
            index has measured (`retriever.search.fit`), or else 0.6.
        normalization: ``min-max`` maps the candidates' scores to [0, 1]; ``z-score`` to mean 0
            and standard deviation 1.
        rrf_k: the constant of ``rrf``, more than 0.

    Raises:
        ConfigError: a value that is out of range, or that the method does not use.
    """

    method: FusionMethod = setting(
        "convex",
        "How hybrid combines the rankings: by weighted scores or by reciprocal ranks.",
        section="Ranking",
    )
    alpha: float | None = setting(
        None,
        "Weight of the embeddings in convex fusion; BM25 has the rest.",
        low=0,
        high=1,
        default_text=f"{DEFAULT_WEIGHT:g}, or less by the encoder's fit",
        section="Ranking",
    )
    normalization: Normalization = setting(
        "min-max", "How convex fusion scales scores before it adds them."
    )
    rrf_k: float = setting(
        60.0, "Constant of rrf: rank r contributes 1 / (constant + r).", low=0, low_open=True
    )

    def __post_init__(self) -> None:
        check_settings(self)
        # A setting that is given its default cannot be told from one that is left out.
        changed = [
            field_.name for field_ in fields(self) if getattr(self, field_.name) != field_.default
        ]
        check_used(self.method, changed)

    @property
    def weight(self) -> float:
        """The weight of the dense component."""
        return DEFAULT_WEIGHT if self.alpha is None else self.alpha

    def completed(self, weight: float) -> FusionSettings:
        """Return the settings with `weight` as `alpha`, unless they have one or need none."""
        if self.method == "rrf" or self.alpha is not None:
            return self
        return replace(self, alpha=weight)


def check_used(method: FusionMethod, names: Iterable[str]) -> None:
    """Raise ConfigError if a named setting belongs to another fusion method."""
    for name in names:
        for user, used in USED_BY_METHOD.items():
            if name in used and user != method:
                raise ConfigError(
                    f"{name}: it belongs to {user} fusion, found fusion {method}; leave one of "
                    "them out"
                )


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
        recency: days, above 0. A positive score is multiplied by 0.5 + 0.5 * 2^(-age / recency),
            so that newer documents rise. None ranks without regard to age. The documents of all
            candidate passages are ranked, at least `depth` of them if there are so many.
        date_field: the metadata field with the date of a document; None for `date`, else
            `modified`.
        sort: ``score``, or ``date`` for the best `depth` hits with the newest first.

    Raises:
        ConfigError: a value that is out of range.
    """

    mode: Mode = setting(
        "hybrid", "Rank by embeddings (dense), by words (bm25) or by both.", section="Search"
    )
    k: int = setting(10, "Maximum number of hits.", low=1, section="Search")
    depth: int = setting(
        100,
        "Number of passages that hybrid takes from each ranking, and number of hits to rerank.",
        low=1,
        section="Ranking",
    )
    fusion: FusionSettings = field(default_factory=FusionSettings)
    bm25: BM25Settings = field(default_factory=BM25Settings)
    recall: float | None = setting(
        None,
        "Minimum recall@10 of approximate search, as measured for the search structure.",
        low=0,
        high=1,
        low_open=True,
        default_text="0.95",
    )
    raw: bool = setting(
        True,
        'Search for the query as it is; otherwise `"an exact phrase"` must be in a document, and a '
        "document with a last `-word` is no hit.",
    )
    collapse: bool = setting(
        False, "Show hits that nearly repeat a better hit only below that hit."
    )
    recency: float | None = setting(
        None,
        "Prefer newer documents. At this age in days, a hit loses a quarter of its score; no hit "
        "loses more than half.",
        low=0,
        low_open=True,
        default_text="off",
        section="Ranking",
    )
    date_field: str | None = setting(
        None,
        "Metadata field with the date of a document, for --recency and --sort date.",
        default_text="date, else modified",
        section="Ranking",
    )
    sort: Literal["score", "date"] = setting(
        "score",
        "Order of the hits: by score, or the best --depth hits by date, the newest first.",
        section="Ranking",
    )

    @property
    def reads_dates(self) -> bool:
        """Whether the order of hits depends on dates."""
        return self.recency is not None or self.sort == "date"


_DEFAULT = SearchSettings()
# Settings of which a front end has its own default, or that only Python offers.
_NOT_SHARED = {"raw", "collapse", "delta", "epsilon"}


@cache
def search_fields() -> Mapping[str, Setting]:
    """Return the settings that commands, requests and files can give, by keyword.

    `search_settings` takes these keywords. Each setting can be left out.
    """
    declared = {
        **optional_fields(SearchSettings),
        **optional_fields(FusionSettings),
        **optional_fields(BM25Settings),
    }
    # The name of a method is given as `fusion`.
    names = {name: "fusion" if name == "method" else name for name in declared}
    return {
        names[name]: replace(field_, name=names[name], key=names[name].replace("_", "-"))
        for name, field_ in declared.items()
        if name not in _NOT_SHARED
    }


class SearchKeywords(TypedDict, total=False):
    """Every field of search, fusion and BM25 settings; `fusion` also takes the name of a method."""

    mode: Mode
    k: int
    depth: int
    recall: float | None
    raw: bool
    collapse: bool
    recency: float | None
    date_field: str | None
    sort: Literal["score", "date"]
    fusion: FusionSettings | FusionMethod
    method: FusionMethod
    alpha: float
    normalization: Normalization
    rrf_k: float
    bm25: BM25Settings
    variant: BM25Variant
    k1: float
    b: float
    delta: float | None
    epsilon: float


def search_settings(
    settings: SearchSettings | None, keywords: Mapping[str, Any], other_names: Sequence[str] = ()
) -> SearchSettings:
    """Return settings with single fields replaced.

    `other_names` are further keywords of the caller, for the message on an unknown keyword.
    """
    if settings is None:
        settings = _DEFAULT
    elif not isinstance(settings, SearchSettings):
        raise TypeError(
            f"settings: expected SearchSettings, found {settings!r:.60}; give single settings by "
            "name, such as k=3"
        )
    if not keywords:
        return settings
    values = dict(keywords)
    if isinstance(values.get("fusion"), str):
        values["method"] = values.pop("fusion")
    fusion = values.pop("fusion", settings.fusion)
    bm25 = values.pop("bm25", settings.bm25)
    for kind, value in ((FusionSettings, fusion), (BM25Settings, bm25)):
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__} or single settings, found {value!r:.60}")
    search_values, fusion_values, bm25_values = (
        {name: values.pop(name) for name in kind.__dataclass_fields__ if name in values}
        for kind in (SearchSettings, FusionSettings, BM25Settings)
    )
    if values:
        raise unexpected_keyword(min(values), (*SearchKeywords.__annotations__, *other_names))
    if fusion_values:
        fusion = _changed_fusion(fusion, fusion_values)
    if bm25_values:
        bm25 = replace(bm25, **bm25_values)
    return replace(settings, **search_values, fusion=fusion, bm25=bm25)


def _changed_fusion(fusion: FusionSettings, changes: Mapping[str, Any]) -> FusionSettings:
    """Return the settings with `changes`; a new method drops the settings of the old one."""
    is_same_method = changes.get("method", fusion.method) == fusion.method
    changed = replace(fusion if is_same_method else FusionSettings(), **changes)
    check_used(changed.method, changes)
    return changed
