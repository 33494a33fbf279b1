"""`retriever eval layers`: choose the hidden states to average."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import DataSet
from cli.options import MINILM, Command, EncoderOptions, Settings, encoder_options, option
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import LayerSearchSettings


@click.command("layers", cls=Command)
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=DataSet())
@option(
    "--test",
    type=DataSet(),
    metavar="FILE",
    help="File of scored pairs to test the chosen set on.",
    section="Input",
)
@Settings("search", LayerSearchSettings, "split test_split objective max_layers protocol")
@encoder_options(MINILM, "pooling dtype", cache=True)
@result_options("the report, best sets and figure", plot=True)
def layers_command(
    data: tuple[Path, ...],
    test: Path | None,
    search: LayerSearchSettings,
    encoder: EncoderOptions,
    results: ResultOptions,
) -> None:
    """Find the best set of hidden states to average (BERT-LC).

    DATA is a file of scored pairs (TSV, CSV or JSONL with score, sentence1 and sentence2). It can
    also be a folder of questions with candidates, in any format that `eval qa` reads. With
    --protocol paper, DATA is the folder of a similarity test, whose splits are merged, or several
    files of pairs. With ::head=yes in --model, the search includes the model's head after the mean,
    and is slower.
    """
    from eval import search_layers

    if len(data) > 1 and search.protocol == "given":
        raise click.UsageError(
            f"expected one file or folder to search on, found {len(data)}; give the test file "
            "with --test, or merge all files with --protocol paper"
        )
    settings = replace(search, encoder=encoder.model, loading=encoder.loading())
    with Stages() as progress:
        result = search_layers(data, settings, test=test, progress=progress, command=command_line())
    results.show(result)
