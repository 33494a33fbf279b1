"""How documents are ranked for a query."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import click

from cli.options.declaring import RARE, option, settings

if TYPE_CHECKING:
    from retriever import BM25Variant as Variant
    from retriever.search import SearchSettings


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """How to rank; None for options that are not given."""

    k: int
    mode: Literal["hybrid", "dense", "bm25"]
    fusion: Literal["convex", "rrf"] | None
    alpha: float | None
    depth: int | None
    normalization: Literal["min-max", "z-score"] | None
    rrf_k: float | None
    recall: float | None
    variant: Variant | None
    k1: float | None
    b: float | None

    def settings(self) -> SearchSettings:
        """The given settings, with the defaults of the library for the rest.

        Raises:
            ConfigError: a value is out of range, or the fusion does not use it.
        """
        from retriever.search import search_settings

        asked = {field.name: getattr(self, field.name) for field in fields(self)}
        return search_settings(
            None, {name: value for name, value in asked.items() if value is not None}
        )


ranking_options = settings(
    "ranking",
    RankingOptions,
    [
        option(
            "-k",
            type=click.IntRange(min=1),
            metavar="N",
            default=10,
            help="Number of hits.",
            section="Search",
        ),
        option(
            "--mode",
            type=click.Choice(["hybrid", "dense", "bm25"]),
            default="hybrid",
            help="Rank by embeddings (dense), by words (bm25) or by both.",
            section="Search",
        ),
        option(
            "--alpha",
            type=float,
            metavar="WEIGHT",
            help="Weight of the embeddings in convex fusion, 0 to 1; BM25 has the rest.",
            shown_default="0.6",
            section="Ranking",
        ),
        option(
            "--fusion",
            type=click.Choice(["convex", "rrf"]),
            help="How hybrid combines the two: weighted scores, or reciprocal ranks.",
            shown_default="convex",
            section="Ranking",
        ),
        option(
            "--depth",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of candidate passages that hybrid takes from each component, and of hits "
            "that --rerank ranks.",
            shown_default="100",
            section="Ranking",
        ),
        option(
            "--normalization",
            type=click.Choice(["min-max", "z-score"]),
            help="How convex fusion scales scores before it weights them.",
            shown_default="min-max",
            section=RARE,
        ),
        option(
            "--rrf-k",
            type=float,
            metavar="N",
            help="Constant of rrf, above 0.",
            shown_default="60",
            section=RARE,
        ),
        option(
            "--recall",
            type=click.FloatRange(0, 1, min_open=True),
            metavar="SHARE",
            help="Minimum recall@10 of approximate search, as measured when the search structure "
            "was built.",
            shown_default="0.95",
            section=RARE,
        ),
        option(
            "--variant",
            type=click.Choice(["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]),
            help="BM25: formula.",
            shown_default="lucene",
            section=RARE,
        ),
        option(
            "--k1",
            type=float,
            metavar="N",
            help="BM25: saturation of term frequency, 0 or more.",
            shown_default="1.2",
            section=RARE,
        ),
        option(
            "--b",
            type=float,
            metavar="N",
            help="BM25: normalization by passage length, 0 to 1.",
            shown_default="0.75",
            section=RARE,
        ),
    ],
)
