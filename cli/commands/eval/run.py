"""`retriever eval run`: score TREC run files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options.shared import json_option, measure_option
from cli.output.tables import table

_DEFAULT = ("nDCG@10", "R@10", "AP", "RR")


@click.command("run")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--qrels", required=True, type=click.Path(path_type=Path), help="TREC judgements.")
@measure_option(_DEFAULT)
@json_option
def command(runs: tuple[Path, ...], qrels: Path, measures: tuple[str, ...], as_json: bool) -> None:
    """Score each RUN (TREC format) with trec_eval's measures.

    Means are over the queries with judgements; one that a run leaves out counts as zero.
    """
    from eval.metrics.measures import canonical_measures
    from eval.metrics.ranking import evaluate
    from eval.metrics.trec import read_qrels, read_run

    measures = canonical_measures(measures)
    judged = read_qrels(qrels)
    means = [evaluate(read_run(run), judged, measures).means for run in runs]
    if as_json:
        for run, found in zip(runs, means, strict=True):
            click.echo(json.dumps({"run": str(run), "queries": len(judged), **found}))
        return
    rows = [
        (run.name, *(f"{found[name]:.4f}" for name in measures))
        for run, found in zip(runs, means, strict=True)
    ]
    click.echo("\n".join(table(("", *measures), rows)))
