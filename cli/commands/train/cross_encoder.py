"""`retriever train cross-encoder`: fine-tune a transformer that reads question and passage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.qa import dataset_options, opened
from cli.options.sampling import sampling_options, sampling_settings
from cli.options.shared import json_option, quiet_option

if TYPE_CHECKING:
    from retriever.rerankers.cross.settings import CrossEpoch


@click.command("cross-encoder")
@dataset_options
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder to write the cross-encoder into.",
)
@click.option("--model", metavar="MODEL", help="The transformer. [default: all-MiniLM-L6-v2]")
@click.option(
    "--max-length",
    type=click.IntRange(min=16),
    default=160,
    show_default=True,
    help="The window in word pieces, of question and passage together.",
)
@click.option(
    "--epochs", type=click.IntRange(min=1), default=3, show_default=True, help="At most so many."
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Stop after so many epochs in a row that are not kept.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=0.02,
    show_default=True,
    help="Keep the last epoch whose dev MAP (0 to 1) is at most this below the best before it.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-4,
    show_default=True,
    help="Of the transformer, after the warm-up.",
)
@click.option(
    "--head-learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-3,
    show_default=True,
    help="Of the MLP on [CLS].",
)
@click.option(
    "--weight-decay",
    type=click.FloatRange(min=0),
    default=0.01,
    show_default=True,
    help="Of matrices.",
)
@click.option(
    "--warmup",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="Share of the steps in which the rates rise.",
)
@click.option(
    "--clip",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="The norm that gradients are clipped to.",
)
@click.option(
    "--averaging",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.95,
    show_default=True,
    help="Decay of the moving average of the weights that is kept; 0 keeps the last weights.",
)
@sampling_options(count=12, positives=3, questions=8)
@click.option(
    "--train-word-embeddings", is_flag=True, help="Train the word embeddings too, unlike the paper."
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="auto",
    show_default=True,
    help="Of products in training; auto is bfloat16 where the processor is quicker with it.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of chance.")
@click.option("--restart", is_flag=True, help="Begin anew rather than go on from a checkpoint.")
@click.option(
    "--plot", type=click.Path(path_type=Path), help="A .png or .svg file for the learning curve."
)
@click.option("--device", help="cpu, cuda, ... [default: a GPU if there is one]")
@click.option("--download", is_flag=True, help="Fetch a model that is not in the local hub cache.")
@json_option
@quiet_option
def command(
    dataset: Path,
    output: Path,
    model: str | None,
    max_length: int,
    restart: bool,
    plot: Path | None,
    device: str | None,
    download: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET by pairwise hinge loss.

    Interrupted, it goes on from the last checkpoint when the same command is run again. The last
    epoch is kept that is not worse than earlier ones on the dev split, see --tolerance.
    """
    from dataclasses import asdict, fields

    from eval.qa.cross import CrossPlan, fit_cross_encoder
    from eval.qa.evaluation import watch
    from eval.qa.resources import EvaluationSettings
    from eval.reports.figure_files import check_figure
    from eval.reports.qa_figures import draw_learning
    from retriever.encoders.choice import ModelChoice
    from retriever.encoders.models import DEFAULT_MODEL
    from retriever.rerankers.cross.settings import CrossTrainingSettings, kept_epoch
    from retriever.rerankers.manifest import check_target

    check_target(output)
    if plot is not None:
        check_figure(plot)
    given = dict(options)
    sampling = sampling_settings(given)
    names = {field.name for field in fields(CrossTrainingSettings)}
    training = CrossTrainingSettings(
        **{name: given.pop(name) for name in names & given.keys()}, sampling=sampling
    )
    plan = CrossPlan(model or DEFAULT_MODEL, max_length, training, device, download)
    settings = EvaluationSettings(
        device=device,
        download=download,
        split=given["train_split"],
        train_split=given["train_split"],
        dev_split=given["dev_split"],
        dev_share=given["dev_share"],
    )
    choice = ModelChoice("", device, download)
    with opened({"dataset": dataset, **given}, settings, choice, quiet=quiet) as resources:
        train = resources.training_set(sampling.negatives)
        curve = fit_cross_encoder(
            train,
            resources.dev,
            plan,
            output,
            restart=restart,
            watch=watch("fine-tuning", resources),
        )
    if plot is not None:
        draw_learning({"cross-encoder": (tuple(one.dev for one in curve),)}, plot, first=1)
    kept = kept_epoch(curve, training.tolerance)
    assert kept is not None
    if as_json:
        summary = {"output": str(output), "kept_epoch": kept.epoch, "dev_map": kept.dev}
        click.echo(json.dumps({**summary, "curve": [asdict(one) for one in curve]}))
        return
    for line in _lines(curve):
        click.echo(line)
    click.echo(f"{output}: dev MAP {100 * kept.dev:.2f} after epoch {kept.epoch}")


def _lines(curve: tuple[CrossEpoch, ...]) -> list[str]:
    from cli.output.tables import table

    return table(
        ("epoch", "loss", "active", "dev MAP"),
        [
            (str(one.epoch), f"{one.loss:.4f}", f"{one.active:.3f}", f"{100 * one.dev:.2f}")
            for one in curve
        ],
    )
