"""`retriever inspect layers`: how alike the hidden states are from layer to layer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.commands.inspect.texts import (
    checked_text,
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
    from eval.inspect.layer_similarity import LayerSimilarity

# From here on a table of three decimals is wider than a terminal.
_MANY_LAYERS = 14


@click.command("layers")
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("--text", help="One text, instead of sources.")
@limit_option
@source_options
def command(
    sources: tuple[str, ...],
    text: str | None,
    limit: int,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_error: Literal["fail", "skip"],
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **encoder: Any,
) -> None:
    """Show the mean cosine between every two hidden states of a word piece.

    Over the documents of SOURCE... or one --text, with the mean and spread of each offset diagonal
    (SBERT-WK, Fig. 1). Hidden state 0 is the embedding output.
    """
    from cli.output.progress import warn_reader
    from eval.inspect.layer_similarity import layer_similarity
    from eval.reports.figure_files import check_figure
    from eval.reports.inspect_figures import draw_similarity

    if bool(sources) == (text is not None):
        raise click.UsageError("give either SOURCE... or --text TEXT")
    given = checked_text(text, "--text") if text is not None else ""
    if plot is not None:
        check_figure(plot)
    reader = (
        open_sources(sources, (id_field, text_field, title_field), on_error) if sources else None
    )
    model = model_choice(encoder).load()
    layers = model.depth + 1
    texts = texts_of(reader) if reader else iter([given])
    with inspected(model, texts, limit, quiet=quiet) as inspection:
        similarity = layer_similarity((one.states.states, one.states.kept) for one in inspection)
    if reader:
        warn_reader(reader, lambda line: click.echo(line, err=True))
    warn_cut(inspection.cut, model.spec.max_length)
    if plot is not None:
        draw_similarity(similarity, plot)
    if as_json:
        facts = {
            "encoder": str(model.spec),
            "texts": inspection.texts,
            "cut": inspection.cut,
            "pieces": similarity.pieces,
            "hidden_states": layers,
            "mean": similarity.mean.tolist(),
            "deviation": similarity.deviation.tolist(),
            "diagonals": [asdict(diagonal) for diagonal in similarity.diagonals()],
        }
        click.echo(json.dumps(facts))
        return
    said = said_texts(inspection, limit, bool(sources))
    click.echo(f"{model.spec}: {said}, {similarity.pieces:,} word pieces")
    click.echo("\n".join(_lines(similarity)))


def _lines(similarity: LayerSimilarity) -> Iterator[str]:
    layers = range(len(similarity.mean))
    decimals = 3 if len(layers) < _MANY_LAYERS else 2
    yield ""
    yield "mean cosine between hidden states (0: embeddings)"
    yield from table(
        ["", *map(str, layers)],
        [
            [str(layer), *(f"{value:.{decimals}f}" for value in similarity.mean[layer])]
            for layer in layers
        ],
    )
    yield ""
    yield "offset diagonals"
    yield from table(
        ["layers apart", "mean", "deviation", "lowest", "highest"],
        [
            [
                str(one.offset),
                f"{one.mean:.4f}",
                f"{one.deviation:.4f}",
                f"{one.lowest:.4f}",
                f"{one.highest:.4f}",
            ]
            for one in similarity.diagonals()
        ],
    )
