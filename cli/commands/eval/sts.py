"""`retriever eval sts`: do cosines, or what is learned from vectors, agree with people's scores?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.sentences import (
    baseline_name,
    check_names,
    check_output,
    command_line,
    encoder_names,
    fitted_remark,
    layer_encoders,
    loading,
    sentence_options,
    show,
)

if TYPE_CHECKING:
    from eval.datasets.sentences.tasks import STSTask
    from eval.sentences.sts import Aggregation, STSSettings

_AGGREGATIONS = {
    "all": "the pairs of all parts of a test as one list",
    "mean": "the mean over the parts of a test",
    "wmean": "the mean over the parts of a test, weighted by their pairs",
}


@click.command("sts")
@sentence_options
@click.option(
    "--aggregation",
    type=click.Choice(list(_AGGREGATIONS)),
    help="How the parts of a test become one number: as one list, by their mean, or by their mean "
    "weighted by pairs. [default: all]",
)
@click.option(
    "--supervised",
    is_flag=True,
    help="SentEval's protocol for STS-B and SICK-R: train a softmax layer on each set's pairs.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    help="For --supervised: how often it is trained. [default: 5]",
)
def command(
    datasets: tuple[Path, ...],
    aggregation: Aggregation | None,
    supervised: bool,
    seeds: int | None,
    by_layer: bool,
    resamples: int,
    seed: int,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Correlate encoders with people's scores of how alike two sentences are.

    DATASET is the folder of a test (STS12 to STS16, STS-B, SICK-R; the forms are detected), or a
    file of scored pairs. Spearman's and Pearson's correlation, with intervals and paired tests.
    """
    from cli.output.progress import Stages
    from eval.datasets.sentences.sts import read_sts
    from eval.sentences.comparison import Resampling
    from eval.sentences.result import SentenceResult, sentence_environment
    from eval.sentences.sts import STS_MEASURES, check_sts, score_sts_set, sts_grids
    from eval.vectors.encoders import SentenceEncoders

    settings = _settings(aggregation, supervised=supervised, seeds=seeds)
    check_output(options)
    names = encoder_names(options)
    tasks = [read_sts(path) for path in datasets]
    check_names([task.name for task in tasks])
    for task in tasks:
        check_sts(task, settings)
    sets, grids = [], []
    baseline = None
    with Stages(quiet=quiet) as stage:
        if by_layer:
            layers = layer_encoders(options, names)
            grids = [grid for task in tasks for grid in sts_grids(task, layers, settings, stage)]
        else:
            baseline = baseline_name(options, names)
            encoders = SentenceEncoders(names, loading(options))
            resampling = Resampling(resamples, seed)
            sets = [
                score_sts_set(task, encoders, settings, baseline, resampling, stage)
                for task in tasks
            ]
    result = SentenceResult(
        kind="sts",
        title=f"Semantic textual similarity: {_listed(tasks)}",
        settings=_said(settings, resamples, seed, by_layer=by_layer),
        remarks=(
            _protocol(settings),
            *fitted_remark(names, "the texts of its test pairs, without scores"),
        ),
        measures=STS_MEASURES,
        sets=tuple(sets),
        grids=tuple(grids),
        baseline=baseline,
        command=command_line(),
        environment=sentence_environment(options["device"]),
    )
    show(result, options, as_json=as_json)


def _settings(
    aggregation: Aggregation | None, *, supervised: bool, seeds: int | None
) -> STSSettings:
    from eval.sentences.sts import STSSettings
    from eval.sentences.supervised import RelatednessSettings

    if not supervised:
        if seeds is not None:
            raise click.UsageError("--seeds belongs to --supervised: cosines have nothing random")
        return STSSettings(aggregation or "all")
    if aggregation not in (None, "all"):
        raise click.UsageError(
            f"--aggregation {aggregation}: the supervised protocol takes all pairs of a test as "
            "one list; leave it out"
        )
    return STSSettings("all", RelatednessSettings(seeds=seeds or 5))


def _protocol(settings: STSSettings) -> str:
    if settings.supervised is not None:
        return (
            "correlations of scores that a softmax layer over |u - v| and u * v predicts, trained "
            "on the set's training pairs (SentEval's supervised protocol); all pairs as one list"
        )
    name = settings.aggregation
    return f"correlations of cosines; aggregation {name}: {_AGGREGATIONS[name]}"


def _said(settings: STSSettings, resamples: int, seed: int, *, by_layer: bool) -> dict[str, str]:
    said = {"protocol": "cosine" if settings.supervised is None else "supervised (SentEval)"}
    if settings.supervised is None:
        said["aggregation"] = f"{settings.aggregation}: {_AGGREGATIONS[settings.aggregation]}"
    else:
        said["seeds"] = f"{settings.supervised.seeds}"
    if not by_layer:
        said["resamples"] = f"{resamples:,}, seed {seed}"
    return said


def _listed(tasks: list[STSTask]) -> str:
    return ", ".join(task.name for task in tasks)
