"""What is evaluated and trained on: data sets, encoders, questions, tests, figures."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from cli.options.declaring import (
    RARE,
    Decorator,
    F,
    Section,
    complete_path,
    is_given,
    option,
    settings,
)
from cli.options.encoder import MINILM, device_option, download_option, model_option
from cli.options.index import IndexLocation, Location

if TYPE_CHECKING:
    from eval import Loading, QuestionSettings, Resampling
    from eval.transfer.evaluation import ClassifierName
    from retriever.encoders.settings import Pooling


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


datasets_argument = click.argument(
    "datasets", nargs=-1, required=True, metavar="DATASET...", type=DataSet()
)


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """Whether hidden states are scored, and how their word pieces are pooled."""

    by_layer: bool
    poolings: str

    def scored_poolings(self) -> tuple[Pooling, ...]:
        """Those of --by-layer, not checked; none without it.

        Raises:
            click.UsageError: they are given without it.
        """
        if not self.by_layer:
            if is_given("poolings"):
                raise click.UsageError(
                    "--poolings: those of --by-layer; add it, or name encoders with ::pooling="
                )
            return ()
        return cast("tuple[Pooling, ...]", tuple(one.strip() for one in self.poolings.split(",")))


@dataclass(frozen=True, slots=True)
class SentenceOptions(LayerOptions):
    """The encoders that are scored, and the one that the others are compared with."""

    encoders: tuple[str, ...]
    lists: tuple[str, ...]
    model: str | None
    device: str | None
    download: bool
    cache: bool
    baseline: str | None

    def names(self) -> tuple[str, ...]:
        """Their text forms; that of --model if no other is named.

        Raises:
            ConfigError: a setting is unknown, or an encoder is named twice.
        """
        from eval import named_encoders

        asked = self.encoders or (() if self.lists else (self.model or MINILM,))
        return named_encoders(asked, self.lists, self.model)

    def compared_with(self) -> str | None:
        """The text form of the baseline; without a model it is of --model."""
        from retriever.encoders.settings import over_model

        return self.baseline and over_model(self.baseline, self.model or MINILM)

    def loading(self) -> Loading:
        """Where models come from, and where vectors are kept."""
        from eval import Loading

        return Loading(self.device, self.download, cache_folder(self.cache))


def by_layer_options(of: str, section: Literal["Ranking", "Scoring"]) -> list[Decorator]:
    """--by-layer and --poolings.

    Args:
        of: whose hidden states are scored.
        section: of the help.
    """
    return [
        option(
            "--by-layer",
            is_flag=True,
            help=f"Score every hidden state of {of}, as a table and a heat map.",
            section=section,
        ),
        option(
            "--poolings",
            default="mean,max,cls,sep",
            metavar="NAME[,NAME...]",
            help="Poolings of the word pieces for --by-layer.",
            section=section,
        ),
    ]


sentence_options: Callable[[Any], Callable[..., Any]] = settings(
    "encoders",
    SentenceOptions,
    [
        option(
            "-e",
            "--encoder",
            "encoders",
            multiple=True,
            metavar="MODEL[::SETTING...]",
            help="Encoder to score, such as all-MiniLM-L6-v2::lc:0,6; without a model (::lc:0,6) "
            "it is of --model. static=sif and static=usif are fitted on the texts of each set. May "
            "be repeated.",
            shown_default="--model",
            section="Encoder",
        ),
        option(
            "--encoders",
            "lists",
            multiple=True,
            type=click.Choice(["paper"]),
            help="List of encoders over --model. paper: last, cls, max, last4, all layers, "
            "top-bottom, both SBERT-WK, lc:0,-1, SIF, uSIF, p-mean and average.",
            section="Encoder",
        ),
        model_option(MINILM),
        device_option,
        download_option,
        cache_option,
        *by_layer_options("each encoder's model instead", "Scoring"),
        option(
            "--baseline",
            metavar="ENCODER",
            help="Encoder that the others are compared with.",
            shown_default="the first",
            section="Scoring",
        ),
    ],
)


@dataclass(frozen=True, slots=True)
class ClassifierOptions:
    """What is trained on the vectors; None where nothing is asked."""

    classifier: ClassifierName
    seeds: int | None


classifier_options: Callable[[Any], Callable[..., Any]] = settings(
    "classifier",
    ClassifierOptions,
    [
        option(
            "--classifier",
            type=click.Choice(["lr", "lr-senteval", "mlp"]),
            default="lr",
            help="Logistic regression, that of SentEval's code, or an MLP with 50 hidden units.",
            section="Training",
        ),
        option(
            "--seeds",
            type=click.IntRange(min=1),
            shown_default="5",
            metavar="N",
            help="Number of random seeds, each with its own divisions and training.",
            section="Training",
        ),
    ],
)


dataset_argument = click.argument("dataset", type=DataSet())


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """How a question set is read and divided."""

    variant: str | None
    index_folder: Location | None
    depth: int
    train_split: str
    dev_split: str
    dev_share: float | None
    form: str | None
    without: tuple[Path, ...]

    def settings(self) -> QuestionSettings:
        """The same for an evaluation."""
        from eval import QuestionSettings

        return QuestionSettings(
            form=self.form,
            variant=self.variant,
            train_split=self.train_split,
            dev_split=self.dev_split,
            dev_share=self.dev_share,
            index=self.index_folder,
            depth=self.depth,
            without=self.without,
        )


question_options: Callable[[Any], Callable[..., Any]] = settings(
    "data",
    QuestionOptions,
    [
        option(
            "--variant",
            metavar="NAME",
            help="Variant of a set that has several: clean or raw, or a pool size.",
            section="Input",
        ),
        option(
            "--index",
            "index_folder",
            type=IndexLocation(),
            metavar="INDEX",
            shell_complete=complete_path,
            help="For a set without pools: index of its corpus, which is created or completed if "
            "necessary.",
            section="Input",
        ),
        option(
            "--depth",
            type=click.IntRange(min=1),
            default=100,
            metavar="N",
            help="For a set without pools: number of hits per question.",
            section="Input",
        ),
        option(
            "--train-split",
            default="train",
            metavar="NAME",
            help="Split to train on.",
            section="Training",
        ),
        option(
            "--dev-split",
            default="dev",
            metavar="NAME",
            help="Split to choose epochs and weights on.",
            section="Training",
        ),
        option(
            "--dev-share",
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            metavar="SHARE",
            help="Hold out this share of the training questions instead of reading --dev-split.",
            section="Training",
        ),
        option(
            "--without",
            multiple=True,
            type=DataSet(),
            metavar="DATASET",
            help="Do not train on what overlaps with the dev and test splits of this set; "
            "repeatable.",
            section="Training",
        ),
        option(
            "--form",
            metavar="NAME",
            help="Form of the data set.",
            shown_default="detected from its files",
            section=RARE,
        ),
    ],
)
