"""`retriever eval layers`: which hidden states to average, by a search over all sets of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from cli.evaluation_options import DataSet, cache_folder, cache_option
from cli.options import MINILM, Command, EncoderOptions, encoder_options, option, settings
from cli.output.results import ResultOptions, command_line, result_options
from retriever.settings import setting


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What is searched, and how the choice is tested."""

    split: str | None = setting(
        None, "Split of a folder to search on.", shown="dev", section="Input"
    )
    test_split: str | None = setting(
        None, "Split of a folder to test the choice on.", section="Input"
    )
    objective: str | None = setting(
        None,
        "Objective: spearman or pearson for pairs; AP, RR, nDCG@10 or another measure for "
        "questions.",
        shown="spearman or AP",
        section="Search",
    )
    max_layers: int | None = setting(
        None, "Maximum number of layers in a set.", low=1, shown="all", section="Search"
    )
    protocol: Literal["given", "paper"] = setting(
        "given",
        "Search and test on the data as given, or shuffle and divide the pairs as in the paper.",
        section="Search",
    )
    top: int = setting(10, "Number of best sets to show.", low=1, section="Output")
    shuffles: int = setting(5, "Number of shuffles of --protocol paper.", low=1)
    dev_size: int = setting(350, "Number of pairs that --protocol paper searches on.", low=2)
    resamples: int = setting(1000, "Number of resamples for the interval of the gain.", low=100)
    seed: int = setting(0, "Random seed of the resamples and shuffles.", low=0)


@click.command("layers", cls=Command)
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=DataSet())
@option(
    "--test",
    type=DataSet(),
    metavar="FILE",
    help="File of scored pairs to test the choice on.",
    section="Input",
)
@settings("search", SearchOptions, "split test_split objective max_layers protocol")
@encoder_options(MINILM, "pooling dtype")
@cache_option
@result_options("the report, best sets and figure", plot=True)
def layers_command(
    data: tuple[Path, ...],
    test: Path | None,
    search: SearchOptions,
    encoder: EncoderOptions,
    cache: bool,
    shown: ResultOptions,
) -> None:
    """Average every set of hidden states as in BERT-LC, and report the best.

    DATA is a file of scored pairs (TSV, CSV or JSONL with score, sentence1 and sentence2), or a
    folder of questions with candidates, in any form that `eval qa` reads; with --protocol paper
    the folder of a similarity test, of which all splits are merged, or several files of pairs.
    ::fusion=max and ::head=yes in --model search the maximum over layers and the model's head after
    fusion, more slowly.
    """
    from eval import LayerSearchSettings, Loading, search_layers

    if len(data) > 1 and search.protocol == "given":
        raise click.UsageError(
            f"expected one file or folder to search on, found {len(data)}; name the file to test "
            "on with --test, or merge and divide all of them with --protocol paper"
        )
    choice = encoder.choice()
    settings = LayerSearchSettings(
        encoder=choice.encoder,
        loading=Loading(choice.device, choice.download, cache_folder(cache)),
        **asdict(search),
    )
    with shown.stages() as progress:
        result = search_layers(data, settings, test=test, progress=progress, command=command_line())
    shown.write(result)
