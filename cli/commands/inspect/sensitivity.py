"""`retriever inspect sensitivity`: what SBERT-WK's window and start layer are worth."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.inspect.texts import plot_option, warn_cut
from cli.commands.inspect.wk import wk_choice
from cli.options.shared import json_option, model_options, quiet_option
from cli.output.progress import counting
from cli.output.tables import table

if TYPE_CHECKING:
    from eval.datasets.sentences.pairs import ScoredPairs
    from eval.inspect.sensitivity import Sensitivity
    from retriever.encoders.choice import ModelChoice
    from retriever.encoders.encoder import Encoder


def _numbers(low: int) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Reads whole numbers from `low` on with commas between them: ascending, each once."""

    def read(
        ctx: click.Context, param: click.Parameter, value: str | None
    ) -> tuple[int, ...] | None:
        if value is None:
            return None
        parts = [part.strip() for part in value.split(",")]
        if not all(re.fullmatch("[0-9]{1,9}", part) and int(part) >= low for part in parts):
            raise click.BadParameter(
                f"expected numbers from {low} on, such as 1,2,3, found {value!r}", ctx, param
            )
        return tuple(sorted(set(map(int, parts))))

    return read


@click.command("sensitivity")
@click.argument(
    "pairs", nargs=-1, required=True, metavar="PAIRS...", type=click.Path(path_type=Path)
)
@click.option(
    "--windows",
    callback=_numbers(1),
    default="1,2,3,4",
    show_default=True,
    help="Neighbouring layers on each side, with commas.",
)
@click.option(
    "--start-layers",
    callback=_numbers(0),
    help="Lowest hidden states, with commas. [default: all that are possible]",
)
@click.option(
    "--objective",
    type=click.Choice(["spearman", "pearson"]),
    default="spearman",
    show_default=True,
    help="The correlation of cosines with scores.",
)
@plot_option
@model_options
@json_option
@quiet_option
def command(
    pairs: tuple[Path, ...],
    windows: tuple[int, ...],
    start_layers: tuple[int, ...] | None,
    objective: str,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **encoder: Any,
) -> None:
    """Score SBERT-WK on PAIRS... for each window and start layer (SBERT-WK, Fig. 3).

    PAIRS is a TSV, CSV or JSONL file with score, sentence1 and sentence2. The model runs once over
    the texts for all settings together.
    """
    from eval.inspect.sensitivity import sensitivity, settings_grid
    from eval.layers.tasks import read_pair_data
    from eval.reports.figure_files import check_figure
    from eval.reports.inspect_figures import draw_sensitivity
    from retriever.encoders.resolution import sbert_wk_settings

    if plot is not None:
        check_figure(plot)
    choice = _choice(encoder)
    data = read_pair_data(pairs)
    goal = data.objective(objective)
    model = choice.load()
    _check_loaded(model)
    base = sbert_wk_settings(model.spec.settings, model.depth)
    grid = settings_grid(base, model.depth, windows, start_layers)
    with counting("pairs", len(data.pairs), quiet=quiet) as count:
        found = sensitivity(model, data.pairs, goal, grid, count)
    warn_cut(_cut(model, data.pairs), model.spec.max_length)
    if plot is not None:
        draw_sensitivity(found, goal.name, plot)
    facts = {
        "encoder": str(replace(model.spec.settings, window=None, start_layer=None)),
        "preset": base.preset,
        "objective": goal.name,
        "from": data.label,
        "pairs": len(data.pairs),
    }
    if as_json:
        click.echo(json.dumps(facts | asdict(found)))
        return
    click.echo(
        f"SBERT-WK ({base.preset}) of {model.spec.model}: {goal.name} over {len(data.pairs):,} "
        f"pairs of {data.label}"
    )
    click.echo("\n".join(_lines(found, windows)))


def _choice(options: dict[str, Any]) -> ModelChoice:
    """The encoder, with a window and a start layer that every model can have."""
    from retriever.encoders.choice import ModelChoice
    from retriever.errors import ConfigError

    choice = wk_choice(options)
    for name, instead in (("window", "--windows"), ("start_layer", "--start-layers")):
        if getattr(choice.settings, name) is not None:
            raise ConfigError(
                f"{name.replace('_', '-')}: found {getattr(choice.settings, name)}, but this "
                f"command tries several: name them with {instead}"
            )
    settings = replace(choice.settings, window=1, start_layer=0)
    return ModelChoice(str(settings), choice.device, choice.download)


def _check_loaded(model: Encoder) -> None:
    """Refuse what only a model's own files tell."""
    from retriever.errors import ConfigError

    if model.spec.meaning("head"):
        raise ConfigError(
            "head: this command compares SBERT-WK's vectors themselves, before a head: use "
            "--no-head"
        )


def _cut(model: Encoder, pairs: ScoredPairs) -> int:
    texts = [*pairs.left, *pairs.right]
    return sum(len(ids) > model.spec.max_length for ids in model.tokenize(texts))


def _lines(found: Sensitivity, windows: Sequence[int]) -> Iterator[str]:
    yield ""
    yield from table(
        ["window", *(f"start {start}" for start in found.start_layers)],
        [
            [str(window), *("-" if value is None else f"{value:.4f}" for value in row)]
            for window, row in zip(found.windows, found.values, strict=True)
        ],
    )
    left_out = sorted(set(windows) - set(found.windows))
    if left_out:
        yield f"too few layers for window {', '.join(map(str, left_out))}"
    yield ""
    yield f"last layer, mean over all pieces: {found.baseline:.4f}"
