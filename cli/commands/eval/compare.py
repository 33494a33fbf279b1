"""`retriever eval compare`: do TREC runs differ, and on which queries?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options.shared import json_option, measure_option, resampling_options
from cli.output.safe_text import on_one_line
from cli.output.tables import table

if TYPE_CHECKING:
    from eval.metrics.comparison import Comparison

_DEFAULT = ("AP", "RR", "nDCG@10")
_SHOWN = 100


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--qrels", required=True, type=click.Path(path_type=Path), help="TREC judgements.")
@measure_option(_DEFAULT)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    help="The RUN that the others are compared with. [default: the first]",
)
@click.option(
    "--without-positive",
    type=click.Choice(["exclude", "count"]),
    default="exclude",
    show_default=True,
    help="Queries without a relevant document: left out, or zero.",
)
@click.option("--queries", help="A file of queries, to show their texts: .jsonl, .tsv, ...")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How many of the queries that differ most to list.",
)
@resampling_options
@json_option
def command(
    runs: tuple[Path, ...],
    qrels: Path,
    measures: tuple[str, ...],
    baseline: Path | None,
    without_positive: str,
    queries: str | None,
    top: int,
    resamples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Compare RUNs (TREC format) with the first one, or with --baseline.

    For each measure: means with 95% bootstrap intervals, the difference from the baseline with its
    own, and the p-value of a paired randomisation test with Holm's correction over the runs.
    """
    from eval.metrics.comparison import compare
    from eval.metrics.measures import canonical_measures
    from eval.metrics.trec import read_qrels, read_run

    measures = canonical_measures(measures)
    names = [str(run) for run in runs]
    if len(set(names)) < len(names):
        raise click.UsageError("a RUN is given twice; name each once")
    judged = read_qrels(qrels)
    texts = _texts(queries)
    found = compare(
        {name: read_run(run) for name, run in zip(names, runs, strict=True)},
        judged,
        measures,
        baseline=None if baseline is None else str(baseline),
        keep_without_positive=without_positive == "count",
        resamples=resamples,
        seed=seed,
    )
    if as_json:
        click.echo(json.dumps(_json(found, texts, top)))
        return
    click.echo("\n".join(_report(found, measures, texts, top)))


def _texts(queries: str | None) -> Mapping[str, str]:
    if queries is None:
        return {}
    from retriever.corpus import CorpusReader

    return {
        query.id: query.text for query in CorpusReader([queries], on_empty="fail", number_ids=True)
    }


def _json(found: Comparison, texts: Mapping[str, str], top: int) -> dict[str, object]:
    different = {
        measure: {
            run: [
                {"query": query, "difference": difference, "text": texts.get(query)}
                for query, difference in found.most_different(measure, run, top)
            ]
            for run in scores
            if run != found.baseline
        }
        for measure, scores in found.scores.items()
    }
    values = asdict(found)
    del values["per_query"]
    return {**values, "most_different": different}


def _report(
    found: Comparison, measures: Sequence[str], texts: Mapping[str, str], top: int
) -> Iterator[str]:
    treatment = "left out" if found.excluded else "counted as zero"
    yield (
        f"{found.queries:,} queries; {found.without_positive:,} without a relevant document, "
        f"{treatment}; 95% intervals"
    )
    for run, missing in found.missing.items():
        if missing:
            yield f"{on_one_line(run)}: {missing:,} queries are missing and count as zero"
    for measure in measures:
        yield ""
        yield from table(
            (measure, "mean", "interval", "difference", "interval", "p", "Holm", "better", "worse"),
            list(_rows(found, measure)),
        )
        for run in found.scores[measure]:
            yield from _different(found, measure, run, texts, top)


def _rows(found: Comparison, measure: str) -> Iterator[tuple[str, ...]]:
    for run, score in found.scores[measure].items():
        mean = (run, f"{score.mean:.4f}", f"{score.low:.4f} to {score.high:.4f}")
        one = score.difference
        if one is None:
            yield (*mean, "baseline", "", "", "", "", "")
        else:
            yield (
                *mean,
                f"{one.mean:+.4f}",
                f"{one.low:+.4f} to {one.high:+.4f}",
                f"{one.p:.4f}",
                f"{one.adjusted:.4f}",
                f"{one.better:,}",
                f"{one.worse:,}",
            )


def _different(
    found: Comparison, measure: str, run: str, texts: Mapping[str, str], top: int
) -> Iterator[str]:
    if run == found.baseline:
        return
    different = found.most_different(measure, run, top)
    if different:
        yield f"most different in {measure}, {on_one_line(run)}:"
    for query, difference in different:
        text = on_one_line(texts.get(query, ""))
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"
        yield f"  {difference:+.4f}  {on_one_line(query)}  {shown}".rstrip()
