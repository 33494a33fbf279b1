"""`retriever train reranker` and `train cross-encoder`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import (
    cache_folder,
    cache_option,
    dataset_argument,
    training_questions,
)
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    device_option,
    download_option,
    encoder_options,
    option,
    output_folder,
    settings,
)
from cli.output.results import ResultOptions, result_options
from cli.training_options import fine_tuning_options, restart_option, sampling_options
from eval.settings import CrossPlan, Loading, QuestionSettings
from retriever.training.settings import (
    CrossTrainingSettings,
    HeadSettings,
    HeadTrainingSettings,
    SamplingSettings,
)

_SYSTEMS = [
    f"{name}{head}" for name in ("bilinear", "concat", "uv") for head in ("", ":linear", ":mlp")
]


@click.command("reranker", cls=Command)
@dataset_argument
@output_folder("Write the reranker to this folder.")
@training_questions
@option(
    "--system",
    type=click.Choice(_SYSTEMS),
    metavar="NAME",
    default="uv:mlp",
    help="Head: bilinear, concat or uv, followed by :linear or :mlp.",
    section="Training",
)
@option(
    "--seeds",
    type=click.IntRange(1),
    default=3,
    metavar="N",
    help="Number of times that the head is trained; the best one on dev is kept.",
    section="Training",
)
@settings("head", HeadSettings, leave_out=("interaction", "head"))
@settings("training", HeadTrainingSettings, "epochs", leave_out=("seed",))
@sampling_options(SamplingSettings())
@encoder_options("all-MiniLM-L6-v2, or the model of --index")
@cache_option
@result_options(plot=True)
def reranker_command(
    dataset: Path,
    output: Path,
    data: QuestionSettings,
    system: str,
    seeds: int,
    head: HeadSettings,
    training: HeadTrainingSettings,
    sampling: SamplingSettings,
    encoder: EncoderOptions,
    cache: bool,
    shown: ResultOptions,
) -> None:
    """Train a head on the vectors of DATASET's training questions and their passages.

    The encoder is not changed, and encodes each text once. The epoch with the best AP on the dev
    split is kept, which may be the untrained head, and of several seeds the best one.
    """
    from eval import HeadPlan, QASettings, fit_reranker

    choice = encoder.choice()
    interaction, _, kind = system.partition(":")
    plan = HeadPlan(head, replace(training, sampling=sampling))
    with shown.stages() as progress:
        result = fit_reranker(
            dataset,
            output,
            QASettings(
                choice.encoder,
                Loading(choice.device, choice.download, cache_folder(cache)),
                data,
                seeds=seeds,
                head=plan.of(interaction, kind or "linear"),
            ),
            progress=progress,
            notify=shown.notify,
        )
    shown.show(result)


@click.command("cross-encoder", cls=Command)
@dataset_argument
@output_folder("Write the cross-encoder to this folder.")
@training_questions
@option(
    "--model",
    "transformer",
    metavar="MODEL",
    help="Transformer to fine-tune: a folder, the name of a bundled model, or a hub id in the "
    "local cache.",
    shown_default=MINILM,
    section="Encoder",
)
@device_option
@download_option
@settings("cross", CrossPlan)
@fine_tuning_options(CrossTrainingSettings, "loss")
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
    shown: ResultOptions,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET.

    The same command resumes an interrupted run from its last checkpoint. The epoch that is kept is
    the last one whose dev AP is at most --tolerance below the best before it.
    """
    from eval import QASettings, fit_cross_encoder

    training = replace(training, sampling=sampling)
    with shown.stages() as progress:
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
            notify=shown.notify,
        )
    shown.show(result)
