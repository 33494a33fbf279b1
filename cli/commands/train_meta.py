"""`retriever train meta`: several encoders as one."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.declaring import (
    RARE,
    Command,
    complete_path,
    json_option,
    option,
    quiet_option,
    settings,
)
from cli.options.encoder import device_option, download_option
from cli.options.evaluation import DataSet
from cli.options.source import SourceOptions, corpus_texts, source_options
from cli.output.results import say

if TYPE_CHECKING:
    from eval import ScoredPairs
    from retriever import Encoder
    from retriever.encoders.meta.attention import MetaEpoch, UnsupSettings


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How sup and unsup are trained; None takes the default."""

    unsup_variant: Literal["stable", "printed", "released"] | None
    weights: bool | None
    epochs: int | None
    patience: int | None
    learning_rate: float | None
    weight_decay: float | None


_TRAINING = [
    option(
        "--weights/--no-weights",
        default=None,
        help="sup and unsup: learn a weight for each source, or weight all of them equally.",
        shown_default="--weights",
        section="Training",
    ),
    option(
        "--unsup-variant",
        type=click.Choice(["stable", "printed", "released"]),
        help="unsup: with bounded dissimilarities, the loss as printed in the paper (it diverges), "
        "or that of the released code.",
        shown_default="stable",
        section="Training",
    ),
    option(
        "--epochs",
        type=click.IntRange(min=1),
        metavar="N",
        help="sup and unsup: maximum number of epochs.",
        shown_default="50",
        section=RARE,
    ),
    option(
        "--patience",
        type=click.IntRange(min=1),
        metavar="N",
        help="sup and unsup: stop after this many epochs without improvement.",
        shown_default="5",
        section=RARE,
    ),
    option(
        "--learning-rate",
        type=click.FloatRange(min=0, min_open=True),
        metavar="RATE",
        help="sup and unsup: learning rate of the optimizer.",
        shown_default="0.001",
        section=RARE,
    ),
    option(
        "--weight-decay",
        type=click.FloatRange(min=0),
        metavar="D",
        help="sup and unsup: weight decay of AdamW.",
        shown_default="0.0001",
        section=RARE,
    ),
]


@click.command("meta", cls=Command)
@click.argument("sources", nargs=-1, metavar="[CORPUS]...", shell_complete=complete_path)
@source_options
@option(
    "--train",
    type=DataSet(),
    metavar="DATASET",
    help="sup: scored pairs to train on, as `retriever eval sts` reads them; of a folder its "
    "training split.",
    section="Input",
)
@option(
    "--dev",
    type=DataSet(),
    metavar="DATASET",
    help="sup and unsup: scored pairs whose Pearson correlation stops training; of a folder its "
    "dev split.",
    shown_default="for unsup the loss on a tenth of the texts",
    section="Input",
)
@option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of texts of CORPUS to read, drawn at random.",
    shown_default="100000, for unsup 20000",
    section="Input",
)
@option(
    "--source",
    "encoders",
    multiple=True,
    required=True,
    metavar="MODEL[::SETTING...]",
    help="An encoder to combine, such as all-MiniLM-L6-v2::last4 or ./my-sif. Give two or more.",
    section="Encoder",
)
@device_option
@download_option
@option(
    "--method",
    type=click.Choice(["conc", "avg", "svd", "gcca", "sup", "unsup"]),
    required=True,
    help="How the encoders are combined: concatenation, zero-padded sum, SVD, generalized "
    "canonical correlation, supervised or unsupervised attention.",
    section="Training",
)
@option(
    "--dimensions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of dimensions of the result; conc and avg have no choice.",
    shown_default="those of the widest source",
    section="Training",
)
@option(
    "--pooling",
    type=click.Choice(["mean", "max"]),
    help="How word vectors become one.",
    shown_default="max for sup and unsup, else mean",
    section="Training",
)
@option(
    "--level",
    type=click.Choice(["word", "sentence"]),
    help="Combine word vectors, or vectors of whole texts.",
    shown_default="word if every source has word vectors",
    section="Training",
)
@option(
    "--regularization",
    type=click.FloatRange(min=0),
    metavar="TAU",
    help="gcca: regularization of each source's covariance, as a multiple of its mean variance.",
    shown_default="10",
    section="Training",
)
@settings("training", TrainingOptions, _TRAINING)
@option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Random seed.",
    section="Training",
)
@option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Folder to write: new, or of another meta-embedding.",
    section="Output",
)
@quiet_option
@json_option
def meta_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    train: Path | None,
    dev: Path | None,
    sample: int | None,
    encoders: tuple[str, ...],
    device: str | None,
    download: bool,
    method: Literal["conc", "avg", "svd", "gcca", "sup", "unsup"],
    dimensions: int | None,
    pooling: Literal["mean", "max"] | None,
    level: Literal["word", "sentence"] | None,
    regularization: float | None,
    training: TrainingOptions,
    seed: int,
    output: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Combine several encoders into one, for --model.

    Words are aligned across the tokenizers of the encoders, mapped into a common space and pooled.
    svd, gcca and unsup are fitted on the texts of CORPUS, sup on --train; conc and avg need
    neither. A run that was interrupted resumes if it is started again.
    """
    from cli.output.progress import Stages, warn_reader
    from retriever.encoders.meta.fitting import MetaSettings, fit_meta
    from retriever.encoders.meta.model import check_target

    _check_training(method, training)
    chosen = MetaSettings(
        method,
        dimensions,
        pooling,
        level,
        regularization,
        sample,
        _training_settings(training),
        seed,
    )
    check_target(output)
    reads = method in ("svd", "gcca", "unsup")
    if reads and not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a CORPUS")
    if sources and not reads:
        say(f"note: {method} has nothing to fit on texts; CORPUS is not read")
    reader = source.reader(sources) if reads else None
    with Stages(quiet=quiet) as progress:
        steps: dict[str, Any] = {}

        def begin(texts: int) -> None:
            steps["texts"] = progress("encoding texts", texts)

        def epoch(one: MetaEpoch) -> None:
            if "epochs" not in steps:
                steps["epochs"] = progress("training epochs", chosen.training.epochs)
            if one.epoch:
                steps["epochs"](1)

        encoder = fit_meta(
            corpus_texts(reader) if reader else (),
            encoders,
            output,
            chosen,
            train=_pairs(train, "train"),
            dev=_pairs(dev, "dev"),
            device=device,
            download=download,
            begin=begin,
            done=lambda texts, pieces: steps["texts"](texts),
            epoch=epoch,
            notify=say,
        )
    if reader:
        warn_reader(reader, say)
    _report(encoder, output, quiet=quiet, as_json=as_json)


def _check_training(method: str, training: TrainingOptions) -> None:
    for name in TrainingOptions.__dataclass_fields__:
        belongs = ("unsup",) if name == "unsup_variant" else ("sup", "unsup")
        if getattr(training, name) is not None and method not in belongs:
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(f"{flag} belongs to --method {' and '.join(belongs)}")


def _training_settings(training: TrainingOptions) -> UnsupSettings:
    from retriever.encoders.meta.attention import UnsupSettings

    given = {
        "variant": training.unsup_variant,
        "weights": training.weights,
        "epochs": training.epochs,
        "patience": training.patience,
        "learning_rate": training.learning_rate,
        "weight_decay": training.weight_decay,
    }
    named: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(UnsupSettings(), **named)


def _pairs(path: Path | None, split: Literal["train", "dev"]) -> ScoredPairs | None:
    """The scored pairs of a file, or of one split of a folder."""
    from eval import read_sts
    from retriever.errors import SourceError

    if path is None:
        return None
    task = read_sts(path)
    found = task.subsets[0].pairs if path.is_file() else getattr(task, split)
    if found is None:
        raise SourceError(f"{path}: has no {split} split; name a file of scored pairs")
    pairs: ScoredPairs = found
    return pairs


def _report(encoder: Encoder, output: Path, *, quiet: bool, as_json: bool) -> None:
    from cli.output.tables import meta_lines, meta_summary
    from retriever.encoders.settings import EncoderSettings

    named = str(EncoderSettings(model=str(output)))
    facts = encoder.meta_parts().describe()
    if as_json:
        found = {"encoder": named, "fingerprint": encoder.spec.fingerprint, **facts}
        click.echo(json.dumps(found, ensure_ascii=False))
    elif not quiet:
        window = encoder.spec.max_length
        say(f"{output}: {meta_summary(facts)}, window {window}", err=False)
        click.echo("\n".join(meta_lines(facts)))
        say(f"--model {shlex.quote(named)}", err=False)
