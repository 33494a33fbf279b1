"""`retriever eval sts`, `transfer` and `probe`: encoders of sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cli.options.declaring import Command, is_given, json_option, option, quiet_option
from cli.options.evaluation import (
    ClassifierOptions,
    ResamplingOptions,
    SentenceOptions,
    classifier_options,
    datasets_argument,
    report_option,
    resampling_options,
    sentence_options,
)


@click.command("sts", cls=Command)
@datasets_argument
@sentence_options
@option(
    "--aggregation",
    type=click.Choice(["all", "mean", "wmean"]),
    default="all",
    help="How the parts of a test become one number: as one list, by their mean, or by their mean "
    "weighted by pairs.",
    section="Scoring",
)
@option(
    "--supervised",
    is_flag=True,
    help="SentEval's protocol for STS-B and SICK-R: train a softmax layer on the pairs of each "
    "set.",
    section="Training",
)
@option(
    "--seeds",
    type=click.IntRange(min=1),
    shown_default="5",
    metavar="N",
    help="Number of times that --supervised trains the layer.",
    section="Training",
)
@report_option("the report, values by pair and figures")
@resampling_options
@json_option
@quiet_option
def sts_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    aggregation: Literal["all", "mean", "wmean"],
    supervised: bool,
    seeds: int | None,
    output: Path | None,
    resampling: ResamplingOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Correlate the cosines of encoders with human scores of similarity.

    DATASET is the folder of a test (STS12 to STS16, STS-B or SICK-R; its form is detected), or a
    file of scored pairs. Reports Spearman's and Pearson's correlations with intervals and paired
    tests.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, report
    from eval import RelatednessSettings, STSSettings, score_sts

    if seeds is not None and not supervised:
        raise click.UsageError("--seeds belongs to --supervised: cosines are not random")
    settings = STSSettings(
        aggregation=aggregation,
        supervised=RelatednessSettings(seeds=seeds or 5) if supervised else None,
        poolings=encoders.scored_poolings(),
        baseline=encoders.compared_with(),
        resampling=resampling.settings(),
        loading=encoders.loading(),
    )
    with Stages(quiet=quiet) as progress:
        result = score_sts(
            datasets, encoders.names(), settings, progress=progress, command=command_line()
        )
    report(result, output, as_json=as_json)


def _shares(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    """Shares above 0, up to 1, separated by commas."""
    shares = []
    for part in value.split(","):
        try:
            top, slash, bottom = part.partition("/")
            shares.append(float(top) / (float(bottom) if slash else 1))
        except (ValueError, ZeroDivisionError):
            shares.append(0.0)
        if not 0 < shares[-1] <= 1:
            raise click.BadParameter(
                f"expected shares above 0, up to 1, such as 1,1/4, found {value!r}", ctx, param
            )
    return tuple(shares)


@click.command("transfer", cls=Command)
@datasets_argument
@sentence_options
@classifier_options
@option(
    "--protocol",
    type=click.Choice(["senteval", "bert-lc"]),
    help="senteval: the splits of each set, or nested folds. bert-lc: divisions of the whole set "
    "into 85% and 15%.",
    shown_default="senteval; bert-lc with --layers-search",
    section="Training",
)
@option(
    "--folds",
    type=click.IntRange(min=2),
    default=10,
    metavar="N",
    help="Number of folds of each cross-validation.",
    section="Training",
)
@option(
    "--outer",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="Number of divisions that bert-lc tests on.",
    section="Training",
)
@option(
    "--layers-search",
    is_flag=True,
    help="Choose the layers to average as in BERT-LC, on divisions of the training examples, and "
    "compare them with the last layer, the last four and random ones.",
    section="Scoring",
)
@option(
    "--inner",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="Number of divisions that --layers-search chooses layers on.",
    section="Training",
)
@option(
    "--max-layers",
    type=click.IntRange(min=1),
    default=4,
    metavar="N",
    help="Maximum number of layers in a set for --layers-search.",
    section="Training",
)
@option(
    "--finalists",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of best sets from which the tested classifier makes the choice of "
    "--layers-search.",
    section="Training",
)
@option(
    "--train-share",
    callback=_shares,
    default="1",
    metavar="SHARE[,SHARE...]",
    help="Share of the training examples of each division that --layers-search chooses and learns "
    "on, such as 0.25 or 1/4. Several are drawn as a curve.",
    section="Training",
)
@report_option("the report, values by example and figures")
@resampling_options
@json_option
@quiet_option
def transfer_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    classifier: ClassifierOptions,
    protocol: Literal["senteval", "bert-lc"] | None,
    folds: int,
    outer: int,
    layers_search: bool,
    inner: int,
    max_layers: int,
    finalists: int,
    train_share: tuple[float, ...],
    output: Path | None,
    resampling: ResamplingOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train and test a classifier on the vectors of encoders.

    DATASET is the folder of a task (MR, CR, SUBJ, MPQA, SST, TREC, MRPC, ...; its form is
    detected), or its one file.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, report
    from eval import (
        LayerTransferSettings,
        TransferProtocol,
        TransferSettings,
        score_transfer,
    )

    if layers_search and (protocol == "senteval" or classifier.seeds is not None):
        name = "--seeds" if classifier.seeds is not None else "--protocol"
        raise click.UsageError(
            f"{name}: --layers-search tests the chosen layers on --outer divisions by bert-lc; "
            f"leave out {name}"
        )
    nested = protocol != "bert-lc" and not layers_search
    for name, idle, of in (
        ("inner", not layers_search, "--layers-search"),
        ("max_layers", not layers_search, "--layers-search"),
        ("finalists", not layers_search, "--layers-search"),
        ("train_share", not layers_search, "--layers-search"),
        ("outer", nested, "--protocol bert-lc or --layers-search"),
        ("folds", not nested, "--protocol senteval"),
    ):
        if idle and is_given(name):
            raise click.UsageError(f"--{name.replace('_', '-')}: only {of} uses it; leave it out")
    settings = TransferSettings(
        classifier=classifier.classifier,
        protocol=TransferProtocol(protocol or "senteval", folds, outer),
        seeds=classifier.seeds or 5,
        layer_search=LayerTransferSettings(max_layers, outer, inner, finalists=finalists)
        if layers_search
        else None,
        train_shares=train_share,
        poolings=encoders.scored_poolings(),
        baseline=encoders.compared_with(),
        resampling=resampling.settings(),
        loading=encoders.loading(),
    )
    with Stages(quiet=quiet) as progress:
        result = score_transfer(
            datasets, encoders.names(), settings, progress=progress, command=command_line()
        )
    report(result, output, as_json=as_json)


@click.command("probe", cls=Command)
@datasets_argument
@sentence_options
@classifier_options
@report_option("the report, values by sentence and figures")
@resampling_options
@json_option
@quiet_option
def probe_command(
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    classifier: ClassifierOptions,
    output: Path | None,
    resampling: ResamplingOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a classifier to predict length, words, tense, ... from the vectors of encoders.

    DATASET is a file of a probing task in SentEval's form: one of its ten, one that `retriever make
    probing` writes, or your own. The dev split chooses the strength of regularization.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, report
    from eval import TransferSettings, score_probing

    settings = TransferSettings(
        classifier=classifier.classifier,
        seeds=classifier.seeds or 5,
        poolings=encoders.scored_poolings(),
        baseline=encoders.compared_with(),
        resampling=resampling.settings(),
        loading=encoders.loading(),
    )
    with Stages(quiet=quiet) as progress:
        result = score_probing(
            datasets, encoders.names(), settings, progress=progress, command=command_line()
        )
    report(result, output, as_json=as_json)
