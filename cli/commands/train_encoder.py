"""`retriever train encoder`: fine-tune an encoder on questions, pairs or a corpus alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.options.declaring import (
    RARE,
    Command,
    complete_path,
    json_option,
    option,
    output_folder,
    quiet_option,
)
from cli.options.encoder import MINILM, ModelOptions, model_options
from cli.options.evaluation import DataSet, QuestionOptions, data_set, plot_option, question_options
from cli.options.source import SourceOptions, source_options
from cli.options.training import (
    FineTuningOptions,
    SamplingOptions,
    fine_tuning_options,
    restart_option,
    sampling_options,
)

if TYPE_CHECKING:
    from eval.training.data import EncoderData
    from retriever.documents.reader import CorpusReader


@click.command("encoder", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="DATA...", shell_complete=complete_path)
@output_folder("Write the encoder to this folder.")
@option(
    "--pairs",
    type=click.Choice(["title", "neighbors", "cloze"]),
    help="Read DATA as a corpus, and train on a document's title and text, on neighboring "
    "sentences, or on a sentence and the rest of its passage.",
    section="Input",
)
@option(
    "--sample",
    type=click.IntRange(min=2),
    default=10_000,
    metavar="N",
    help="Maximum number of pairs, drawn at random, of a corpus.",
    section="Input",
)
@source_options
@question_options
@option(
    "--dev",
    type=DataSet(),
    metavar="PATH",
    help="File or folder to choose the epoch on.",
    shown_default="the dev split of DATA, else a tenth of it, at most 1,000 pairs",
    section="Training",
)
@option(
    "--objective",
    type=click.Choice(["nli", "sts", "mnr", "hinge"]),
    help="Loss: softmax over labels, squared error of the cosine, multiple negatives ranking, or "
    "pairwise hinge.",
    shown_default="nli for labels, sts for scores, else mnr",
    section="Training",
)
@option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    metavar="S",
    help="Factor of the cosines in the softmax of mnr.",
    section=RARE,
)
@model_options(MINILM)
@option(
    "--max-length",
    type=click.IntRange(min=8),
    default=128,
    metavar="N",
    help="Window in word pieces during training; the encoder keeps its own window.",
    section="Encoder",
)
@fine_tuning_options(
    learning_rate=5e-5,
    tolerance=0.0,
    score="score",
    head="the classifier of nli",
    words="",
    seed="what is drawn, first weights, dropout and the order of examples",
)
@sampling_options(count=4, positives=1, questions=32, margin=0.2, in_batch=True)
@restart_option
@plot_option
@json_option
@quiet_option
def encoder_command(
    sources: tuple[str, ...],
    output: Path,
    pairs: Literal["title", "neighbors", "cloze"] | None,
    sample: int,
    source: SourceOptions,
    data: QuestionOptions,
    dev: Path | None,
    objective: Literal["nli", "sts", "mnr", "hinge"] | None,
    scale: float,
    encoder: ModelOptions,
    max_length: int,
    tuning: FineTuningOptions,
    sampling: SamplingOptions,
    restart: bool,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fine-tune an encoder on DATA, and keep the best epoch on dev.

    DATA is a folder of questions with passages, of scored pairs (STS) or of labeled pairs (NLI);
    files of pairs; or, with --pairs, a corpus as `retriever index` reads it. If no epoch is better
    on dev than the untrained encoder, that is what is kept. The folder is a model for --model, here
    and in sentence-transformers. The same command resumes an interrupted run.
    """
    from cli.output.progress import Stages, warn_reader
    from cli.output.results import draw, say, saying, show
    from eval import CorpusPairs, EncoderFitSettings, Loading, check_figure, fit_encoder
    from retriever.encoders.training.trainer import EncoderTrainingSettings

    if plot is not None:
        check_figure(plot)
    choice = encoder.choice()
    training = EncoderTrainingSettings(
        objective=objective or "mnr",
        scale=scale,
        margin=sampling.margin,
        max_length=max_length,
        sampling=sampling.settings(),
        **tuning.named(),
    )
    reader: CorpusReader | None = None
    given: EncoderData
    if pairs is None:
        given = [data_set(Path(one)) for one in sources]
    else:
        reader = source.reader(sources)
        given = CorpusPairs(reader, pairs, sample, tuning.seed)
    with Stages(quiet=quiet) as progress:
        result = fit_encoder(
            given,
            output,
            EncoderFitSettings(
                choice.encoder,
                objective,
                training,
                Loading(choice.device, choice.download),
                data.settings(),
                dev,
            ),
            restart=restart,
            progress=progress,
            notify=saying(quiet=quiet),
        )
    if reader is not None:
        warn_reader(reader, say)
    draw(result, plot)
    show(result, as_json=as_json, quiet=quiet)
