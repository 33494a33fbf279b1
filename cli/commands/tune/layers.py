"""`retriever tune layers`: which hidden states to average, by searching every set of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.encoder import model_choice
from cli.options.shared import json_option, model_options, quiet_option
from cli.output.progress import Stages

if TYPE_CHECKING:
    from eval.layers.protocol import LayerReport, ShuffledReport
    from eval.layers.tasks import SearchData
    from retriever.encoders.encoder import Encoder
    from retriever.encoders.settings import EncoderSettings


@click.command("layers")
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=click.Path(path_type=Path))
@click.option("--test", type=click.Path(path_type=Path), help="Scored pairs to test the choice on.")
@click.option("--split", help="A folder's split to search on. [default: dev]")
@click.option("--test-split", help="A folder's split to test the choice on.")
@click.option(
    "--protocol",
    type=click.Choice(["given", "paper"]),
    default="given",
    show_default=True,
    help="Search and test data as given, or shuffled and divided as in the paper.",
)
@click.option(
    "--shuffles",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How often --protocol paper divides the pairs.",
)
@click.option(
    "--dev-size",
    type=click.IntRange(min=2),
    default=350,
    show_default=True,
    help="How many pairs --protocol paper searches on.",
)
@click.option(
    "--objective",
    metavar="NAME",
    help="spearman or pearson for pairs; AP, RR, nDCG@10 or another measure for questions. "
    "[default: spearman or AP]",
)
@click.option(
    "--max-layers", type=click.IntRange(min=1), help="Only sets of at most so many layers."
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How many of the best sets to show.",
)
@click.option(
    "--bootstrap",
    type=click.IntRange(min=100),
    default=1000,
    show_default=True,
    help="Resamples for the interval of the gain.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the resamples and shuffles.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="A .png or .svg file to draw into.")
@model_options
@json_option
@quiet_option
def command(
    data: tuple[Path, ...],
    test: Path | None,
    split: str | None,
    test_split: str | None,
    protocol: str,
    shuffles: int,
    dev_size: int,
    objective: str | None,
    max_layers: int | None,
    top: int,
    bootstrap: int,
    seed: int,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **encoder: Any,
) -> None:
    """Try every set of hidden states, averaged as BERT-LC does, and report the best.

    DATA is a file of scored pairs (TSV, CSV or JSONL with score, sentence1 and sentence2), several
    with --protocol paper, or a folder of questions with candidates, in any form that eval qa reads.
    """
    from cli.output.tune import report_lines
    from eval.layers.protocol import (
        Settings,
        check_division,
        search_given,
        search_shuffled,
    )
    from eval.layers.subsets import layer_subsets
    from eval.layers.tasks import encode_task
    from eval.reports.figure_files import check_figure
    from eval.reports.layer_figures import draw_effects

    if plot is not None:
        check_figure(plot)
    choice = model_choice(encoder)
    _check_settings(choice.settings)
    searched, held_out = _read(data, test, split, test_split, protocol)
    goal = searched.objective(objective)
    test_goal = None if held_out is None else held_out.objective(goal.name)
    if protocol == "paper":
        check_division(goal.units, dev_size)
    model = choice.load()
    _check_loaded(model)
    subsets = layer_subsets(model.depth + 1, max_layers)
    settings = Settings(top, bootstrap, seed)
    report: LayerReport | ShuffledReport
    with Stages(quiet=quiet) as stage:
        task = encode_task(model, searched, goal, stage)
        if protocol == "paper":
            report = search_shuffled(task, subsets, settings, dev_size, shuffles, stage)
        else:
            tested = None
            if held_out is not None and test_goal is not None:
                tested = encode_task(model, held_out, test_goal, stage)
            report = search_given(task, tested, subsets, settings, stage)
    if plot is not None:
        draw_effects(report.sizes, report.layers, report.baseline.search, goal.name, plot)
    facts = {
        "encoder": _encoder_text(choice.settings, model.spec.model, report.best.layers),
        "objective": goal.name,
        "unit": goal.unit,
        "protocol": protocol,
        "hidden_states": model.depth + 1,
        "subsets": len(subsets),
        "search_data": _source(searched, goal.units),
        "held_out_data": held_out and test_goal and _source(held_out, test_goal.units),
    }
    if as_json:
        click.echo(json.dumps({**facts, **asdict(report)}))
    else:
        click.echo("\n".join(report_lines(report, facts)))


def _read(
    data: tuple[Path, ...],
    test: Path | None,
    split: str | None,
    test_split: str | None,
    protocol: str,
) -> tuple[SearchData, SearchData | None]:
    """What is searched on, and what the choice is tested on."""
    from eval.layers.tasks import read_pair_data, read_pool_data

    folder = data[0].is_dir()
    if protocol == "paper":
        if folder or test:
            raise click.UsageError(
                "--protocol paper merges and divides files of scored pairs: give files, no --test"
            )
        return read_pair_data(data), None
    if len(data) > 1:
        raise click.UsageError(
            f"expected one file or folder to search on, found {len(data)}: name the file to test "
            "on with --test, or merge and divide them all with --protocol paper"
        )
    if folder:
        if test:
            raise click.UsageError("--test names a file of scored pairs: for a folder --test-split")
        return (
            read_pool_data(data[0], split or "dev"),
            read_pool_data(data[0], test_split) if test_split else None,
        )
    if split or test_split:
        raise click.UsageError("--split and --test-split belong to a folder: for a file use --test")
    return read_pair_data(data), read_pair_data([test]) if test else None


def _source(data: SearchData, units: int) -> dict[str, Any]:
    return {"from": data.label, "units": units, "left_out": data.left_out}


def _check_settings(settings: EncoderSettings) -> None:
    """Refuse what the search itself decides, and what is not a mean of layers."""
    from retriever.errors import ConfigError

    why = {
        "layers": (None, "the search is what chooses layers: leave it out"),
        "fusion": ("mean", "the search averages layers: leave it out"),
        "static": (None, "a static encoder has no layers to choose from: leave it out"),
        "head": (False, "what follows a head is no mean of layers: use --no-head"),
    }
    for name, (allowed, reason) in why.items():
        if getattr(settings, name) not in (None, allowed):
            raise ConfigError(f"{name}: found {getattr(settings, name)}, but {reason}")


def _check_loaded(model: Encoder) -> None:
    """Refuse what only a model's own files tell."""
    from retriever.errors import ConfigError

    if model.spec.meaning("head"):
        raise ConfigError(
            "head: this model's own settings add one, and what follows a head is no mean of "
            "layers: use --no-head"
        )


def _encoder_text(settings: EncoderSettings, model: str, layers: Sequence[int]) -> str:
    """What to paste after --model: what was asked for, with these layers."""
    asked = replace(settings, model=settings.model or model, layers=None, fusion=None)
    return f"{asked}::lc:{','.join(map(str, layers))}"
