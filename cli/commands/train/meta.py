"""`retriever train meta`: combine several encoders into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from cli.evaluation_options import DataSet
from cli.options import (
    Command,
    Settings,
    complete_path,
    device_option,
    download_option,
    json_option,
    option,
    output_folder,
    quiet_option,
    refuse,
)
from cli.output.progress import Stages, warn_reader
from cli.output.text import meta_lines, meta_summary, say, tell_encoder
from cli.source_options import SourceOptions, corpus_texts, source_options
from retriever.encoders.meta import MetaSettings, Method, UnsupSettings

if TYPE_CHECKING:
    from eval import ScoredPairs
    from retriever.documents import CorpusReader
    from retriever.encoders.meta import MetaEpoch


# Settings of sup and unsup.
_ATTENTION = "weights epochs patience learning_rate weight_decay"
_METHOD = option(
    "--method",
    type=click.Choice(get_args(Method)),
    required=True,
    help="How to combine the encoders: concatenation, zero-padded sum, SVD, generalized canonical "
    "correlation, supervised or unsupervised attention.",
    section="Training",
)


@click.command("meta", cls=Command)
@click.argument("sources", nargs=-1, metavar="[CORPUS]...", shell_complete=complete_path)
@source_options
@option(
    "--train",
    type=DataSet(),
    metavar="DATASET",
    help="sup: scored pairs to train on, as for `retriever eval sts`; in a folder, its training "
    "split.",
    section="Input",
)
@option(
    "--dev",
    type=DataSet(),
    metavar="DATASET",
    help="sup and unsup: scored pairs whose Pearson correlation stops training; in a folder, its "
    "dev split.",
    show_default="for unsup the loss on a tenth of the texts",
    section="Input",
)
@option(
    "--source",
    "encoders",
    multiple=True,
    required=True,
    metavar="MODEL[::SETTING...]",
    help="Encoder to combine, such as all-MiniLM-L6-v2::last4 or ./my-sif. Give at least two.",
    section="Encoder",
)
@device_option
@download_option
@Settings(
    "combination",
    MetaSettings,
    "dimensions pooling level",
    options=[_METHOD],
    leave_out=("method",),
)
@Settings("training", UnsupSettings, "weights", leave_out=("margin",))
@output_folder("Folder to write: a new folder, or the folder of another meta-embedding.")
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
    combination: MetaSettings,
    training: UnsupSettings,
    output: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Combine several encoders into one, for --model.

    The command aligns words across the tokenizers of the encoders, maps them into a common space
    and pools them. svd, gcca and unsup are fitted on the texts of CORPUS, sup on --train; conc and
    avg need neither. Run the same command again to resume an interrupted run.
    """
    from retriever.encoders.meta import FORM, fit_meta

    method = combination.method
    if method not in ("sup", "unsup"):
        refuse(_ATTENTION, "only --method sup and unsup use it")
    settings = replace(combination, training=training)
    FORM.check_target(output)
    reader = _corpus_reader(method, sources, source)
    with Stages(quiet=quiet) as stage:
        progress = _FittingProgress(stage, settings.training.epochs)
        encoder = fit_meta(
            corpus_texts(reader) if reader else (),
            encoders,
            output,
            settings,
            train=_pairs(train, "train"),
            dev=_pairs(dev, "dev"),
            device=device,
            download=download,
            begin=progress.begin,
            done=progress.encoded,
            epoch=progress.epoch,
            notify=say,
        )
    if reader:
        warn_reader(reader)
    description = encoder.meta_parts().describe()
    summary = f"{output}: {meta_summary(description)}, window {encoder.spec.max_length}"
    facts = {"fingerprint": encoder.spec.fingerprint, **description}
    tell_encoder(output, (summary, *meta_lines(facts)), facts, as_json=as_json, quiet=quiet)


def _corpus_reader(
    method: Method, sources: tuple[str, ...], source: SourceOptions
) -> CorpusReader | None:
    """Return the reader of the texts that a method is fitted on; None if it needs none."""
    needs_texts = method in ("svd", "gcca", "unsup")
    if needs_texts and not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a CORPUS")
    if sources and not needs_texts:
        say(f"note: {method} needs no texts; CORPUS is not read")
    return source.reader(sources) if needs_texts else None


class _FittingProgress:
    """A bar over encoded texts, then one over epochs."""

    def __init__(self, stage: Stages, epochs: int) -> None:
        self._stage = stage
        self._epochs = epochs
        self._count_texts: Callable[[int], None] | None = None
        self._count_epochs: Callable[[int], None] | None = None

    def begin(self, texts: int) -> None:
        """Begin the bar over texts."""
        self._count_texts = self._stage("encoding texts", texts)

    def encoded(self, texts: int, pieces: int) -> None:
        """Count encoded texts."""
        del pieces
        if self._count_texts is not None:
            self._count_texts(texts)

    def epoch(self, state: MetaEpoch) -> None:
        """Count an epoch; number 0 is the state before the training."""
        if self._count_epochs is None:
            self._count_epochs = self._stage("training epochs", self._epochs)
        if state.epoch:
            self._count_epochs(1)


def _pairs(path: Path | None, split: Literal["train", "dev"]) -> ScoredPairs | None:
    """Return the scored pairs of a file, or of one split of a folder."""
    from eval import read_sts
    from retriever.errors import SourceError

    if path is None:
        return None
    task = read_sts(path)
    pairs: ScoredPairs | None = task.subsets[0].pairs if path.is_file() else getattr(task, split)
    if pairs is None:
        raise SourceError(f"{path}: has no {split} split; name a file of scored pairs")
    return pairs
