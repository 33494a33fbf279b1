"""`retriever eval sts`, `transfer` and `probe`: encoders of sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from cli.evaluation_options import (
    DataSet,
    LayerOptions,
    baseline_option,
    resampling_options,
)
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Settings,
    encoder_options,
    option,
    refuse,
)
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import (
    LayerTransferSettings,
    ProtocolName,
    RelatednessSettings,
    Resampling,
    STSSettings,
    TransferProtocol,
    TransferSettings,
)
from retriever.settings import setting

_datasets_argument = click.argument(
    "datasets", nargs=-1, required=True, metavar="DATASET...", type=DataSet()
)


@dataclass(frozen=True)
class SentenceOptions(LayerOptions, EncoderOptions):
    """The encoders that are scored, and the one that the others are compared with."""

    encoders: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    baseline: str | None = None

    def names(self) -> tuple[str, ...]:
        """Their text forms; that of --model if no other is named."""
        from eval import named_encoders

        asked = self.encoders or (() if self.lists else (self.model or MINILM,))
        return named_encoders(asked, self.lists, self.model)

    def shared(self, resampling: Resampling) -> dict[str, Any]:
        """The settings that scores of every kind have; a baseline without a model is of --model."""
        from retriever.encoders import over_model

        return {
            "poolings": self.scored_poolings(),
            "baseline": self.baseline and over_model(self.baseline, self.model or MINILM),
            "resampling": resampling,
            "loading": self.loading(),
        }


# The command takes `encoders: SentenceOptions`.
_sentence_options = encoder_options(
    MINILM,
    cache=True,
    name="encoders",
    kind=SentenceOptions,
    also="by_layer",
    more=[
        option(
            "-e",
            "--encoder",
            "encoders",
            multiple=True,
            metavar="MODEL[::KEY=VALUE...]",
            help="Encoder to score, such as all-MiniLM-L6-v2::lc:0,6; without a model (::lc:0,6) "
            "it is of --model. static=sif and static=usif are fitted on the texts of each set. May "
            "be repeated.",
            show_default="--model",
            section="Encoder",
        ),
        option(
            "--encoders",
            "lists",
            multiple=True,
            type=click.Choice(["paper"]),
            help="List of encoders over --model. paper: last, cls, max, last4, all layers, "
            "top-bottom, both SBERT-WK, lc:0,-1, SIF, uSIF, p-mean and average.",
            section="Encoder",
        ),
        baseline_option("Encoder", "ENCODER", "Scoring"),
    ],
)


# The command takes `scoring: TransferSettings`.
_classifier_options = Settings("scoring", TransferSettings, "classifier seeds")


def _score(
    score: Callable[..., Any],
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    settings: Any,
    shown: ResultOptions,
) -> None:
    names = encoders.names()
    command = command_line()
    with Stages() as progress:
        result = score(datasets, names, settings, progress=progress, command=command)
    shown.show(result)


@click.command("sts", cls=Command)
@_datasets_argument
@_sentence_options
@Settings("scoring", STSSettings, "aggregation")
@option(
    "--supervised",
    is_flag=True,
    help="SentEval's protocol for STS-B and SICK-R: train a softmax layer on the pairs of each "
    "set.",
    section="Training",
)
@Settings("training", RelatednessSettings)
@resampling_options
@result_options("the report, values by pair and figures of --by-layer")
def sts_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    scoring: STSSettings,
    supervised: bool,
    training: RelatednessSettings,
    resampling: Resampling,
    shown: ResultOptions,
) -> None:
    """Correlate the cosines of encoders with human scores of similarity.

    DATASET is the folder of a test (STS12 to STS16, STS-B or SICK-R; its form is detected), or a
    file of scored pairs. Reports Spearman's and Pearson's correlations with intervals and paired
    tests.
    """
    from eval import score_sts

    if not supervised:
        refuse("seeds", "it belongs to --supervised, since cosines are not random")
    settings = replace(
        scoring, supervised=training if supervised else None, **encoders.shared(resampling)
    )
    _score(score_sts, datasets, encoders, settings, shown)


def _shares(text: str) -> tuple[float, ...]:
    """Shares above 0, up to 1, separated by commas."""
    try:
        shares = tuple(float(Fraction(part)) for part in text.split(","))
    except (ValueError, ZeroDivisionError):
        shares = (0.0,)
    if not all(0 < share <= 1 for share in shares):
        raise click.UsageError(
            f"--train-share: expected shares above 0, up to 1, such as 1,1/4, found {text!r}"
        )
    return shares


@dataclass(frozen=True, slots=True)
class ProtocolOptions:
    """How a task is divided, and layers are chosen on it."""

    protocol: ProtocolName | None = setting(
        None,
        "senteval: the splits of each set, or nested folds. bert-lc: divisions of the whole set "
        "into 85% and 15%.",
        shown="senteval; bert-lc with --layers-search",
        section="Training",
    )
    layers_search: bool = setting(
        False,
        "Choose the layers to average as in BERT-LC, on divisions of the training examples, and "
        "compare them with the last layer, the last four and random ones.",
        section="Scoring",
    )
    train_share: str = setting(
        "1",
        "Share of the training examples of each division that --layers-search chooses and learns "
        "on, such as 0.25 or 1/4. Several, with commas between, are drawn as a curve.",
        section="Training",
    )


@click.command("transfer", cls=Command)
@_datasets_argument
@_sentence_options
@_classifier_options
@Settings(
    "division",
    ProtocolOptions,
    "protocol layers_search train_share",
    metavars={"train_share": "SHARE[,SHARE...]"},
)
@Settings("search", LayerTransferSettings, "max_layers", leave_out=("seed",))
@Settings("tested", TransferProtocol, leave_out=("name",))
@resampling_options
@result_options("the report, values by example and figures of layers or shares")
def transfer_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    scoring: TransferSettings,
    division: ProtocolOptions,
    search: LayerTransferSettings,
    tested: TransferProtocol,
    resampling: Resampling,
    shown: ResultOptions,
) -> None:
    """Train and test a classifier on the vectors of encoders.

    DATASET is the folder of a task (MR, CR, SUBJ, MPQA, SST, TREC, MRPC, ...; its form is
    detected), or its one file.
    """
    from eval import score_transfer

    searching = division.layers_search
    protocol = division.protocol
    if searching:
        refuse("seeds", "--layers-search tests the chosen layers on `outer` divisions")
    else:
        refuse("inner max_layers train_share", "only --layers-search uses it")
    if searching and protocol == "senteval":
        raise click.UsageError("--protocol: --layers-search tests by bert-lc; leave it out")
    if searching or protocol == "bert-lc":
        refuse("folds", "only --protocol senteval uses it")
    else:
        refuse("outer", "only --protocol bert-lc or --layers-search uses it")
    settings = replace(
        scoring,
        protocol=replace(tested, name=protocol or "senteval"),
        layer_search=search if searching else None,
        train_shares=_shares(division.train_share),
        **encoders.shared(resampling),
    )
    _score(score_transfer, datasets, encoders, settings, shown)


@click.command("probe", cls=Command)
@_datasets_argument
@_sentence_options
@_classifier_options
@resampling_options
@result_options("the report, values by sentence and figures of --by-layer")
def probe_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    scoring: TransferSettings,
    resampling: Resampling,
    shown: ResultOptions,
) -> None:
    """Train a classifier to predict length, words, tense, ... from the vectors of encoders.

    DATASET is a file of a probing task in SentEval's form: one of its ten, one that `retriever make
    probing` writes, or your own. The dev split chooses the strength of regularization.
    """
    from eval import score_probing

    settings = replace(scoring, **encoders.shared(resampling))
    _score(score_probing, datasets, encoders, settings, shown)
