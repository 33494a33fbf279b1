"""`retriever eval qa`, `eval compare` and `gate`: rankings, by the same judgments."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.commands.query import RankingOptions
from cli.evaluation_options import (
    WITHOUT_POSITIVE,
    baseline_option,
    dataset_argument,
    measure_option,
    qrels_option,
    queries_option,
    query_texts,
    question_options,
    resampling_options,
)
from cli.options import (
    Command,
    Decorator,
    EncoderOptions,
    Location,
    Settings,
    complete_path,
    encoder_options,
    index_location,
    is_given,
    json_option,
    option,
    query_map_option,
    refuse,
)
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line, result_options
from cli.output.text import say
from eval.settings import GateSettings, QuestionSettings, Resampling
from retriever.settings import setting
from retriever.terminal import without_controls

if TYPE_CHECKING:
    from eval.metrics.gate import Ranking


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
    help="Systems: bm25, rank-bm25, cosine, hybrid[:WEIGHT|tuned|rrf], concat[:linear|mlp], "
    "bilinear or uv[:linear|mlp[:random]], cross-encoder[:ensemble][:hybrid]; @ENCODER "
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
    shown: ResultOptions,
) -> None:
    """Rank the candidates of each question of DATASET with several systems.

    DATASET is a folder in the project's own form or in that of WikiPassageQA, InsuranceQA,
    Quasar-T, SearchQA, WikiQA, TrecQA, BEIR, MS MARCO or TREC. Heads and cross-encoders are trained
    on its training split; epochs and weights are chosen on its dev split. Systems are compared by
    intervals and paired tests.
    """
    from eval import QASettings, rank_systems
    from eval.qa.systems import INTERACTIONS, parse_systems

    kinds = {one.kind for one in parse_systems(systems)}
    if not kinds & {*INTERACTIONS}:
        refuse("seeds", "it is for training a head, and none is trained here")
    if "cross-encoder" not in kinds:
        refuse("cross_seeds", "it is for training a cross-encoder, and none is trained here")
    asked = QASettings(
        encoder=encoder.model,
        loading=encoder.loading(),
        data=data,
        **asdict(run),
        measures=measures or None,
        baseline=baseline,
        resampling=resampling,
        query_map=query_map,
        models=None if shown.report is None else shown.report / "rerankers",
    )
    with Stages() as progress:
        result = rank_systems(
            dataset,
            systems,
            asked,
            progress=progress,
            notify=say,
            command=command_line(),
        )
    shown.show(result)


_SEARCH = "k mode alpha fusion depth"
_EXIT = {"pass": 0, "fail": 1, "too few questions": 4}


@dataclass(frozen=True)
class ListOptions:
    """What is listed."""

    top: int = setting(
        5,
        "Number of queries to list per run and measure on which it differs most from the baseline.",
        low=0,
    )
    without_positive: Literal["exclude", "count"] = WITHOUT_POSITIVE


@click.command("compare", cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@qrels_option(required=True)
@queries_option("show the texts of")
@measure_option(("AP", "RR", "nDCG@10"))
@baseline_option("Run", "RUN")
@Settings("listed", ListOptions)
@resampling_options
@json_option
def compare_command(
    runs: tuple[Path, ...],
    qrels: Path,
    queries: str | None,
    measures: tuple[str, ...],
    baseline: str | None,
    listed: ListOptions,
    resampling: Resampling,
    as_json: bool,
) -> None:
    """Score each RUN (TREC format), and compare it with the baseline.

    For each measure: means with 95% intervals, the difference from the baseline with its own, and
    the p-value of a paired randomization test with Holm's correction over the runs. A query that is
    missing from a run counts as zero.
    """
    from eval import compare

    if len(set(runs)) < len(runs):
        raise click.UsageError("a RUN is given twice; name each once")
    texts = query_texts(queries)
    found = compare(
        {str(run): run for run in runs},
        qrels,
        measures,
        baseline=None if baseline is None else str(Path(baseline)),
        keep_without_positive=listed.without_positive == "count",
        resamples=resampling.resamples,
        seed=resampling.seed,
    )
    if as_json:
        click.echo(json.dumps(found.to_json(texts, listed.top)))
    else:
        click.echo(without_controls(found.text(texts, listed.top)))


def _side(name: str, what: str) -> Decorator:
    return option(
        name,
        required=True,
        type=index_location,
        metavar="RUN|INDEX",
        shell_complete=complete_path,
        help=f"{what}: a TREC run, or an index, which is searched for --queries; without -k for as "
        "many hits as a run on the other side has.",
        section="Input",
    )


@click.command("gate", cls=Command)
@_side("--baseline", "Ranking before the change")
@_side("--candidate", "Ranking after the change")
@qrels_option(required=True)
@queries_option("search for and to show")
@Settings("asked", GateSettings, "margin", options=[measure_option(GateSettings().measures)])
@Settings("ranking", RankingOptions, "k mode", defaults={"k": 100})
@resampling_options
@result_options("report.md, gate.md for a pull request, junit.xml and report.json")
def gate_command(
    baseline: Location,
    candidate: Location,
    qrels: Path,
    queries: str | None,
    asked: GateSettings,
    ranking: RankingOptions,
    resampling: Resampling,
    shown: ResultOptions,
) -> int:
    """Pass, fail, or say that there are too few questions to tell.

    A candidate passes if, by each measure, a paired non-inferiority test rules out that it is worse
    than the baseline by --margin or more. It fails if by some measure it is shown to be worse, and
    --margin is not ruled out. The exit code is 0 for a pass, 1 for a failure and 4 for too few
    questions.
    """
    from eval import gate
    from retriever.index import Index

    if all(isinstance(one, Path) and not one.is_dir() for one in (baseline, candidate)):
        refuse(_SEARCH, "it is for searching an index, and both sides are runs")
    with ExitStack() as stack:

        def opened(place: Location) -> Ranking:
            if isinstance(place, Path) and not place.is_dir():
                return place
            return stack.enter_context(Index.open(place))

        result = gate(
            opened(baseline),
            opened(candidate),
            qrels,
            replace(asked, resampling=resampling),
            queries=query_texts(queries),
            search=ranking.settings(),
            match_depth=not is_given("k"),
            command=command_line(),
        )
    shown.show(result)
    return _EXIT[result.verdict]
