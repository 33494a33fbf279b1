"""`retriever eval sts`: correlate cosines with human scores of similarity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import resampling_options
from cli.options import Command, Settings, option, refuse
from cli.output.results import ResultOptions, result_options
from cli.sentence_options import SentenceOptions, datasets_argument, sentence_options, show_scores
from eval.settings import RelatednessSettings, Resampling, STSSettings


@click.command("sts", cls=Command)
@datasets_argument
@sentence_options
@Settings("scoring", STSSettings, "aggregation")
@option(
    "--supervised",
    is_flag=True,
    help="Train a softmax layer on the pairs of each set, as SentEval does for STS-B and SICK-R.",
    section="Training",
)
@Settings("training", RelatednessSettings)
@resampling_options
@result_options("the report, values by pair and figures of --by-layer")
def sts_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    scoring: STSSettings,
    supervised: bool,
    training: RelatednessSettings,
    resampling: Resampling,
    results: ResultOptions,
) -> None:
    """Correlate cosine similarities with human similarity scores.

    DATASET is the folder of a test, or a file of scored pairs. Tests are STS12 to STS16, STS-B and
    SICK-R; the command detects the format. The report has Spearman's and Pearson's correlations
    with confidence intervals and paired tests.
    """
    from eval import score_sts

    if not supervised:
        refuse("seeds", "only --supervised uses it")
    settings = replace(
        scoring, supervised=training if supervised else None, **encoders.shared(resampling)
    )
    show_scores(score_sts, datasets, encoders, settings, results)
