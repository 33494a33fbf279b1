"""`retriever train encoder`: fine-tune an encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.evaluation_options import DataSet, data_set, training_questions
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Settings,
    complete_path,
    encoder_options,
    option,
    output_folder,
)
from cli.output.progress import Stages, warn_reader
from cli.output.results import ResultOptions, result_options
from cli.output.text import say
from cli.source_options import SourceOptions, source_options
from cli.training_options import fine_tuning_options, restart_option, sampling_options
from eval.settings import QuestionSettings
from retriever.settings import setting
from retriever.training import EncoderTrainingSettings, SamplingSettings

if TYPE_CHECKING:
    from eval.training.data import EncoderData
    from retriever.documents import CorpusReader


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Form of the training data."""

    pairs: Literal["title"] | None = setting(
        None, "Read DATA as a corpus, and train on titles and texts of documents.", section="Input"
    )
    sample: int = setting(
        10_000, "Maximum number of pairs of a corpus, drawn at random.", low=2, section="Input"
    )


@click.command("encoder", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="DATA...", shell_complete=complete_path)
@output_folder("Write the encoder to this folder.")
@Settings("goal", PairOptions, "pairs")
@source_options
@training_questions
@option(
    "--dev",
    type=DataSet(),
    metavar="PATH",
    help="File or folder that chooses the epoch.",
    show_default="the dev split of DATA, else a tenth of it, at most 1,000 pairs",
    section="Training",
)
@encoder_options(MINILM)
@fine_tuning_options(EncoderTrainingSettings, "objective")
@sampling_options(EncoderTrainingSettings().sampling)
@restart_option
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
    results: ResultOptions,
) -> None:
    """Fine-tune an encoder on DATA, and keep the best epoch.

    DATA is a folder of questions with passages, of scored pairs (STS) or of labeled pairs (NLI), or
    files of pairs. With --pairs, it is a corpus as for `retriever index`. The dev split chooses the
    epoch. If no epoch is better than the untrained encoder, the command keeps the untrained
    encoder. The result is a model for --model and for sentence-transformers. Run the same command
    again to resume an interrupted run.
    """
    from eval import CorpusPairs, EncoderFitSettings, fit_encoder

    reader: CorpusReader | None = None
    training_data: EncoderData
    if goal.pairs is None:
        training_data = [data_set(Path(source_)) for source_ in sources]
    else:
        reader = source.reader(sources)
        training_data = CorpusPairs(reader, goal.pairs, goal.sample, training.seed)
    with Stages() as progress:
        result = fit_encoder(
            training_data,
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
            notify=say,
        )
    if reader is not None:
        warn_reader(reader)
    results.show(result)
