"""`retriever train reranker`: a head on frozen embeddings, by pairwise hinge loss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import click

from cli.options.encoder import model_choice
from cli.options.qa import cache_folder, cache_option, dataset_options, opened
from cli.options.sampling import sampling_options, sampling_settings
from cli.options.shared import json_option, model_options, quiet_option

if TYPE_CHECKING:
    from retriever.rerankers.head.training import TrainedHead


@click.command("reranker")
@dataset_options
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder to write the reranker into.",
)
@click.option(
    "--system",
    default="uv:mlp",
    show_default=True,
    help="bilinear, concat or uv, with :linear or :mlp.",
)
@click.option(
    "--hidden",
    type=click.IntRange(min=2),
    default=256,
    show_default=True,
    help="Units of the MLP's hidden layer.",
)
@click.option(
    "--dropout",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.1,
    show_default=True,
    help="Of the hidden layer.",
)
@click.option(
    "--initial",
    type=click.Choice(["cosine", "random"]),
    default="cosine",
    show_default=True,
    help="What the head scores as before training, where it can.",
)
@click.option(
    "--optimizer",
    type=click.Choice(["adam", "sgd"]),
    default="adam",
    show_default=True,
    help="Which one.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-3,
    show_default=True,
    help="Of either.",
)
@click.option(
    "--weight-decay",
    type=click.FloatRange(min=0),
    default=0.01,
    show_default=True,
    help="How strongly weights are drawn to where they started.",
)
@click.option(
    "--epochs", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many."
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Stop after so many epochs without a better dev MAP.",
)
@sampling_options(count=None, positives=None, questions=32)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often to train; the best on dev is kept.",
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="A .png or .svg file for the learning curve."
)
@cache_option
@model_options
@json_option
@quiet_option
def command(
    dataset: Path,
    output: Path,
    system: str,
    seeds: int,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train a head on the embeddings of DATASET's training questions and their passages.

    Embeddings stay as they are and are encoded once. The epoch with the best MAP on the dev split
    is kept, the untrained head included, and of the seeds the best one.
    """
    from eval.qa.heads import HeadPlan, fit_head, training_vectors
    from eval.qa.resources import EvaluationSettings
    from eval.qa.systems import INTERACTIONS, parse_system
    from eval.reports.figure_files import check_figure
    from eval.reports.qa_figures import draw_learning
    from retriever.rerankers.head.folder import HeadReranker
    from retriever.rerankers.head.settings import HeadSettings
    from retriever.rerankers.head.training import HeadTrainingSettings
    from retriever.rerankers.manifest import check_target

    asked = parse_system(system)
    if asked.kind not in INTERACTIONS or asked.encoder:
        raise click.UsageError(
            f"--system: expected bilinear, concat or uv, with :linear or :mlp, found {system!r}"
        )
    check_target(output)
    if plot is not None:
        check_figure(plot)
    choice = model_choice(options)
    plan = HeadPlan(
        HeadSettings(
            asked.kind,  # type: ignore[arg-type]
            asked.variant or "linear",  # type: ignore[arg-type]
            **{name: options[name] for name in ("hidden", "dropout", "initial")},
        ),
        HeadTrainingSettings(
            **{
                name: options[name]
                for name in (
                    "margin",
                    "optimizer",
                    "learning_rate",
                    "weight_decay",
                    "epochs",
                    "patience",
                )
            },
            sampling=sampling_settings(options),
        ),
    )
    settings = EvaluationSettings(
        encoder=choice.encoder,
        device=choice.device,
        download=choice.download,
        cache=cache_folder(options["cache"]),
        split=options["train_split"],
        train_split=options["train_split"],
        dev_split=options["dev_split"],
        dev_share=options["dev_share"],
    )
    with opened({"dataset": dataset, **options}, settings, choice, quiet=quiet) as resources:
        train = resources.training_set(plan.training.sampling.negatives)
        encoder = resources.encoder("")
        vectors = training_vectors(
            encoder, train, settings.cache, lambda total: resources.stage("encoding train", total)
        )
        dev = resources.pairs(resources.dev.questions, "")
        advance = resources.stage(f"training {system}", seeds)
        trained = []
        for seed in range(seeds):
            trained.append(fit_head(plan.seeded(seed), vectors, train.pools, dev, resources.dev))
            advance(1)
    best = max(trained, key=lambda one: one.curve[one.best].dev)
    data = {"data": str(dataset), "system": system}
    HeadReranker.of(encoder.spec, best, data).save(output)
    if plot is not None:
        curves = tuple(tuple(epoch.dev for epoch in one.curve) for one in trained)
        draw_learning({system: curves}, plot)
    if as_json:
        click.echo(json.dumps(_json(output, trained)))
        return
    for line in _lines(trained):
        click.echo(line)
    click.echo(f"{output}: seed {trained.index(best)}, after epoch {best.best}")


def _json(output: Path, trained: Sequence[TrainedHead]) -> dict[str, Any]:
    return {
        "output": str(output),
        "seeds": [
            {
                "best_epoch": one.best,
                "dev_map": one.curve[one.best].dev,
                "curve": [asdict(epoch) for epoch in one.curve],
            }
            for one in trained
        ],
    }


def _lines(trained: Sequence[TrainedHead]) -> list[str]:
    """The learning curves, averaged over the seeds that came as far, and the best of each."""
    from cli.output.tables import table

    rows = []
    for number in range(max(len(one.curve) for one in trained)):
        epochs = [one.curve[number] for one in trained if number < len(one.curve)]
        losses = [epoch.loss for epoch in epochs if epoch.loss is not None]
        loss = f"{fmean(losses):.4f}" if losses else ""
        rows.append((str(number), str(len(epochs)), loss, _mean([one.dev for one in epochs])))
    best = [one.curve[one.best].dev for one in trained]
    before = trained[0].curve[0].dev
    return [
        *table(("epoch", "seeds", "loss", "dev MAP"), rows),
        f"dev MAP {_mean(best)} at the best epochs; {100 * before:.2f} before training",
    ]


def _mean(values: Sequence[float]) -> str:
    """Mean and standard deviation, times 100."""
    spread = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.2f}{spread}"
