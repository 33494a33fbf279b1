"""`retriever inspect sensitivity`: the effect of SBERT-WK's window and start layer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from cli.options.declaring import Command, option
from cli.options.encoder import MINILM, STATES, EncoderOptions, encoder_options
from cli.options.evaluation import DataSet, plot_option, report_option
from cli.options.output import json_option, quiet_option


def _numbers(
    low: int,
) -> Callable[[click.Context, click.Parameter, str | None], tuple[int, ...] | None]:
    """A reader of whole numbers from `low` on, separated by commas: ascending, each once."""

    def read(
        ctx: click.Context, param: click.Parameter, value: str | None
    ) -> tuple[int, ...] | None:
        if value is None:
            return None
        parts = [part.strip() for part in value.split(",")]
        if not all(re.fullmatch("[0-9]{1,9}", part) and int(part) >= low for part in parts):
            raise click.BadParameter(
                f"expected numbers of at least {low}, such as 1,2,3, found {value!r}", ctx, param
            )
        return tuple(sorted(set(map(int, parts))))

    return read


@click.command("sensitivity", cls=Command)
@click.argument("pairs", nargs=-1, required=True, metavar="PAIRS...", type=DataSet())
@option(
    "--windows",
    callback=_numbers(1),
    default="1,2,3,4",
    metavar="N[,N...]",
    help="Windows to try: numbers of neighboring layers on each side.",
    section="Scoring",
)
@option(
    "--start-layers",
    callback=_numbers(0),
    metavar="N[,N...]",
    help="Start layers to try: lowest hidden states.",
    shown_default="all that are possible",
    section="Scoring",
)
@option(
    "--objective",
    type=click.Choice(["spearman", "pearson"]),
    default="spearman",
    help="Correlation of cosines and gold scores.",
    section="Scoring",
)
@encoder_options(MINILM, only=(*STATES, "wk_preset", "omega", "wk_variance"))
@report_option("the report and its figure")
@plot_option
@json_option
@quiet_option
def command(
    pairs: tuple[Path, ...],
    windows: tuple[int, ...],
    start_layers: tuple[int, ...] | None,
    objective: str,
    encoder: EncoderOptions,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Score SBERT-WK on PAIRS... for each window and start layer (SBERT-WK, Fig. 3).

    PAIRS is a TSV, CSV or JSONL file with score, sentence1 and sentence2. Each text goes through
    the model once.
    """
    from cli.output.progress import Stages
    from cli.output.results import command_line, draw, report, say
    from eval import Loading, inspect_sensitivity, sbert_wk_form

    choice = replace(encoder, model=sbert_wk_form(encoder.model or "")).choice()
    with Stages(quiet=quiet) as progress:
        result = inspect_sensitivity(
            pairs,
            choice.encoder,
            windows=windows,
            start_layers=start_layers,
            objective=objective,
            loading=Loading(choice.device, choice.download),
            progress=progress,
            notify=say,
            command=command_line(),
        )
    draw(result, plot)
    report(result, output, as_json=as_json)
