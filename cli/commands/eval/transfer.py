"""`retriever eval transfer`: train classifiers on the vectors of encoders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import click

from cli.evaluation_options import resampling_options
from cli.options import Command, Settings, refuse
from cli.output.results import ResultOptions, result_options
from cli.sentence_options import (
    SentenceOptions,
    classifier_options,
    datasets_argument,
    sentence_options,
    show_scores,
)
from eval.settings import (
    LayerTransferSettings,
    ProtocolName,
    Resampling,
    TransferProtocol,
    TransferSettings,
)
from retriever.settings import setting


def _shares(text: str) -> tuple[float, ...]:
    """Parse shares above 0, up to 1, separated by commas."""
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
    """Division of a task, and the choice of layers on it."""

    protocol: ProtocolName | None = setting(
        None,
        "senteval: the splits of each set, or nested folds. bert-lc: divisions of the whole set "
        "into 85% and 15%.",
        default_text="senteval; bert-lc with --layers-search",
        section="Training",
    )
    layers_search: bool = setting(
        False,
        "Choose the layers to average as in BERT-LC, on divisions of the training examples. "
        "Compare them with the last layer, the last four and random layers.",
        section="Scoring",
    )
    train_share: str = setting(
        "1",
        "Share of the training examples in each division for --layers-search, such as 0.25 or "
        "1/4. Several shares, separated by commas, are drawn as a curve.",
        section="Training",
    )


@click.command("transfer", cls=Command)
@datasets_argument
@sentence_options
@classifier_options
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
    results: ResultOptions,
) -> None:
    """Train and test a classifier on sentence embeddings.

    DATASET is the folder of a task, or its only file. Tasks are MR, CR, SUBJ, MPQA, SST, TREC, MRPC
    and more; the command detects the format.
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
    show_scores(score_transfer, datasets, encoders, settings, results)
