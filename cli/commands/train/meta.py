"""`retriever train meta`: combine several encoders into one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from cli.evaluation_options import (
    DataSet,
)
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
    from retriever.encoders.meta import MetaEpoch


_ATTENTION = "weights epochs patience learning_rate weight_decay"


_METHOD = option(
    "--method",
    type=click.Choice(get_args(Method)),
    required=True,
    help="How the encoders are combined: concatenation, zero-padded sum, SVD, generalized "
    "canonical correlation, supervised or unsupervised attention.",
    section="Training",
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
    show_default="for unsup the loss on a tenth of the texts",
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
@Settings(
    "combination",
    MetaSettings,
    "dimensions pooling level",
    options=[_METHOD],
    leave_out=("method",),
)
@Settings("training", UnsupSettings, "weights", leave_out=("margin",))
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
    combination: MetaSettings,
    training: UnsupSettings,
    output: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Combine several encoders into one, for --model.

    Words are aligned across the tokenizers of the encoders, mapped into a common space and pooled.
    svd, gcca and unsup are fitted on the texts of CORPUS, sup on --train; conc and avg need
    neither. A run that was interrupted resumes if it is started again.
    """
    from retriever.encoders.meta import FORM, fit_meta

    method = combination.method
    if method not in ("sup", "unsup"):
        refuse(_ATTENTION, "it belongs to --method sup and unsup")
    chosen = replace(combination, training=training)
    FORM.check_target(output)
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
        warn_reader(reader)
    facts = encoder.meta_parts().describe()
    summary = f"{output}: {meta_summary(facts)}, window {encoder.spec.max_length}"
    facts = {"fingerprint": encoder.spec.fingerprint, **facts}
    lines = (summary, *meta_lines(facts))
    tell_encoder(output, lines, facts, as_json=as_json, quiet=quiet)


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
