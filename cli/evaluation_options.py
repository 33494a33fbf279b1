"""Options of evaluations and trainings: data sets, judgments, measures, questions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from cli.options import F, Section, Settings, complete_path, index_location, option, refuse
from eval.settings import QuestionSettings, Resampling
from retriever.settings import setting

if TYPE_CHECKING:
    from retriever.encoders import Pooling


def data_set(path: Path) -> Path:
    """Return the path of a data set, or the same path below $RETRIEVER_DATA if it is only there."""
    for candidate in (path, Path(os.environ.get("RETRIEVER_DATA", ""), path)):
        if os.path.exists(candidate):
            return candidate
    from retriever.errors import SourceError

    raise SourceError(
        f"{path}: no such file or folder; check the path, or set RETRIEVER_DATA to the folder of "
        "the data sets"
    )


class DataSet(click.Path):
    """A parameter that names a data set; see `data_set`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of the data set."""
        return data_set(Path(value))


dataset_argument = click.argument("dataset", type=DataSet())
WITHOUT_POSITIVE: Any = setting(
    "exclude", "Queries without a relevant document: leave them out, or count them as zero."
)


def qrels_option(*, required: bool) -> Callable[[F], F]:
    """Return --qrels."""
    return option(
        "--qrels",
        required=required,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Relevance judgments in the format of TREC or BEIR.",
        section="Input",
    )


def queries_option(use: str, shown_default: str | None = None) -> Callable[[F], F]:
    """Return --queries; its help says that it has questions to `use`."""
    return option(
        "--queries",
        metavar="FILE",
        shell_complete=complete_path,
        help=f"Questions to {use}: .jsonl, .csv, .tsv or .txt (one per line).",
        show_default=shown_default,
        section="Input",
    )


def query_texts(source: str | None) -> dict[str, str]:
    """Return the texts of --queries by id; none without it."""
    if source is None:
        return {}
    from retriever.documents import CorpusReader

    reader = CorpusReader([source], on_empty="fail", number_ids=True)
    return {query.id: query.text for query in reader}


def measure_option(default: tuple[str, ...], shown_default: str | None = None) -> Callable[[F], F]:
    """Return --measure; `shown_default` replaces `default` in its help."""
    return option(
        "-m",
        "--measure",
        "measures",
        multiple=True,
        default=default,
        metavar="NAME",
        show_default=shown_default or ", ".join(default),
        help="Measure to show: AP, RR or nDCG, each with or without @k, or P@k, R@k or Success@k; "
        "repeatable.",
        section="Ranking",
    )


def baseline_option(what: str, metavar: str, section: Section = "Ranking") -> Callable[[F], F]:
    """Return --baseline, the `what` with which a report compares the rest."""
    return option(
        "--baseline",
        metavar=metavar,
        help=f"{what} to compare the other {what.lower()}s with.",
        show_default="the first",
        section=section,
    )


# The command takes `resampling: Resampling`.
resampling_options = Settings("resampling", Resampling)


@dataclass(frozen=True)
class LayerOptions:
    """The score of each hidden state, and the pooling of its word pieces."""

    by_layer: bool = setting(
        False,
        "Score every hidden state of the model, as a table and a heat map.",
        section="Scoring",
    )
    poolings: str = setting(
        "mean,max,cls,sep", "Poolings of the tokens for --by-layer, separated by commas."
    )

    def scored_poolings(self) -> tuple[Pooling, ...]:
        """Return the poolings of --by-layer, unchecked; none without it."""
        if not self.by_layer:
            refuse("poolings", "only --by-layer uses them")
            return ()
        names = tuple(name.strip() for name in self.poolings.split(","))
        return cast("tuple[Pooling, ...]", names)


_POOLS = option(
    "--index",
    type=index_location,
    metavar="INDEX",
    shell_complete=complete_path,
    help="Index of the corpus, for a data set without candidate pools. It is created or completed "
    "if necessary.",
    section="Input",
)
_WITHOUT = option(
    "--without",
    multiple=True,
    type=DataSet(),
    metavar="DATASET",
    help="Skip training questions that overlap with the dev and test splits of this set; "
    "repeatable.",
    section="Training",
)
_QUESTIONS = "variant train_split dev_share"
# The command takes `data: QuestionSettings`.
question_options = Settings("data", QuestionSettings, _QUESTIONS, options=[_POOLS])
training_questions = Settings("data", QuestionSettings, _QUESTIONS, options=[_POOLS, _WITHOUT])
