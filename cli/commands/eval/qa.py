"""`retriever eval qa`: rank the candidates of questions with several systems."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from cli.evaluation_options import (
    WITHOUT_POSITIVE,
    baseline_option,
    dataset_argument,
    measure_option,
    question_options,
    resampling_options,
)
from cli.options import (
    Command,
    EncoderOptions,
    Settings,
    encoder_options,
    option,
    query_map_option,
    refuse,
)
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line, result_options
from cli.output.text import say
from eval.settings import QuestionSettings, Resampling
from retriever.settings import setting

_SYSTEMS = ("bm25", "cosine", "hybrid")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The split to rank, the number of trainings, and the questions to list."""

    split: str = setting("test", "Split to rank.", section="Input")
    cross_seeds: int = setting(
        1, "Number of fine-tuning runs of each cross-encoder.", low=1, section="Training"
    )
    top: int = setting(
        3,
        "Number of questions to list per system: those with the largest difference from the "
        "baseline.",
        low=0,
        section="Output",
    )
    seeds: int = setting(3, "Number of training runs of each head.", low=1)
    without_positive: Literal["exclude", "count"] = WITHOUT_POSITIVE


@click.command("qa", cls=Command)
@dataset_argument
@Settings("run", RunOptions, "split cross_seeds")
@question_options
@option(
    "-s",
    "--systems",
    "systems",
    multiple=True,
    default=_SYSTEMS,
    show_default=",".join(_SYSTEMS),
    metavar="NAME[,NAME...]",
    help="System: bm25, rank-bm25, cosine, hybrid[:WEIGHT|tuned|rrf], concat[:linear|mlp], "
    "bilinear or uv[:linear|mlp[:random]], or cross-encoder[:ensemble][:hybrid]. It can also "
    "be the folder of a saved reranker, a TREC run, all, or heads (every head, also with "
    "random initial weights). Add @ENCODER to name another encoder. Repeatable.",
    section="Ranking",
)
@query_map_option
@baseline_option("System", "NAME")
@measure_option(
    (),
    "AP, RR, P@1, P@5, P@10, R@1, R@5, R@10, R@100, nDCG@10; on Quasar-T and SearchQA "
    "Success@1, Success@5, Success@10, AP, RR, P@1",
)
@encoder_options("all-MiniLM-L6-v2, or the model of --index", "layers pooling dtype", cache=True)
@resampling_options
@result_options("the report, TREC runs, learning curves and cross-encoders")
def qa_command(
    dataset: Path,
    run: RunOptions,
    data: QuestionSettings,
    systems: tuple[str, ...],
    query_map: Path | None,
    baseline: str | None,
    measures: tuple[str, ...],
    encoder: EncoderOptions,
    resampling: Resampling,
    results: ResultOptions,
) -> None:
    """Compare systems that rank the candidates of questions.

    DATASET is a folder in the project's own format or in the format of WikiPassageQA, InsuranceQA,
    Quasar-T, SearchQA, WikiQA, TrecQA, BEIR, MS MARCO or TREC. Heads and cross-encoders are trained
    on its training split. The dev split chooses epochs and weights. The report has confidence
    intervals and paired tests.
    """
    from eval import QASettings, rank_systems
    from eval.qa.systems import INTERACTIONS, parse_systems

    kinds = {system.kind for system in parse_systems(systems)}
    if not kinds & {*INTERACTIONS}:
        refuse("seeds", "no system here trains a head")
    if "cross-encoder" not in kinds:
        refuse("cross_seeds", "no system here trains a cross-encoder")
    settings = QASettings(
        encoder=encoder.model,
        loading=encoder.loading(),
        data=data,
        **asdict(run),
        measures=measures or None,
        baseline=baseline,
        resampling=resampling,
        query_map=query_map,
        models=None if results.report is None else results.report / "rerankers",
    )
    with Stages() as progress:
        result = rank_systems(
            dataset,
            systems,
            settings,
            progress=progress,
            notify=say,
            command=command_line(),
        )
    results.show(result)
