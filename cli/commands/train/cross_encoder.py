"""`retriever train cross-encoder`: fine-tune a cross-encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import dataset_argument, training_questions
from cli.options import (
    MINILM,
    Command,
    Settings,
    device_option,
    download_option,
    option,
    output_folder,
)
from cli.output.progress import Stages
from cli.output.results import ResultOptions, result_options
from cli.output.text import say
from cli.training_options import fine_tuning_options, restart_option, sampling_options
from eval.settings import CrossPlan, Loading, QuestionSettings
from retriever.training import CrossTrainingSettings, SamplingSettings


@click.command("cross-encoder", cls=Command)
@dataset_argument
@output_folder("Write the cross-encoder to this folder.")
@training_questions
@option(
    "--model",
    "transformer",
    metavar="MODEL",
    help="Transformer to fine-tune: a bundled model, a folder, or a hub id in the local cache.",
    show_default=MINILM,
    section="Encoder",
)
@device_option
@download_option
@Settings("cross", CrossPlan)
@fine_tuning_options(CrossTrainingSettings)
@sampling_options(CrossTrainingSettings().sampling)
@restart_option
@result_options(plot=True)
def cross_encoder_command(
    dataset: Path,
    output: Path,
    data: QuestionSettings,
    transformer: str | None,
    device: str | None,
    download: bool,
    cross: CrossPlan,
    training: CrossTrainingSettings,
    sampling: SamplingSettings,
    restart: bool,
    results: ResultOptions,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET.

    Run the same command again to resume an interrupted run from its last checkpoint. It keeps
    the last epoch with a dev AP that is at most --tolerance below the best earlier epoch.
    """
    from eval import QASettings, fit_cross_encoder

    training = replace(training, sampling=sampling)
    with Stages() as progress:
        result = fit_cross_encoder(
            dataset,
            output,
            QASettings(
                loading=Loading(device, download),
                data=data,
                cross=replace(cross, model=transformer or MINILM, training=training),
            ),
            restart=restart,
            progress=progress,
            notify=say,
        )
    results.show(result)
