"""`retriever train encoder`, `train reranker` and `train cross-encoder`: networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.evaluation_options import (
    DataSet,
    data_set,
    dataset_argument,
    training_questions,
)
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    complete_path,
    device_option,
    download_option,
    encoder_options,
    option,
    output_folder,
    settings,
)
from cli.output.progress import warn_reader
from cli.output.results import ResultOptions, result_options
from cli.source_options import SourceOptions, source_options
from eval.settings import CrossPlan, Loading, QuestionSettings
from retriever.settings import setting
from retriever.training.settings import (
    CrossTrainingSettings,
    EncoderTrainingSettings,
    HeadSettings,
    HeadTrainingSettings,
    SamplingSettings,
)

if TYPE_CHECKING:
    from eval.training.data import EncoderData
    from retriever.documents.reader import CorpusReader

_RESTART = option(
    "--restart",
    is_flag=True,
    help="Start over instead of resuming from a checkpoint, and replace the result of another "
    "training.",
    section="Training",
)


def _sampling_options(defaults: SamplingSettings) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `sampling: SamplingSettings`, with these defaults."""
    given = {name: value for name, value in asdict(defaults).items() if value is not None}
    return settings("sampling", SamplingSettings, "negatives", defaults=given)


def _fine_tuning_options(
    kind: type[CrossTrainingSettings] | type[EncoderTrainingSettings], shown: str
) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `training` of this kind; `shown` is its first option."""
    return settings(
        "training",
        kind,
        f"{shown} train epochs",
        metavars={"train": "full|last:N|lora:RANK"},
    )


@dataclass(frozen=True, slots=True)
class PairOptions:
    """What the data are read as."""

    pairs: Literal["title", "neighbors", "cloze"] | None = setting(
        None,
        "Read DATA as a corpus, and train on a document's title and text, on neighboring "
        "sentences, or on a sentence and the rest of its passage.",
        section="Input",
    )
    sample: int = setting(
        10_000, "Maximum number of pairs, drawn at random, of a corpus.", low=2, section="Input"
    )


@click.command("encoder", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="DATA...", shell_complete=complete_path)
@output_folder("Write the encoder to this folder.")
@settings("goal", PairOptions, "pairs")
@source_options
@training_questions
@option(
    "--dev",
    type=DataSet(),
    metavar="PATH",
    help="File or folder to choose the epoch on.",
    shown_default="the dev split of DATA, else a tenth of it, at most 1,000 pairs",
    section="Training",
)
@encoder_options(MINILM)
@_fine_tuning_options(EncoderTrainingSettings, "objective")
@_sampling_options(EncoderTrainingSettings().sampling)
@_RESTART
@result_options(plot=True)
def encoder_command(
    sources: tuple[str, ...],
    output: Path,
    goal: PairOptions,
    source: SourceOptions,
    data: QuestionSettings,
    dev: Path | None,
    encoder: EncoderOptions,
    training: EncoderTrainingSettings,
    sampling: SamplingSettings,
    restart: bool,
    shown: ResultOptions,
) -> None:
    """Fine-tune an encoder on DATA, and keep the best epoch on dev.

    DATA is a folder of questions with passages, of scored pairs (STS) or of labeled pairs (NLI);
    files of pairs; or, with --pairs, a corpus as `retriever index` reads it. If no epoch is better
    on dev than the untrained encoder, that is what is kept. The folder is a model for --model, here
    and in sentence-transformers. The same command resumes an interrupted run.
    """
    from eval import CorpusPairs, EncoderFitSettings, fit_encoder

    reader: CorpusReader | None = None
    given: EncoderData
    if goal.pairs is None:
        given = [data_set(Path(one)) for one in sources]
    else:
        reader = source.reader(sources)
        given = CorpusPairs(reader, goal.pairs, goal.sample, training.seed)
    with shown.stages() as progress:
        result = fit_encoder(
            given,
            output,
            EncoderFitSettings(
                encoder.model,
                replace(training, sampling=sampling),
                encoder.loading(),
                data,
                dev,
            ),
            restart=restart,
            progress=progress,
            notify=shown.notify,
        )
    if reader is not None:
        warn_reader(reader)
    shown.show(result)


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
    help="Number of times that the head is trained; the best one on dev is kept.",
    section="Training",
)
@settings("head", HeadSettings, leave_out=("interaction", "head"))
@settings("training", HeadTrainingSettings, "epochs", leave_out=("seed",))
@_sampling_options(SamplingSettings())
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
    shown: ResultOptions,
) -> None:
    """Train a head on the vectors of DATASET's training questions and their passages.

    The encoder is not changed, and encodes each text once. The epoch with the best AP on the dev
    split is kept, which may be the untrained head, and of several seeds the best one.
    """
    from eval import HeadPlan, QASettings, fit_reranker

    interaction, _, kind = system.partition(":")
    plan = HeadPlan(head, replace(training, sampling=sampling))
    with shown.stages() as progress:
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
            notify=shown.notify,
        )
    shown.show(result)


@click.command("cross-encoder", cls=Command)
@dataset_argument
@output_folder("Write the cross-encoder to this folder.")
@training_questions
@option(
    "--model",
    "transformer",
    metavar="MODEL",
    help="Transformer to fine-tune: a folder, the name of a bundled model, or a hub id in the "
    "local cache.",
    shown_default=MINILM,
    section="Encoder",
)
@device_option
@download_option
@settings("cross", CrossPlan)
@_fine_tuning_options(CrossTrainingSettings, "loss")
@_sampling_options(CrossTrainingSettings().sampling)
@_RESTART
@result_options(plot=True)
def cross_encoder_command(
    dataset: Path,
    output: Path,
    data: QuestionSettings,
    transformer: str | None,
    device: str | None,
    download: bool,
    cross: CrossPlan,
    training: CrossTrainingSettings,
    sampling: SamplingSettings,
    restart: bool,
    shown: ResultOptions,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET.

    The same command resumes an interrupted run from its last checkpoint. The epoch that is kept is
    the last one whose dev AP is at most --tolerance below the best before it.
    """
    from eval import QASettings, fit_cross_encoder

    training = replace(training, sampling=sampling)
    with shown.stages() as progress:
        result = fit_cross_encoder(
            dataset,
            output,
            QASettings(
                loading=Loading(device, download),
                data=data,
                cross=replace(cross, model=transformer or MINILM, training=training),
            ),
            restart=restart,
            progress=progress,
            notify=shown.notify,
        )
    shown.show(result)
