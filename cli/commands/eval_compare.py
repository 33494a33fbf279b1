"""`retriever eval compare`: how good are TREC runs, do they differ, and on which queries?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from cli.evaluation_options import (
    baseline_option,
    measure_option,
    qrels_option,
    query_texts,
    query_texts_option,
    resampling_options,
    without_positive_option,
)
from cli.options import Command, json_option, option
from eval.settings import Resampling
from retriever.terminal import without_controls

_DEFAULT = ("AP", "RR", "nDCG@10")


@click.command("compare", cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@qrels_option
@query_texts_option("show their texts")
@measure_option(_DEFAULT)
@baseline_option("Run", "RUN")
@without_positive_option
@option(
    "--top",
    type=click.IntRange(min=0),
    default=5,
    metavar="N",
    help="Number of queries to list per run and measure on which it differs most from the "
    "baseline.",
    section="Output",
)
@resampling_options
@json_option
def compare_command(
    runs: tuple[Path, ...],
    qrels: Path,
    queries: str | None,
    measures: tuple[str, ...],
    baseline: str | None,
    without_positive: Literal["exclude", "count"],
    top: int,
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
        click.echo(json.dumps(found.to_json(texts, top)))
    else:
        click.echo(without_controls(found.text(texts, top)))
