"""`retriever eval qa`: which system ranks the passages of a question set best?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.options.declaring import Command, is_given, json_option, option, quiet_option, settings
from cli.options.encoder import EncoderOptions, encoder_options
from cli.options.evaluation import (
    LayerOptions,
    QuestionOptions,
    ResamplingOptions,
    by_layer_options,
    cache_folder,
    cache_option,
    dataset_argument,
    measure_option,
    question_options,
    report_option,
    resampling_options,
    without_positive_option,
)
from cli.options.training import TrainingOptions, training_options

if TYPE_CHECKING:
    from eval import QAResult, SentenceResult


_SYSTEMS = ("bm25", "cosine", "hybrid")


@click.command("qa", cls=Command)
@dataset_argument
@option(
    "--split",
    default="test",
    metavar="NAME",
    help="Split to rank.",
    section="Input",
)
@question_options
@option(
    "-s",
    "--systems",
    "systems",
    multiple=True,
    default=_SYSTEMS,
    shown_default=",".join(_SYSTEMS),
    metavar="NAME[,NAME...]",
    help="Systems: bm25, rank-bm25, cosine, hybrid[:WEIGHT|tuned|rrf], concat[:linear|mlp], "
    "bilinear or uv[:linear|mlp[:random]], cross-encoder[:LOSS][:ensemble][:hybrid]; @ENCODER "
    "after one that uses an encoder names another; the folder of a saved reranker; a TREC run; "
    "all; or heads: every head, also from random initial weights. May be repeated.",
    section="Ranking",
)
@option(
    "--baseline",
    metavar="NAME",
    help="System that the others are compared with.",
    shown_default="the first",
    section="Ranking",
)
@measure_option(
    (),
    "AP, RR, P@1, P@5, P@10, R@1, R@5, R@10, R@100, nDCG@10; on Quasar-T and SearchQA "
    "Success@1, Success@5, Success@10, AP, RR, P@1",
)
@without_positive_option
@settings(
    "states",
    LayerOptions,
    by_layer_options("the model by its cosine, not systems", "Ranking"),
)
@option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    metavar="N",
    help="Number of times that each head is trained.",
    section="Training",
)
@option(
    "--cross-seeds",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of times that each cross-encoder is fine-tuned.",
    section="Training",
)
@training_options
@report_option("the report, TREC runs, figures and cross-encoders")
@option(
    "--top",
    type=click.IntRange(min=0),
    default=3,
    metavar="N",
    help="Number of questions to list per system on which it differs most from the baseline.",
    section="Output",
)
@encoder_options("all-MiniLM-L6-v2, or the model of --index")
@cache_option
@resampling_options
@json_option
@quiet_option
def qa_command(
    dataset: Path,
    split: str,
    data: QuestionOptions,
    systems: tuple[str, ...],
    baseline: str | None,
    measures: tuple[str, ...],
    without_positive: Literal["exclude", "count"],
    states: LayerOptions,
    seeds: int,
    cross_seeds: int,
    training: TrainingOptions,
    output: Path | None,
    top: int,
    encoder: EncoderOptions,
    cache: bool,
    resampling: ResamplingOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Rank the candidates of each question of DATASET with several systems.

    DATASET is a folder in the project's own form or in that of WikiPassageQA, InsuranceQA,
    Quasar-T, SearchQA, WikiQA, TrecQA, BEIR, MS MARCO or TREC. Heads and cross-encoders are trained
    on its training split; epochs and weights are chosen on its dev split. Systems are compared by
    intervals and paired tests. --by-layer ranks by every hidden state of the model instead.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, report, say
    from eval import Loading, QASettings, rank_layers, rank_systems
    from eval.qa.systems import INTERACTIONS, parse_systems

    named = parse_systems(systems)
    kinds = set() if states.by_layer else {one.kind for one in named}
    if training.initial == "random" and any(one.random_start for one in named):
        raise click.UsageError(
            "--initial: with random, heads named with :random and without are the same; leave out "
            "one of the two"
        )
    _refuse_idle(heads=bool(kinds & {*INTERACTIONS}), crosses="cross-encoder" in kinds)
    choice = encoder.choice()
    asked = QASettings(
        encoder=choice.encoder,
        loading=Loading(choice.device, choice.download, cache_folder(cache)),
        data=data.settings(),
        split=split,
        measures=measures or None,
        baseline=baseline,
        without_positive=without_positive,
        resampling=resampling.settings(),
        seeds=seeds,
        cross_seeds=cross_seeds,
        head=training.head(trained=any(one.kind in INTERACTIONS for one in named)),
        cross=training.cross(),
        models=None if output is None else output / "rerankers",
        top=top,
    )
    result: QAResult | SentenceResult
    with Stages(quiet=quiet) as progress:
        if states.by_layer:
            _refuse_systems(baseline)
            poolings = states.scored_poolings()
            result = rank_layers(
                dataset, poolings, asked, progress=progress, command=command_line()
            )
        else:
            result = rank_systems(
                dataset, systems, asked, progress=progress, notify=say, command=command_line()
            )
    report(result, output, as_json=as_json)


def _refuse_idle(*, heads: bool, crosses: bool) -> None:
    """Refuse the options of trainings that no system has."""
    for of, used, names in (
        ("a head", heads, ("seeds", "initial", "epochs")),
        ("a cross-encoder", crosses, ("cross_seeds", "cross_epochs", "loss", "layer_decay")),
        ("a head or a cross-encoder", heads or crosses, ("negatives", "count", "margin")),
    ):
        for name in names:
            if not used and is_given(name):
                raise click.UsageError(
                    f"--{name.replace('_', '-')}: it is for training {of}, and none is trained "
                    "here; leave it out"
                )


def _refuse_systems(baseline: str | None) -> None:
    """Refuse --by-layer beside systems."""
    if baseline is not None or is_given("systems"):
        raise click.UsageError(
            "--by-layer ranks by the layers of --model alone: leave out --systems and --baseline"
        )
