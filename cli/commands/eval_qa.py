"""`retriever eval qa`: which system ranks the passages of a question set best?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.evaluation_options import (
    LayerOptions,
    baseline_option,
    by_layer_option,
    dataset_argument,
    measure_option,
    question_options,
    resampling_options,
    without_positive_option,
)
from cli.options import (
    Command,
    EncoderOptions,
    encoder_options,
    flag_of,
    is_given,
    option,
    query_map_option,
    settings,
)
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import QuestionSettings, Resampling
from retriever.settings import setting

if TYPE_CHECKING:
    from eval import QAResult, SentenceResult


_SYSTEMS = ("bm25", "cosine", "hybrid")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What is ranked, how often it is trained, and what is listed."""

    split: str = setting("test", "Split to rank.", section="Input")
    cross_seeds: int = setting(
        1, "Number of times that each cross-encoder is fine-tuned.", low=1, section="Training"
    )
    top: int = setting(
        3,
        "Number of questions to list per system on which it differs most from the baseline.",
        low=0,
        section="Output",
    )
    seeds: int = setting(3, "Number of times that each head is trained.", low=1)


@click.command("qa", cls=Command)
@dataset_argument
@settings("run", RunOptions, "split cross_seeds")
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
@query_map_option
@baseline_option("System", "NAME")
@measure_option(
    (),
    "AP, RR, P@1, P@5, P@10, R@1, R@5, R@10, R@100, nDCG@10; on Quasar-T and SearchQA "
    "Success@1, Success@5, Success@10, AP, RR, P@1",
)
@without_positive_option
@settings(
    "states",
    LayerOptions,
    options=[by_layer_option("the model by its cosine, not systems", "Ranking")],
)
@encoder_options("all-MiniLM-L6-v2, or the model of --index", cache=True)
@resampling_options
@result_options("the report, TREC runs, figures and cross-encoders")
def qa_command(
    dataset: Path,
    run: RunOptions,
    data: QuestionSettings,
    systems: tuple[str, ...],
    query_map: Path | None,
    baseline: str | None,
    measures: tuple[str, ...],
    without_positive: Literal["exclude", "count"],
    states: LayerOptions,
    encoder: EncoderOptions,
    resampling: Resampling,
    shown: ResultOptions,
) -> None:
    """Rank the candidates of each question of DATASET with several systems.

    DATASET is a folder in the project's own form or in that of WikiPassageQA, InsuranceQA,
    Quasar-T, SearchQA, WikiQA, TrecQA, BEIR, MS MARCO or TREC. Heads and cross-encoders are trained
    on its training split; epochs and weights are chosen on its dev split. Systems are compared by
    intervals and paired tests. --by-layer ranks by every hidden state of the model instead.
    """
    from eval import QASettings, rank_layers, rank_systems
    from eval.qa.systems import INTERACTIONS, parse_systems

    named = parse_systems(systems)
    kinds = set() if states.by_layer else {one.kind for one in named}
    for of, used, name in (
        ("a head", kinds & {*INTERACTIONS}, "seeds"),
        ("a cross-encoder", "cross-encoder" in kinds, "cross_seeds"),
    ):
        if not used and is_given(name):
            raise click.UsageError(
                f"{flag_of(name)}: it is for training {of}, and none is trained here; leave it out"
            )
    asked = QASettings(
        encoder=encoder.model,
        loading=encoder.loading(),
        data=data,
        **asdict(run),
        measures=measures or None,
        baseline=baseline,
        without_positive=without_positive,
        resampling=resampling,
        query_map=query_map,
        models=None if shown.report is None else shown.report / "rerankers",
    )
    result: QAResult | SentenceResult
    with shown.stages() as progress:
        if states.by_layer:
            if baseline is not None or is_given("systems"):
                raise click.UsageError(
                    "--by-layer ranks by the layers of --model alone: leave out --systems and "
                    "--baseline"
                )
            poolings, command = states.scored_poolings(), command_line()
            result = rank_layers(dataset, poolings, asked, progress=progress, command=command)
        else:
            result = rank_systems(
                dataset,
                systems,
                asked,
                progress=progress,
                notify=shown.notify,
                command=command_line(),
            )
    shown.write(result)
