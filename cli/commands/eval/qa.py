"""`retriever eval qa`: which system ranks the answers of a question set best?"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from cli.options.encoder import model_choice
from cli.options.qa import cache_folder, cache_option, dataset_options, opened
from cli.options.shared import (
    json_option,
    measure_option,
    model_options,
    quiet_option,
    resampling_options,
)

_MEASURES = ("AP", "RR", "P@1", "P@5", "P@10", "R@1", "R@5", "R@10", "R@100", "nDCG@10")
_SYSTEMS = ("bm25", "cosine", "hybrid")


@click.command("qa")
@dataset_options
@click.option("--split", default="test", show_default=True, help="What is ranked.")
@click.option(
    "-s",
    "--systems",
    "systems",
    multiple=True,
    default=_SYSTEMS,
    show_default=True,
    help="bm25, cosine, hybrid[:WEIGHT|tuned|rrf], bilinear, concat or uv[:linear|mlp], "
    "cross-encoder, each but bm25 with @ENCODER; a saved reranker; a TREC run; or all. "
    "Several with commas, or repeated.",
)
@click.option("--baseline", help="The system that others are compared with. [default: the first]")
@measure_option(_MEASURES)
@click.option(
    "--without-positive",
    type=click.Choice(["exclude", "count"]),
    default="exclude",
    show_default=True,
    help="Questions that nothing answers: left out, or zero.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often each head is trained.",
)
@click.option(
    "--cross-seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often each cross-encoder is fine-tuned.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="A folder for the report, runs, figures and cross-encoders.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many of the questions that differ most to list for each system.",
)
@resampling_options
@cache_option
@model_options
@json_option
@quiet_option
def command(
    dataset: Path,
    split: str,
    systems: tuple[str, ...],
    baseline: str | None,
    measures: tuple[str, ...],
    without_positive: str,
    seeds: int,
    cross_seeds: int,
    output: Path | None,
    top: int,
    resamples: int,
    seed: int,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Rank the candidates of each question of DATASET, and say which system is best.

    DATASET is a folder in the project's own form or in that of WikiPassageQA, InsuranceQA,
    Quasar-T, SearchQA, WikiQA, TrecQA, BEIR, MS MARCO or TREC. Heads and cross-encoders are trained
    on its training split; epochs and weights are chosen on its dev split.
    """
    from cli.output.qa import report_lines
    from eval.datasets.qa.statistics import statistics
    from eval.metrics.measures import canonical_measures
    from eval.qa.evaluation import rank
    from eval.qa.resources import EvaluationSettings
    from eval.qa.result import QAResult, environment
    from eval.qa.systems import parse_systems
    from eval.reports.files import check_report_folder
    from eval.reports.qa_report import result_json, write_report

    asked = parse_systems(systems)
    names = [system.text for system in asked]
    if baseline is not None and baseline not in names:
        raise click.UsageError(f"--baseline: expected one of {', '.join(names)}")
    measures = canonical_measures(measures)
    if output is not None:
        check_report_folder(output)
    choice = model_choice(options)
    settings = EvaluationSettings(
        encoder=choice.encoder,
        device=choice.device,
        download=choice.download,
        cache=cache_folder(options["cache"]),
        models=None if output is None else output / "rerankers",
        split=split,
        train_split=options["train_split"],
        dev_split=options["dev_split"],
        dev_share=options["dev_share"],
        seeds=seeds,
        cross_seeds=cross_seeds,
    )
    with opened({"dataset": dataset, **options}, settings, choice, quiet=quiet) as resources:
        found = [rank(system, resources) for system in asked]
        questions = resources.questions
    result = QAResult.of(
        questions,
        statistics(questions),
        measures,
        found,
        baseline=baseline,
        count_unanswered=without_positive == "count",
        resamples=resamples,
        seed=seed,
        command=shlex.join(["retriever", *sys.argv[1:]]),
        environment=environment(settings.device),
    )
    if output is not None:
        write_report(output, result)
    if as_json:
        click.echo(json.dumps(result_json(result)))
    else:
        click.echo("\n".join(report_lines(result, top)))
    if output is not None:
        click.echo(f"{output}: report.md, report.json, per_question.csv, runs, figures", err=True)
