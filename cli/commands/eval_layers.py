"""`retriever eval layers`: which hidden states to average, by a search over all sets of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cli.options.declaring import RARE, Command, json_option, option, quiet_option
from cli.options.encoder import MINILM, STATES, EncoderOptions, encoder_options
from cli.options.evaluation import (
    DataSet,
    cache_folder,
    cache_option,
    plot_option,
    report_option,
    seed_option,
)


@click.command("layers", cls=Command)
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=DataSet())
@option(
    "--test",
    type=DataSet(),
    metavar="FILE",
    help="File of scored pairs to test the choice on.",
    section="Input",
)
@option(
    "--split",
    metavar="NAME",
    help="Split of a folder to search on.",
    shown_default="dev",
    section="Input",
)
@option(
    "--test-split",
    metavar="NAME",
    help="Split of a folder to test the choice on.",
    section="Input",
)
@option(
    "--objective",
    metavar="NAME",
    help="Objective: spearman or pearson for pairs; AP, RR, nDCG@10 or another measure for "
    "questions.",
    shown_default="spearman or AP",
    section="Search",
)
@option(
    "--max-layers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of layers in a set.",
    shown_default="all",
    section="Search",
)
@option(
    "--protocol",
    type=click.Choice(["given", "paper"]),
    default="given",
    help="Search and test on the data as given, or shuffle and divide the pairs as in the paper.",
    section="Search",
)
@option(
    "--shuffles",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="Number of shuffles of --protocol paper.",
    section="Search",
)
@option(
    "--dev-size",
    type=click.IntRange(min=2),
    default=350,
    metavar="N",
    help="Number of pairs that --protocol paper searches on.",
    section="Search",
)
@option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="Number of best sets to show.",
    section="Output",
)
@plot_option
@report_option("the report, best sets and figure")
@encoder_options(MINILM, only=(*STATES, "pooling", "query_prompt", "fusion", "head"))
@cache_option
@option(
    "--bootstrap",
    type=click.IntRange(min=100),
    default=1000,
    metavar="N",
    help="Number of resamples for the interval of the gain.",
    section=RARE,
)
@seed_option("the resamples and shuffles")
@json_option
@quiet_option
def layers_command(
    data: tuple[Path, ...],
    test: Path | None,
    split: str | None,
    test_split: str | None,
    objective: str | None,
    max_layers: int | None,
    protocol: Literal["given", "paper"],
    shuffles: int,
    dev_size: int,
    top: int,
    plot: Path | None,
    output: Path | None,
    encoder: EncoderOptions,
    cache: bool,
    bootstrap: int,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Average every set of hidden states as in BERT-LC, and report the best.

    DATA is a file of scored pairs (TSV, CSV or JSONL with score, sentence1 and sentence2), or a
    folder of questions with candidates, in any form that `eval qa` reads; with --protocol paper
    the folder of a similarity test, of which all splits are merged, or several files of pairs.
    --fusion max and --head search the maximum over layers and the model's head after fusion, more
    slowly.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, draw, report
    from eval import (
        LayerSearchSettings,
        Loading,
        search_layers,
    )

    if len(data) > 1 and protocol == "given":
        raise click.UsageError(
            f"expected one file or folder to search on, found {len(data)}; name the file to test "
            "on with --test, or merge and divide all of them with --protocol paper"
        )
    choice = encoder.choice()
    settings = LayerSearchSettings(
        encoder=choice.encoder,
        loading=Loading(choice.device, choice.download, cache_folder(cache)),
        objective=objective,
        protocol=protocol,
        split=split,
        test_split=test_split,
        shuffles=shuffles,
        dev_size=dev_size,
        max_layers=max_layers,
        top=top,
        resamples=bootstrap,
        seed=seed,
    )
    with Stages(quiet=quiet) as progress:
        result = search_layers(data, settings, test=test, progress=progress, command=command_line())
    draw(result, plot)
    report(result, output, as_json=as_json)
