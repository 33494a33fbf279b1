"""`retriever eval compare` and `retriever gate`: rankings, by the same judgments."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.commands.query import RankingOptions
from cli.evaluation_options import (
    baseline_option,
    measure_option,
    qrels_option,
    query_texts,
    query_texts_option,
    resampling_options,
    without_positive_option,
)
from cli.options import (
    Command,
    Decorator,
    Location,
    complete_path,
    index_location,
    is_given,
    json_option,
    option,
    settings,
)
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import GateSettings, Resampling
from retriever.settings import setting
from retriever.terminal import without_controls

if TYPE_CHECKING:
    from eval.metrics.gate import Ranking

_SEARCH = "k mode alpha fusion depth"
_EXIT = {"pass": 0, "fail": 1, "too few questions": 4}


@dataclass(frozen=True)
class ListOptions:
    """What is listed."""

    top: int = setting(
        5,
        "Number of queries to list per run and measure on which it differs most from the baseline.",
        low=0,
    )


@click.command("compare", cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@qrels_option
@query_texts_option("show their texts")
@measure_option(("AP", "RR", "nDCG@10"))
@baseline_option("Run", "RUN")
@without_positive_option
@settings("listed", ListOptions)
@resampling_options
@json_option
def compare_command(
    runs: tuple[Path, ...],
    qrels: Path,
    queries: str | None,
    measures: tuple[str, ...],
    baseline: str | None,
    without_positive: Literal["exclude", "count"],
    listed: ListOptions,
    resampling: Resampling,
    as_json: bool,
) -> None:
    """Score each RUN (TREC format), and compare it with the baseline.

    For each measure: means with 95% intervals, the difference from the baseline with its own, and
    the p-value of a paired randomization test with Holm's correction over the runs. A query that is
    missing from a run counts as zero.
    """
    from eval import compare

    if len(set(runs)) < len(runs):
        raise click.UsageError("a RUN is given twice; name each once")
    texts = query_texts(queries)
    found = compare(
        {str(run): run for run in runs},
        qrels,
        measures,
        baseline=None if baseline is None else str(Path(baseline)),
        keep_without_positive=without_positive == "count",
        resamples=resampling.resamples,
        seed=resampling.seed,
    )
    if as_json:
        click.echo(json.dumps(found.to_json(texts, listed.top)))
    else:
        click.echo(without_controls(found.text(texts, listed.top)))


def _side(name: str, what: str) -> Decorator:
    return option(
        name,
        required=True,
        type=index_location,
        metavar="RUN|INDEX",
        shell_complete=complete_path,
        help=f"{what}: a TREC run, or an index, which is searched for --queries; without -k for as "
        "many hits as a run on the other side has.",
        section="Input",
    )


@click.command("gate", cls=Command)
@_side("--baseline", "Ranking before the change")
@_side("--candidate", "Ranking after the change")
@qrels_option
@query_texts_option("search for and to show")
@settings("asked", GateSettings, "margin", leave_out=("measures", "resampling"))
@measure_option(GateSettings().measures)
@settings("ranking", RankingOptions, _SEARCH, defaults={"k": 100})
@resampling_options
@result_options("report.md, gate.md for a pull request, junit.xml and report.json")
def gate_command(
    baseline: Location,
    candidate: Location,
    qrels: Path,
    queries: str | None,
    asked: GateSettings,
    measures: tuple[str, ...],
    ranking: RankingOptions,
    resampling: Resampling,
    shown: ResultOptions,
) -> int:
    """Pass, fail, or say that there are too few questions to tell.

    A candidate passes if, by each measure, a paired non-inferiority test rules out that it is worse
    than the baseline by --margin or more. It fails if by some measure it is shown to be worse, and
    --margin is not ruled out. The exit code is 0 for a pass, 1 for a failure and 4 for too few
    questions.
    """
    from eval import gate
    from retriever.index import Index

    if all(isinstance(one, Path) and not one.is_dir() for one in (baseline, candidate)):
        for name in _SEARCH.split():
            if is_given(name):
                raise click.UsageError(
                    f"-{'-' if name[1:] else ''}{name}: it is for searching an index, and both "
                    "sides are runs; leave it out"
                )
    with ExitStack() as stack:

        def opened(place: Location) -> Ranking:
            if isinstance(place, Path) and not place.is_dir():
                return place
            return stack.enter_context(Index.open(place))

        result = gate(
            opened(baseline),
            opened(candidate),
            qrels,
            replace(asked, measures=measures, resampling=resampling),
            queries=query_texts(queries),
            search=ranking.settings(),
            match_depth=not is_given("k"),
            command=command_line(),
        )
    shown.write(result)
    return _EXIT[result.verdict]
