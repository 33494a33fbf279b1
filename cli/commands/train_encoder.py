"""`retriever train encoder`: fine-tune an encoder on questions, pairs or a corpus alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.evaluation_options import DataSet, QuestionOptions, data_set, training_questions
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    complete_path,
    encoder_options,
    option,
    output_folder,
    settings,
)
from cli.output.results import ResultOptions, result_options
from cli.output.text import say
from cli.source_options import SourceOptions, source_options
from cli.training_options import (
    FineTuningOptions,
    SamplingOptions,
    fine_tuning_options,
    restart_option,
    sampling_options,
)
from retriever.settings import setting

if TYPE_CHECKING:
    from eval.training.data import EncoderData
    from retriever.documents.reader import CorpusReader


@dataclass(frozen=True, slots=True)
class ObjectiveOptions:
    """What the data are read as, and the loss."""

    pairs: Literal["title", "neighbors", "cloze"] | None = setting(
        None,
        "Read DATA as a corpus, and train on a document's title and text, on neighboring "
        "sentences, or on a sentence and the rest of its passage.",
        section="Input",
    )
    sample: int = setting(
        10_000, "Maximum number of pairs, drawn at random, of a corpus.", low=2, section="Input"
    )
    objective: Literal["nli", "sts", "mnr", "hinge"] | None = setting(
        None,
        "Loss: softmax over labels, squared error of the cosine, multiple negatives ranking, or "
        "pairwise hinge.",
        shown="nli for labels, sts for scores, else mnr",
        section="Training",
    )
    scale: float = setting(
        20.0, "Factor of the cosines in the softmax of mnr.", low=0, low_open=True
    )
    max_length: int = setting(
        128, "Window in word pieces during training; the encoder keeps its own window.", low=8
    )


@click.command("encoder", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="DATA...", shell_complete=complete_path)
@output_folder("Write the encoder to this folder.")
@settings("goal", ObjectiveOptions, "pairs sample objective")
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
@fine_tuning_options(learning_rate=5e-5, tolerance=0.0)
@sampling_options(count=4, positives=1, batch=32, margin=0.2)
@restart_option
@result_options(plot=True)
def encoder_command(
    sources: tuple[str, ...],
    output: Path,
    goal: ObjectiveOptions,
    source: SourceOptions,
    data: QuestionOptions,
    dev: Path | None,
    encoder: EncoderOptions,
    tuning: FineTuningOptions,
    sampling: SamplingOptions,
    restart: bool,
    shown: ResultOptions,
) -> None:
    """Fine-tune an encoder on DATA, and keep the best epoch on dev.

    DATA is a folder of questions with passages, of scored pairs (STS) or of labeled pairs (NLI);
    files of pairs; or, with --pairs, a corpus as `retriever index` reads it. If no epoch is better
    on dev than the untrained encoder, that is what is kept. The folder is a model for --model, here
    and in sentence-transformers. The same command resumes an interrupted run.
    """
    from cli.output.progress import warn_reader
    from eval import CorpusPairs, EncoderFitSettings, Loading, fit_encoder
    from retriever.encoders.training.trainer import EncoderTrainingSettings

    choice = encoder.choice()
    training = EncoderTrainingSettings(
        objective=goal.objective or "mnr",
        scale=goal.scale,
        margin=sampling.margin,
        max_length=goal.max_length,
        sampling=sampling.settings(),
        **tuning.named(),
    )
    reader: CorpusReader | None = None
    given: EncoderData
    if goal.pairs is None:
        given = [data_set(Path(one)) for one in sources]
    else:
        reader = source.reader(sources)
        given = CorpusPairs(reader, goal.pairs, goal.sample, tuning.seed)
    with shown.stages() as progress:
        result = fit_encoder(
            given,
            output,
            EncoderFitSettings(
                choice.encoder,
                goal.objective,
                training,
                Loading(choice.device, choice.download),
                data.settings(),
                dev,
            ),
            restart=restart,
            progress=progress,
            notify=shown.notify,
        )
    if reader is not None:
        warn_reader(reader, say)
    shown.draw(result)
    shown.show(result)
