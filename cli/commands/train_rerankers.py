"""`retriever train reranker` and `train cross-encoder`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from cli.evaluation_options import (
    QuestionOptions,
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
from cli.training_options import (
    FineTuningOptions,
    SamplingOptions,
    fine_tuning_options,
    restart_option,
    sampling_options,
)
from retriever.settings import setting

_SYSTEMS = [
    f"{name}{head}" for name in ("bilinear", "concat", "uv") for head in ("", ":linear", ":mlp")
]


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """A head, and how it is trained."""

    system: str = "uv:mlp"
    seeds: int = setting(
        3,
        "Number of times that the head is trained; the best one on dev is kept.",
        low=1,
        section="Training",
    )
    epochs: int = setting(50, "Maximum number of epochs.", low=1, section="Training")
    patience: int = setting(5, "Stop after this many epochs without a better dev AP.", low=1)
    learning_rate: float = setting(1e-3, "Learning rate of the optimizer.", low=0, low_open=True)
    weight_decay: float = setting(
        0.01, "Strength with which weights are pulled to their initial values.", low=0
    )
    hidden: int = setting(256, "Number of units in the hidden layer of an MLP.", low=2)
    dropout: float = setting(0.1, "Dropout of the hidden layer.", low=0, high=1, high_open=True)
    initial: Literal["cosine", "random"] = setting(
        "cosine",
        "Initial weights: those that score as the cosine, where the head can, or random ones.",
    )
    optimizer: Literal["adam", "sgd"] = setting("adam", "Optimizer.")


_SYSTEM = option(
    "--system",
    type=click.Choice(_SYSTEMS),
    metavar="NAME",
    default="uv:mlp",
    help="Head: bilinear, concat or uv, followed by :linear or :mlp.",
    section="Training",
)


@click.command("reranker", cls=Command)
@dataset_argument
@output_folder("Write the reranker to this folder.")
@training_questions
@settings("reranker", HeadOptions, "seeds epochs", options=[_SYSTEM])
@sampling_options()
@encoder_options("all-MiniLM-L6-v2, or the model of --index")
@cache_option
@result_options(plot=True)
def reranker_command(
    dataset: Path,
    output: Path,
    data: QuestionOptions,
    reranker: HeadOptions,
    sampling: SamplingOptions,
    encoder: EncoderOptions,
    cache: bool,
    shown: ResultOptions,
) -> None:
    """Train a head on the vectors of DATASET's training questions and their passages.

    The encoder is not changed, and encodes each text once. The epoch with the best AP on the dev
    split is kept, which may be the untrained head, and of several seeds the best one.
    """
    from eval import HeadPlan, Loading, RerankerSettings, fit_reranker
    from retriever.rerankers.settings import HeadSettings, HeadTrainingSettings

    choice = encoder.choice()
    plan = HeadPlan(
        HeadSettings(hidden=reranker.hidden, dropout=reranker.dropout, initial=reranker.initial),
        HeadTrainingSettings(
            margin=sampling.margin,
            optimizer=reranker.optimizer,
            learning_rate=reranker.learning_rate,
            weight_decay=reranker.weight_decay,
            epochs=reranker.epochs,
            patience=reranker.patience,
            sampling=sampling.settings(),
        ),
    )
    interaction, _, kind = reranker.system.partition(":")
    with shown.stages() as progress:
        result = fit_reranker(
            dataset,
            output,
            RerankerSettings(
                plan.of(interaction, kind or "linear"),
                choice.encoder,
                Loading(choice.device, choice.download, cache_folder(cache)),
                data.settings(),
                reranker.seeds,
            ),
            progress=progress,
            notify=shown.notify,
        )
    shown.draw(result)
    shown.show(result)


@dataclass(frozen=True, slots=True)
class CrossOptions:
    """A cross-encoder, and its loss."""

    loss: Literal["hinge", "softmax", "pointwise"] = setting(
        "hinge",
        "hinge compares two passages, softmax a relevant passage with all negatives; pointwise "
        "takes each passage by itself, and questions without a relevant one too.",
        section="Training",
    )
    layer_decay: float = setting(
        1.0,
        "Factor of the learning rate from each layer to the one below it.",
        low=0,
        high=1,
        low_open=True,
    )
    max_length: int = setting(
        160, "Window in word pieces, of question and passage together.", low=16
    )


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
@settings("cross", CrossOptions, "loss")
@fine_tuning_options()
@sampling_options(count=12, positives=3, batch=8)
@restart_option
@result_options(plot=True)
def cross_encoder_command(
    dataset: Path,
    output: Path,
    data: QuestionOptions,
    transformer: str | None,
    device: str | None,
    download: bool,
    tuning: FineTuningOptions,
    cross: CrossOptions,
    sampling: SamplingOptions,
    restart: bool,
    shown: ResultOptions,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET.

    The same command resumes an interrupted run from its last checkpoint. The epoch that is kept is
    the last one whose dev AP is at most --tolerance below the best before it.
    """
    from eval import CrossEncoderSettings, CrossPlan, Loading, fit_cross_encoder
    from retriever.rerankers.settings import CrossTrainingSettings

    training = CrossTrainingSettings(
        loss=cross.loss,
        margin=sampling.margin,
        layer_decay=cross.layer_decay,
        sampling=sampling.settings(),
        **tuning.named(),
    )
    with shown.stages() as progress:
        result = fit_cross_encoder(
            dataset,
            output,
            CrossEncoderSettings(
                CrossPlan(transformer or MINILM, cross.max_length, training),
                Loading(device, download),
                data.settings(),
            ),
            restart=restart,
            progress=progress,
            notify=shown.notify,
        )
    shown.draw(result)
    shown.show(result)
