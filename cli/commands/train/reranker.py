"""`retriever train reranker`: train a head on the vectors of an encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import dataset_argument, training_questions
from cli.options import Command, EncoderOptions, Settings, encoder_options, option, output_folder
from cli.output.progress import Stages
from cli.output.results import ResultOptions, result_options
from cli.output.text import say
from cli.training_options import sampling_options
from eval.settings import QuestionSettings
from retriever.training import HeadSettings, HeadTrainingSettings, SamplingSettings

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
    help="Number of training runs; the run with the best dev AP is kept.",
    section="Training",
)
@Settings("head", HeadSettings, leave_out=("interaction", "head"))
@Settings("training", HeadTrainingSettings, "epochs", leave_out=("seed",))
@sampling_options(SamplingSettings())
@encoder_options("all-MiniLM-L6-v2, or the model of --index", cache=True)
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
    results: ResultOptions,
) -> None:
    """Train a reranker on embeddings of questions and passages.

    The command trains a head on the training questions of DATASET. The encoder does not change; it
    encodes each text once. The command keeps the epoch with the best AP on the dev split, which may
    be the untrained head. With several seeds, it keeps the best run.
    """
    from eval import HeadPlan, QASettings, fit_reranker

    interaction, _, kind = system.partition(":")
    plan = HeadPlan(head, replace(training, sampling=sampling))
    with Stages() as progress:
        result = fit_reranker(
            dataset,
            output,
            QASettings(
                encoder.model,
                encoder.loading(),
                data,
                seeds=seeds,
                head=plan.of(interaction, kind or "linear"),
            ),
            progress=progress,
            notify=say,
        )
    results.show(result)
