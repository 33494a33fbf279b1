"""`retriever train meta`: several encoders as one."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.evaluation_options import DataSet
from cli.options import (
    Command,
    complete_path,
    device_option,
    download_option,
    flag_of,
    json_option,
    option,
    output_folder,
    quiet_option,
    seed_option,
    settings,
)
from cli.output.text import meta_lines, meta_summary, say
from cli.source_options import SourceOptions, corpus_texts, source_options
from retriever.settings import setting

if TYPE_CHECKING:
    from eval import ScoredPairs
    from retriever import Encoder
    from retriever.encoders.meta.attention import UnsupSettings
    from retriever.encoders.meta.attention_fitting import MetaEpoch


@dataclass(frozen=True, slots=True)
class CombinationOptions:
    """How encoders are combined; None takes the default."""

    dimensions: int | None = setting(
        None,
        "Number of dimensions of the result; conc and avg have no choice.",
        low=1,
        shown="those of the widest source",
        section="Training",
    )
    pooling: Literal["mean", "max"] | None = setting(
        None,
        "How word vectors become one.",
        shown="max for sup and unsup, else mean",
        section="Training",
    )
    level: Literal["word", "sentence"] | None = setting(
        None,
        "Combine word vectors, or vectors of whole texts.",
        shown="word if every source has word vectors",
        section="Training",
    )
    regularization: float | None = setting(
        None,
        "gcca: regularization of each source's covariance, as a multiple of its mean variance.",
        low=0,
        shown="10",
    )
    sample: int | None = setting(
        None,
        "Maximum number of texts of CORPUS to read, drawn at random.",
        low=1,
        shown="100000, for unsup 20000",
    )


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """How sup and unsup are trained; None takes the default."""

    weights: bool | None = setting(
        None,
        "sup and unsup: learn a weight for each source, or weight all of them equally.",
        shown="--weights",
        section="Training",
    )
    epochs: int | None = setting(
        None, "sup and unsup: maximum number of epochs.", low=1, shown="50"
    )
    patience: int | None = setting(
        None, "sup and unsup: stop after this many epochs without improvement.", low=1, shown="5"
    )
    learning_rate: float | None = setting(
        None, "sup and unsup: learning rate of the optimizer.", low=0, low_open=True, shown="0.001"
    )
    weight_decay: float | None = setting(
        None, "sup and unsup: weight decay of AdamW.", low=0, shown="0.0001"
    )

    def check(self, method: str) -> None:
        """Refuse what the method does not use."""
        for name, value in asdict(self).items():
            if value is not None and method not in ("sup", "unsup"):
                raise click.UsageError(f"{flag_of(name)} belongs to --method sup and unsup")

    def settings(self) -> UnsupSettings:
        """The same for a training."""
        from retriever.encoders.meta.attention import UnsupSettings

        return UnsupSettings(
            **{name: value for name, value in asdict(self).items() if value is not None}
        )


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
@settings("combination", CombinationOptions, "dimensions pooling level")
@settings("training", AttentionOptions, "weights")
@seed_option("all that is drawn")
@output_folder("Folder to write: new, or of another meta-embedding.")
@quiet_option
@json_option
def meta_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    train: Path | None,
    dev: Path | None,
    encoders: tuple[str, ...],
    device: str | None,
    download: bool,
    method: Literal["conc", "avg", "svd", "gcca", "sup", "unsup"],
    combination: CombinationOptions,
    training: AttentionOptions,
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

    training.check(method)
    chosen = MetaSettings(
        method=method, **asdict(combination), training=training.settings(), seed=seed
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
