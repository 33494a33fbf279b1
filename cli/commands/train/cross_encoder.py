"""`retriever train cross-encoder`: fine-tune a transformer that reads question and passage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from cli.options.declaring import RARE, Command, Decorator, option, settings
from cli.options.encoder import MINILM, device_option, download_option
from cli.options.evaluation import plot_option, seed_option
from cli.options.output import json_option, output_folder, quiet_option
from cli.options.qa import QuestionOptions, dataset_argument, question_options
from cli.options.training import SamplingOptions, optimization_options, sampling_options


@dataclass(frozen=True, slots=True)
class FineTuningOptions:
    """How a cross-encoder is fine-tuned."""

    epochs: int
    patience: int
    tolerance: float
    learning_rate: float
    head_learning_rate: float
    weight_decay: float
    warmup: float
    clip: float
    averaging: float
    train_word_embeddings: bool
    precision: Literal["auto", "float32", "bfloat16"]
    seed: int


_FINE_TUNING: list[Decorator] = [
    *optimization_options(
        epochs=3,
        patience=2,
        unkept="in a row that are not kept",
        learning_rate=1e-4,
        of="the transformer after the warm-up",
        decay="Weight decay of matrices.",
    ),
    option(
        "--tolerance",
        type=click.FloatRange(min=0),
        default=0.02,
        metavar="AP",
        help="Keep the last epoch whose dev AP (0 to 1) is at most this much below the best before "
        "it.",
        section="Training",
    ),
    option(
        "--head-learning-rate",
        type=click.FloatRange(min=0, min_open=True),
        default=1e-3,
        metavar="RATE",
        help="Learning rate of the MLP on [CLS].",
        section=RARE,
    ),
    option(
        "--warmup",
        type=click.FloatRange(0, 1),
        default=0.1,
        metavar="SHARE",
        help="Share of the steps during which the learning rates rise.",
        section=RARE,
    ),
    option(
        "--clip",
        type=click.FloatRange(min=0, min_open=True),
        default=1.0,
        metavar="NORM",
        help="Norm that gradients are clipped to.",
        section=RARE,
    ),
    option(
        "--averaging",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.95,
        metavar="DECAY",
        help="Decay of the moving average of the weights, which is kept; 0 keeps the last weights.",
        section=RARE,
    ),
    option(
        "--train-word-embeddings",
        is_flag=True,
        help="Train the word embeddings too, unlike the paper.",
        section=RARE,
    ),
    option(
        "--precision",
        type=click.Choice(["auto", "float32", "bfloat16"]),
        default="auto",
        help="Number format of products in training; auto is bfloat16 where the processor is "
        "faster with it.",
        section=RARE,
    ),
    seed_option("the MLP's first weights, dropout and the order of questions"),
]


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
@settings("tuning", FineTuningOptions, _FINE_TUNING)
@sampling_options(count=12, positives=3, questions=8)
@option(
    "--restart",
    is_flag=True,
    help="Start over instead of resuming from a checkpoint.",
    section="Training",
)
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
    sampling: SamplingOptions,
    restart: bool,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET by pairwise hinge loss.

    If it is interrupted, the same command resumes from the last checkpoint. The last epoch is kept
    that is not worse on the dev split than an earlier one, see --tolerance.
    """
    from dataclasses import asdict

    from cli.output.progress import Stages
    from cli.output.results import draw, say, show
    from eval import (
        CrossEncoderSettings,
        CrossPlan,
        Loading,
        fit_cross_encoder,
    )
    from retriever.rerankers.cross.settings import CrossTrainingSettings

    training = CrossTrainingSettings(
        margin=sampling.margin, sampling=sampling.settings(), **asdict(tuning)
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
            notify=say,
        )
    draw(result, plot)
    show(result, as_json=as_json)
