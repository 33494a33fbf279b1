"""`retriever eval sts`, `transfer` and `probe`: encoders of sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import click

from cli.evaluation_options import (
    ClassifierOptions,
    ResamplingOptions,
    SentenceOptions,
    classifier_options,
    datasets_argument,
    resampling_options,
    sentence_options,
)
from cli.options import Command, flag_of, is_given, settings
from cli.output.results import ResultOptions, command_line, result_options
from retriever.settings import setting


@dataclass(frozen=True, slots=True)
class SimilarityOptions:
    """How similarity is scored."""

    aggregation: Literal["all", "mean", "wmean"] = setting(
        "all",
        "How the parts of a test become one number: as one list, by their mean, or by their mean "
        "weighted by pairs.",
        section="Scoring",
    )
    supervised: bool = setting(
        False,
        "SentEval's protocol for STS-B and SICK-R: train a softmax layer on the pairs of each set.",
        section="Training",
    )
    seeds: int | None = setting(
        None, "Number of times that --supervised trains the layer.", low=1, shown="5"
    )


def _score(
    score: Callable[..., Any],
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    settings: Any,
    shown: ResultOptions,
) -> None:
    names, command = encoders.names(), command_line()
    with shown.stages() as progress:
        result = score(datasets, names, settings, progress=progress, command=command)
    shown.write(result)


@click.command("sts", cls=Command)
@datasets_argument
@sentence_options
@settings("scoring", SimilarityOptions, "aggregation supervised")
@resampling_options
@result_options("the report, values by pair and figures")
def sts_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    scoring: SimilarityOptions,
    resampling: ResamplingOptions,
    shown: ResultOptions,
) -> None:
    """Correlate the cosines of encoders with human scores of similarity.

    DATASET is the folder of a test (STS12 to STS16, STS-B or SICK-R; its form is detected), or a
    file of scored pairs. Reports Spearman's and Pearson's correlations with intervals and paired
    tests.
    """
    from eval import RelatednessSettings, STSSettings, score_sts

    if scoring.seeds is not None and not scoring.supervised:
        raise click.UsageError("--set seeds belongs to --supervised: cosines are not random")
    settings = STSSettings(
        aggregation=scoring.aggregation,
        supervised=RelatednessSettings(seeds=scoring.seeds or 5) if scoring.supervised else None,
        **encoders.shared(resampling),
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

    protocol: Literal["senteval", "bert-lc"] | None = setting(
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
    max_layers: int = setting(
        4, "Maximum number of layers in a set for --layers-search.", low=1, section="Training"
    )
    train_share: str = setting(
        "1",
        "Share of the training examples of each division that --layers-search chooses and learns "
        "on, such as 0.25 or 1/4. Several, with commas between, are drawn as a curve.",
        section="Training",
    )
    folds: int = setting(10, "Number of folds of each cross-validation.", low=2)
    outer: int = setting(10, "Number of divisions that bert-lc tests on.", low=1)
    inner: int = setting(10, "Number of divisions that --layers-search chooses layers on.", low=1)
    finalists: int = setting(
        1,
        "Number of best sets from which the tested classifier makes the choice of --layers-search.",
        low=1,
    )


@click.command("transfer", cls=Command)
@datasets_argument
@sentence_options
@classifier_options
@settings(
    "division",
    ProtocolOptions,
    "protocol layers_search max_layers train_share",
    metavars={"train_share": "SHARE[,SHARE...]"},
)
@resampling_options
@result_options("the report, values by example and figures")
def transfer_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    classifier: ClassifierOptions,
    division: ProtocolOptions,
    resampling: ResamplingOptions,
    shown: ResultOptions,
) -> None:
    """Train and test a classifier on the vectors of encoders.

    DATASET is the folder of a task (MR, CR, SUBJ, MPQA, SST, TREC, MRPC, ...; its form is
    detected), or its one file.
    """
    from eval import LayerTransferSettings, TransferProtocol, TransferSettings, score_transfer

    search, protocol = division.layers_search, division.protocol
    if search and (protocol == "senteval" or classifier.seeds is not None):
        name = "--seeds" if classifier.seeds is not None else "--protocol"
        raise click.UsageError(
            f"{name}: --layers-search tests the chosen layers on `outer` divisions by bert-lc; "
            f"leave out {name}"
        )
    nested = protocol != "bert-lc" and not search
    for name, idle, of in (
        ("inner", not search, "--layers-search"),
        ("max_layers", not search, "--layers-search"),
        ("finalists", not search, "--layers-search"),
        ("train_share", not search, "--layers-search"),
        ("outer", nested, "--protocol bert-lc or --layers-search"),
        ("folds", not nested, "--protocol senteval"),
    ):
        if idle and is_given(name):
            raise click.UsageError(f"{flag_of(name)}: only {of} uses it; leave it out")
    settings = TransferSettings(
        classifier=classifier.classifier,
        protocol=TransferProtocol(protocol or "senteval", division.folds, division.outer),
        seeds=classifier.seeds or 5,
        layer_search=LayerTransferSettings(
            division.max_layers, division.outer, division.inner, finalists=division.finalists
        )
        if search
        else None,
        train_shares=_shares(division.train_share),
        **encoders.shared(resampling),
    )
    _score(score_transfer, datasets, encoders, settings, shown)


@click.command("probe", cls=Command)
@datasets_argument
@sentence_options
@classifier_options
@resampling_options
@result_options("the report, values by sentence and figures")
def probe_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    classifier: ClassifierOptions,
    resampling: ResamplingOptions,
    shown: ResultOptions,
) -> None:
    """Train a classifier to predict length, words, tense, ... from the vectors of encoders.

    DATASET is a file of a probing task in SentEval's form: one of its ten, one that `retriever make
    probing` writes, or your own. The dev split chooses the strength of regularization.
    """
    from eval import TransferSettings, score_probing

    settings = TransferSettings(
        classifier=classifier.classifier,
        seeds=classifier.seeds or 5,
        **encoders.shared(resampling),
    )
    _score(score_probing, datasets, encoders, settings, shown)
