"""`retriever train reranker`: a head on frozen vectors, by pairwise hinge loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from cli.options.declaring import RARE, Command, option, settings
from cli.options.encoder import EncoderOptions, encoder_options
from cli.options.evaluation import cache_folder, cache_option, plot_option
from cli.options.output import json_option, quiet_option
from cli.options.qa import QuestionOptions, dataset_argument, question_options
from cli.options.sampling import SamplingOptions, sampling_options

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


_HEAD = [
    option(
        "--system",
        type=click.Choice(_SYSTEMS),
        metavar="NAME",
        default="uv:mlp",
        show_default=True,
        help="Head: bilinear, concat or uv, followed by :linear or :mlp.",
        section="Training",
    ),
    option(
        "--epochs",
        type=click.IntRange(min=1),
        default=50,
        show_default=True,
        metavar="N",
        help="Maximum number of epochs.",
        section="Training",
    ),
    option(
        "--patience",
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        metavar="N",
        help="Stop after this many epochs without a better dev AP.",
        section="Training",
    ),
    option(
        "--learning-rate",
        type=click.FloatRange(min=0, min_open=True),
        default=1e-3,
        show_default=True,
        metavar="RATE",
        help="Learning rate of the optimizer.",
        section="Training",
    ),
    option(
        "--weight-decay",
        type=click.FloatRange(min=0),
        default=0.01,
        show_default=True,
        metavar="D",
        help="Strength with which weights are pulled to their initial values.",
        section=RARE,
    ),
    option(
        "--hidden",
        type=click.IntRange(min=2),
        default=256,
        show_default=True,
        metavar="N",
        help="Number of units in the hidden layer of an MLP.",
        section=RARE,
    ),
    option(
        "--dropout",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.1,
        show_default=True,
        metavar="SHARE",
        help="Dropout of the hidden layer.",
        section=RARE,
    ),
    option(
        "--initial",
        type=click.Choice(["cosine", "random"]),
        default="cosine",
        show_default=True,
        help="Initial weights: those that score as the cosine, where the head can, or random ones.",
        section=RARE,
    ),
    option(
        "--optimizer",
        type=click.Choice(["adam", "sgd"]),
        default="adam",
        show_default=True,
        help="Optimizer.",
        section=RARE,
    ),
]


@click.command("reranker", cls=Command)
@dataset_argument
@option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the reranker to this folder.",
    section="Output",
)
@question_options
@settings("reranker", HeadOptions, _HEAD)
@sampling_options(count=None, positives=None, questions=32)
@option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Number of times that the head is trained; the best one on dev is kept.",
    section="Training",
)
@encoder_options("all-MiniLM-L6-v2, or the model of --index")
@cache_option
@plot_option
@json_option
@quiet_option
def command(
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
    from cli.output.results import draw, say, show
    from eval import HeadPlan, Loading, RerankerSettings, check_figure, fit_reranker
    from retriever.rerankers.head.settings import HeadSettings
    from retriever.rerankers.head.training import HeadTrainingSettings

    if plot is not None:
        check_figure(plot)
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
            notify=say,
        )
    draw(result, plot)
    show(result, as_json=as_json)
