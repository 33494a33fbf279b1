"""`retriever gate`: pass or fail a change of the ranking."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.commands.query import RankingOptions, ranking_options
from cli.evaluation_options import (
    measure_option,
    qrels_option,
    queries_option,
    query_texts,
    resampling_options,
)
from cli.options import (
    Command,
    Decorator,
    Location,
    Settings,
    complete_path,
    index_location,
    is_given,
    option,
    refuse,
)
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import GateSettings, Resampling

if TYPE_CHECKING:
    from eval.metrics.gate import Ranking


# Names of the search settings, which have no effect if both rankings are runs.
_SEARCH_SETTINGS = "k mode alpha fusion depth"
_EXIT_CODES = {"pass": 0, "fail": 1, "too few questions": 4}


def _ranking_option(name: str, description: str) -> Decorator:
    """Return the option of one of the two rankings."""
    return option(
        name,
        required=True,
        type=index_location,
        metavar="RUN|INDEX",
        shell_complete=complete_path,
        help=f"{description}: a TREC run, or an index to search for --queries. Without -k, the "
        "search returns as many hits as the other side's run has.",
        section="Input",
    )


@click.command("gate", cls=Command)
@_ranking_option("--baseline", "Ranking before the change")
@_ranking_option("--candidate", "Ranking after the change")
@qrels_option(required=True)
@queries_option("search for and to show")
@Settings("settings", GateSettings, "margin", options=[measure_option(GateSettings().measures)])
@ranking_options("k mode", k=100)
@resampling_options
@result_options("report.md, gate.md for a pull request, junit.xml and report.json")
def gate_command(
    baseline: Location,
    candidate: Location,
    qrels: Path,
    queries: str | None,
    settings: GateSettings,
    ranking: RankingOptions,
    resampling: Resampling,
    results: ResultOptions,
) -> int:
    """Check that a new ranking is no worse than the baseline.

    A candidate passes if a paired non-inferiority test rules out a drop of --margin or more for
    each measure. It fails if it is significantly worse by some measure, and a drop of --margin is
    possible. The exit code is 0 for a pass, 1 for a failure and 4 for too few questions.
    """
    from eval import gate
    from retriever.index import Index

    if all(isinstance(side, Path) and not side.is_dir() for side in (baseline, candidate)):
        refuse(_SEARCH_SETTINGS, "both sides are runs, so no index is searched")
    with ExitStack() as stack:

        def open_side(location: Location) -> Ranking:
            if isinstance(location, Path) and not location.is_dir():
                return location
            return stack.enter_context(Index.open(location))

        result = gate(
            open_side(baseline),
            open_side(candidate),
            qrels,
            replace(settings, resampling=resampling),
            queries=query_texts(queries),
            search=ranking.settings(),
            match_depth=not is_given("k"),
            command=command_line(),
        )
    results.show(result)
    return _EXIT_CODES[result.verdict]
