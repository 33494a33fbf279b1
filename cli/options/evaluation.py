"""What the commands that evaluate and train share: data sets, measures, resampling, cache, seeds,
figures.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.declaring import RARE, F, Section, option, settings

if TYPE_CHECKING:
    from eval import Resampling


def _check_figure(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a figure that cannot be drawn, before any work is done for it."""
    if value is not None:
        from eval import check_figure

        check_figure(value)
    return value


def _check_report(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a folder that a report cannot be written to, before any work is done for it."""
    if value is not None:
        from eval import check_report_folder

        check_report_folder(value)
    return value


def data_set(path: Path) -> Path:
    """The path of a data set, or the same path below $RETRIEVER_DATA if it is only there.

    Raises:
        SourceError: it is in neither place.
    """
    folder = os.environ.get("RETRIEVER_DATA")
    below = Path(folder, path) if folder else None
    for one in (path, below):
        if one is not None and os.path.exists(one):
            return one
    from retriever.errors import SourceError

    if path.is_absolute():
        raise SourceError(f"{path}: no such file or folder; check the path")
    if below is None:
        raise SourceError(
            f"{path}: no such file or folder; check the path, or let RETRIEVER_DATA name the "
            "folder that holds the data sets"
        )
    raise SourceError(
        f"{path}: no such file or folder, and no {below} in the folder that RETRIEVER_DATA names; "
        "check the path"
    )


class DataSet(click.Path):
    """A parameter that names a data set, see `data_set`."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path of the data set."""
        return data_set(Path(value))


cache_option = option(
    "--cache/--no-cache",
    default=True,
    help="Keep vectors in $RETRIEVER_CACHE, or ~/.cache/retriever, so that a text is encoded once.",
    section="Encoder",
)
plot_option = option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=_check_figure,
    metavar="FILE",
    help="Draw a figure into this .png or .svg file.",
    section="Output",
)
runs_argument = click.argument(
    "runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path)
)
qrels_option = option(
    "--qrels",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Relevance judgments in TREC format.",
    section="Input",
)
without_positive_option = option(
    "--without-positive",
    type=click.Choice(["exclude", "count"]),
    default="exclude",
    help="Queries without a relevant document: leave them out, or count them as zero.",
    section="Ranking",
)


def measure_option(default: tuple[str, ...], shown_default: str | None = None) -> Callable[[F], F]:
    """--measure; `default` is what is shown without it, `shown_default` what help says of it."""
    return option(
        "-m",
        "--measure",
        "measures",
        multiple=True,
        default=default,
        metavar="NAME",
        shown_default=shown_default or ", ".join(default),
        help="Measure to show: AP, RR, nDCG, each with or without @k, P@k, R@k or Success@k; may "
        "be repeated.",
        section="Ranking",
    )


def report_option(content: str) -> Callable[[F], F]:
    """--output; `content` is what the help says is written."""
    return option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        callback=_check_report,
        metavar="FOLDER",
        help=f"Write {content} to this folder.",
        section="Output",
    )


def seed_option(of: str, section: Section = RARE) -> Callable[[F], F]:
    """--seed; `of` is what it decides."""
    return option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help=f"Random seed of {of}.",
        section=section,
    )


@dataclass(frozen=True, slots=True)
class ResamplingOptions:
    """How p-values, and intervals of correlations, are computed."""

    resamples: int
    seed: int

    def settings(self) -> Resampling:
        """The same for an evaluation."""
        from eval import Resampling

        return Resampling(self.resamples, self.seed)


resampling_options: Callable[[Any], Callable[..., Any]] = settings(
    "resampling",
    ResamplingOptions,
    [
        option(
            "--resamples",
            type=click.IntRange(min=100),
            default=10_000,
            metavar="N",
            help="Number of resamples of a test, and of the intervals of correlations.",
            section=RARE,
        ),
        seed_option("the resamples"),
    ],
)


def cache_folder(wanted: bool) -> Path | None:
    """Where vectors are kept; None where they are not."""
    from eval import default_cache

    return default_cache() if wanted else None
