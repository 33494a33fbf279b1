"""`retriever train reranker` and `train cross-encoder`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.options.declaring import (
    RARE,
    Command,
    Decorator,
    json_option,
    option,
    output_folder,
    quiet_option,
    settings,
)
from cli.options.encoder import (
    MINILM,
    EncoderOptions,
    device_option,
    download_option,
    encoder_options,
)
from cli.options.evaluation import (
    QuestionOptions,
    cache_folder,
    cache_option,
    dataset_argument,
    plot_option,
    question_options,
)
from cli.options.training import (
    FineTuningOptions,
    SamplingOptions,
    fine_tuning_options,
    layer_decay_option,
    loss_option,
    optimization_options,
    restart_option,
    sampling_options,
)

if TYPE_CHECKING:
    from retriever.rerankers.settings import Loss


_SYSTEMS = [
    f"{name}{head}" for name in ("bilinear", "concat", "uv") for head in ("", ":linear", ":mlp")
]


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """A head, and how it is trained."""

    system: str
    epochs: int
    patience: int
    learning_rate: float
    weight_decay: float
    hidden: int
    dropout: float
    initial: Literal["cosine", "random"]
    optimizer: Literal["adam", "sgd"]


_HEAD: list[Decorator] = [
    option(
        "--system",
        type=click.Choice(_SYSTEMS),
        metavar="NAME",
        default="uv:mlp",
        help="Head: bilinear, concat or uv, followed by :linear or :mlp.",
        section="Training",
    ),
    *optimization_options(
        epochs=50,
        patience=5,
        unkept="without a better dev AP",
        learning_rate=1e-3,
        of="the optimizer",
        decay="Strength with which weights are pulled to their initial values.",
    ),
    option(
        "--hidden",
        type=click.IntRange(min=2),
        default=256,
        metavar="N",
        help="Number of units in the hidden layer of an MLP.",
        section=RARE,
    ),
    option(
        "--dropout",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.1,
        metavar="SHARE",
        help="Dropout of the hidden layer.",
        section=RARE,
    ),
    option(
        "--initial",
        type=click.Choice(["cosine", "random"]),
        default="cosine",
        help="Initial weights: those that score as the cosine, where the head can, or random ones.",
        section=RARE,
    ),
    option(
        "--optimizer",
        type=click.Choice(["adam", "sgd"]),
        default="adam",
        help="Optimizer.",
        section=RARE,
    ),
]


@click.command("reranker", cls=Command)
@dataset_argument
@output_folder("Write the reranker to this folder.")
@question_options
@settings("reranker", HeadOptions, _HEAD)
@sampling_options(count=None, positives=None, questions=32)
@option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    metavar="N",
    help="Number of times that the head is trained; the best one on dev is kept.",
    section="Training",
)
@encoder_options("all-MiniLM-L6-v2, or the model of --index")
@cache_option
@plot_option
@json_option
@quiet_option
def reranker_command(
    dataset: Path,
    output: Path,
    data: QuestionOptions,
    reranker: HeadOptions,
    sampling: SamplingOptions,
    seeds: int,
    encoder: EncoderOptions,
    cache: bool,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a head on the vectors of DATASET's training questions and their passages.

    The encoder is not changed, and encodes each text once. The epoch with the best AP on the dev
    split is kept, which may be the untrained head, and of several seeds the best one.
    """
    from cli.output.progress import Stages
    from cli.output.results import draw, saying, show
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
    with Stages(quiet=quiet) as progress:
        result = fit_reranker(
            dataset,
            output,
            RerankerSettings(
                plan.of(interaction, kind or "linear"),
                choice.encoder,
                Loading(choice.device, choice.download, cache_folder(cache)),
                data.settings(),
                seeds,
            ),
            progress=progress,
            notify=saying(quiet=quiet),
        )
    draw(result, plot)
    show(result, as_json=as_json, quiet=quiet)


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
def cross_encoder_command(
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
    from retriever.rerankers.settings import CrossTrainingSettings

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
