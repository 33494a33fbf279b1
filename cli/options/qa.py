"""How a question set is read and divided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.declaring import RARE, complete_path, option, settings
from cli.options.evaluation import DataSet
from cli.options.index import IndexLocation, Location

if TYPE_CHECKING:
    from eval import QuestionSettings

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
