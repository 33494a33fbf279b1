"""`retriever inspect words`: which words change unevenly from layer to layer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.commands.inspect.texts import (
    inspected,
    limit_option,
    open_sources,
    said_texts,
    source_options,
    texts_of,
    warn_cut,
)
from cli.options.encoder import model_choice
from cli.output.tables import table

if TYPE_CHECKING:
    from eval.inspect.word_variance import VarianceGroups


@click.command("words")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@limit_option
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Only words that occur so often in the texts that were looked at.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many words of each group to show.",
)
@source_options
def command(
    sources: tuple[str, ...],
    limit: int,
    min_count: int,
    top: int,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_error: Literal["fail", "skip"],
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **encoder: Any,
) -> None:
    """Show the words of SOURCE... whose adjacent-layer cosines vary least, middling and most.

    Words in lower case; the vector of a word is the mean of its pieces', its variance the mean
    over its occurrences (SBERT-WK, Table I).
    """
    from cli.output.progress import warn_reader
    from eval.inspect.word_variance import variance_groups, word_variances
    from eval.reports.figure_files import check_figure
    from eval.reports.inspect_figures import draw_variances
    from retriever.errors import BadInputError

    if plot is not None:
        check_figure(plot)
    reader = open_sources(sources, (id_field, text_field, title_field), on_error)
    model = model_choice(encoder).load()
    layers = model.depth + 1
    with inspected(model, texts_of(reader), limit, quiet=quiet) as inspection:
        words = word_variances(inspection, min_count)
    warn_reader(reader, lambda line: click.echo(line, err=True))
    warn_cut(inspection.cut, model.spec.max_length)
    if not words:
        raise BadInputError(
            f"expected words that occur at least {min_count} times in {inspection.texts:,} texts, "
            "found none; set a smaller --min-count or a greater --limit"
        )
    groups = variance_groups(words, top)
    if plot is not None:
        draw_variances(groups, plot)
    if as_json:
        facts = {
            "encoder": str(model.spec),
            "texts": inspection.texts,
            "cut": inspection.cut,
            "hidden_states": layers,
            "min_count": min_count,
            "words": len(words),
        }
        click.echo(json.dumps(facts | asdict(groups), ensure_ascii=False))
        return
    said = said_texts(inspection, limit, True)
    click.echo(f"{model.spec}: {said}, {len(words):,} words that occur at least {min_count} times")
    click.echo("\n".join(_lines(groups)))


def _lines(groups: VarianceGroups) -> Iterator[str]:
    yield ""
    yield "variance of the adjacent-layer cosines, mean over occurrences"
    header, rows = [], []
    for name, group in asdict(groups).items():
        header += [name, "variance", "count"]
        rows.append([[one["word"], f"{one['variance']:.2e}", f"{one['count']:,}"] for one in group])
    blank = ["", "", ""]
    yield from table(
        header,
        [[cell for part in line for cell in part] for line in zip_longest(*rows, fillvalue=blank)],
    )
