"""`retriever eval probe`: predict properties of sentences from their vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import resampling_options
from cli.options import Command
from cli.output.results import ResultOptions, result_options
from cli.sentence_options import (
    SentenceOptions,
    classifier_options,
    datasets_argument,
    sentence_options,
    show_scores,
)
from eval.settings import Resampling, TransferSettings


@click.command("probe", cls=Command)
@datasets_argument
@sentence_options
@classifier_options
@resampling_options
@result_options("the report, values by sentence and figures of --by-layer")
def probe_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    scoring: TransferSettings,
    resampling: Resampling,
    results: ResultOptions,
) -> None:
    """Predict sentence properties, such as length, from embeddings.

    DATASET is a file of a probing task in SentEval's format: a task of SentEval, a file of
    `retriever make probing`, or your own. The command trains a classifier on it. The dev split
    chooses the strength of regularization.
    """
    from eval import score_probing

    settings = replace(scoring, **encoders.shared(resampling))
    show_scores(score_probing, datasets, encoders, settings, results)
