"""`retriever train cross-encoder`: fine-tune a transformer that reads question and passage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options.declaring import Command, option
from cli.options.encoder import MINILM, device_option, download_option
from cli.options.evaluation import plot_option
from cli.options.output import json_option, output_folder, quiet_option
from cli.options.qa import QuestionOptions, dataset_argument, question_options
from cli.options.training.cross_encoder import layer_decay_option, loss_option
from cli.options.training.optimization import FineTuningOptions, fine_tuning_options, restart_option
from cli.options.training.sampling import SamplingOptions, sampling_options

if TYPE_CHECKING:
    from retriever.rerankers.cross.settings import Loss


@click.command("cross-encoder", cls=Command)
@dataset_argument
@output_folder("Write the cross-encoder to this folder.")
@question_options
@option(
    "--model",
    "transformer",
    metavar="MODEL",
    help="Transformer to fine-tune: a folder, the name of a bundled model, or a hub id in the "
    "local cache.",
    shown_default=MINILM,
    section="Encoder",
)
@option(
    "--max-length",
    type=click.IntRange(min=16),
    default=160,
    metavar="N",
    help="Window in word pieces, of question and passage together.",
    section="Encoder",
)
@device_option
@download_option
@fine_tuning_options(
    learning_rate=1e-4,
    tolerance=0.02,
    score="AP",
    head="the MLP on [CLS]",
    words=", unlike the paper",
    seed="the MLP's first weights, dropout and the order of questions",
)
@loss_option("hinge")
@layer_decay_option(1.0)
@sampling_options(count=12, positives=3, questions=8)
@restart_option
@plot_option
@json_option
@quiet_option
def command(
    dataset: Path,
    output: Path,
    data: QuestionOptions,
    transformer: str | None,
    max_length: int,
    device: str | None,
    download: bool,
    tuning: FineTuningOptions,
    loss: Loss,
    layer_decay: float,
    sampling: SamplingOptions,
    restart: bool,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET.

    The same command resumes an interrupted run from its last checkpoint. The epoch that is kept is
    the last one whose dev AP is at most --tolerance below the best before it.
    """
    from cli.output.progress import Stages
    from cli.output.results import draw, saying, show
    from eval import (
        CrossEncoderSettings,
        CrossPlan,
        Loading,
        fit_cross_encoder,
    )
    from retriever.rerankers.cross.settings import CrossTrainingSettings

    training = CrossTrainingSettings(
        loss=loss,
        margin=sampling.margin,
        layer_decay=layer_decay,
        sampling=sampling.settings(),
        **tuning.named(),
    )
    with Stages(quiet=quiet) as progress:
        result = fit_cross_encoder(
            dataset,
            output,
            CrossEncoderSettings(
                CrossPlan(transformer or MINILM, max_length, training),
                Loading(device, download),
                data.settings(),
            ),
            restart=restart,
            progress=progress,
            notify=saying(quiet=quiet),
        )
    draw(result, plot)
    show(result, as_json=as_json, quiet=quiet)
