"""`retriever eval run`: score TREC run files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options.declaring import Command
from cli.options.evaluation import measure_option, qrels_option, runs_argument
from cli.options.output import json_option
from cli.output.tables import table

_DEFAULT = ("nDCG@10", "R@10", "AP", "RR")


@click.command("run", cls=Command)
@runs_argument
@qrels_option
@measure_option(_DEFAULT)
@json_option
def command(runs: tuple[Path, ...], qrels: Path, measures: tuple[str, ...], as_json: bool) -> None:
    """Score each RUN (TREC format) with trec_eval's measures.

    Means are over the queries with judgments; a query that is missing from a run counts as zero.
    """
    from eval import canonical_measures, evaluate, read_qrels, read_run

    measures = canonical_measures(measures)
    judged = read_qrels(qrels)
    means = [evaluate(read_run(run), judged, measures).means for run in runs]
    if as_json:
        for run, found in zip(runs, means, strict=True):
            click.echo(json.dumps({"run": str(run), "queries": len(judged), **found}))
        return
    rows = [
        (str(run), *(f"{found[name]:.4f}" for name in measures))
        for run, found in zip(runs, means, strict=True)
    ]
    click.echo("\n".join(table(("", *measures), rows)))
