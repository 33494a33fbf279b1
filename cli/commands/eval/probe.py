"""`retriever eval probe`: which properties of a sentence can be read off its vector?"""

from __future__ import annotations

from pathlib import Path

import click

from cli.options.declaring import Command
from cli.options.evaluation import ResamplingOptions, report_option, resampling_options
from cli.options.output import json_option, quiet_option
from cli.options.sentences import (
    ClassifierOptions,
    SentenceOptions,
    classifier_options,
    datasets_argument,
    sentence_options,
)


@click.command("probe", cls=Command)
@datasets_argument
@sentence_options
@classifier_options
@report_option("the report, values by sentence and figures")
@resampling_options
@json_option
@quiet_option
def command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    classifier: ClassifierOptions,
    output: Path | None,
    resampling: ResamplingOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a classifier to predict length, words, tense, ... from the vectors of encoders.

    DATASET is a file of a probing task in SentEval's form: one of its ten, one that `retriever make
    probing` writes, or your own. The dev split chooses the strength of regularization.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, report
    from eval import TransferSettings, score_probing

    settings = TransferSettings(
        classifier=classifier.classifier,
        seeds=classifier.seeds or 5,
        poolings=encoders.scored_poolings(),
        baseline=encoders.compared_with(),
        resampling=resampling.settings(),
        loading=encoders.loading(),
    )
    with Stages(quiet=quiet) as progress:
        result = score_probing(
            datasets, encoders.names(), settings, progress=progress, command=command_line()
        )
    report(result, output, as_json=as_json)
