"""`retriever eval compare`: score runs and compare them with a baseline."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from cli.evaluation_options import (
    WITHOUT_POSITIVE,
    baseline_option,
    measure_option,
    qrels_option,
    queries_option,
    query_texts,
    resampling_options,
)
from cli.options import Command, Settings, json_option
from eval.settings import Resampling
from retriever.settings import setting
from retriever.terminal import without_controls


@dataclass(frozen=True)
class ListOptions:
    """Queries to list, and queries without a relevant document."""

    top: int = setting(
        5,
        "Number of queries to list per run and measure: those with the largest difference from "
        "the baseline.",
        low=0,
    )
    without_positive: Literal["exclude", "count"] = WITHOUT_POSITIVE


@click.command("compare", cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@qrels_option(required=True)
@queries_option("show the texts of")
@measure_option(("AP", "RR", "nDCG@10"))
@baseline_option("Run", "RUN")
@Settings("list_options", ListOptions)
@resampling_options
@json_option
def compare_command(
    runs: tuple[Path, ...],
    qrels: Path,
    queries: str | None,
    measures: tuple[str, ...],
    baseline: str | None,
    list_options: ListOptions,
    resampling: Resampling,
    as_json: bool,
) -> None:
    """Score each RUN (TREC format), and compare it with the baseline.

    The report has, for each measure, the means and the differences from the baseline with 95%
    confidence intervals. It also has the p-value of a paired randomization test with Holm's
    correction over the runs. A query that is missing from a run counts as zero.
    """
    from eval import compare

    if len(set(runs)) < len(runs):
        raise click.UsageError("the same RUN is given twice; give each RUN once")
    texts = query_texts(queries)
    comparison = compare(
        {str(run): run for run in runs},
        qrels,
        measures,
        baseline=None if baseline is None else str(Path(baseline)),
        keep_without_positive=list_options.without_positive == "count",
        resamples=resampling.resamples,
        seed=resampling.seed,
    )
    if as_json:
        click.echo(json.dumps(comparison.to_json(texts, list_options.top)))
    else:
        click.echo(without_controls(comparison.text(texts, list_options.top)))
