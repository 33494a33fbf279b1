"""`retriever eval sts`: do cosines, or scores learned from vectors, agree with human scores?"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cli.options.declaring import Command, option
from cli.options.evaluation import ResamplingOptions, report_option, resampling_options
from cli.options.output import json_option, quiet_option
from cli.options.sentences import SentenceOptions, datasets_argument, sentence_options


@click.command("sts", cls=Command)
@datasets_argument
@sentence_options
@option(
    "--aggregation",
    type=click.Choice(["all", "mean", "wmean"]),
    default="all",
    help="How the parts of a test become one number: as one list, by their mean, or by their mean "
    "weighted by pairs.",
    section="Scoring",
)
@option(
    "--supervised",
    is_flag=True,
    help="SentEval's protocol for STS-B and SICK-R: train a softmax layer on the pairs of each "
    "set.",
    section="Training",
)
@option(
    "--seeds",
    type=click.IntRange(min=1),
    shown_default="5",
    metavar="N",
    help="Number of times that --supervised trains the layer.",
    section="Training",
)
@report_option("the report, values by pair and figures")
@resampling_options
@json_option
@quiet_option
def command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    aggregation: Literal["all", "mean", "wmean"],
    supervised: bool,
    seeds: int | None,
    output: Path | None,
    resampling: ResamplingOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Correlate the cosines of encoders with human scores of similarity.

    DATASET is the folder of a test (STS12 to STS16, STS-B or SICK-R; its form is detected), or a
    file of scored pairs. Reports Spearman's and Pearson's correlations with intervals and paired
    tests.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, report
    from eval import RelatednessSettings, STSSettings, score_sts

    if seeds is not None and not supervised:
        raise click.UsageError("--seeds belongs to --supervised: cosines are not random")
    settings = STSSettings(
        aggregation=aggregation,
        supervised=RelatednessSettings(seeds=seeds or 5) if supervised else None,
        poolings=encoders.scored_poolings(),
        baseline=encoders.compared_with(),
        resampling=resampling.settings(),
        loading=encoders.loading(),
    )
    with Stages(quiet=quiet) as progress:
        result = score_sts(
            datasets, encoders.names(), settings, progress=progress, command=command_line()
        )
    report(result, output, as_json=as_json)
