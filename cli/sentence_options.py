"""Options of the commands that score encoders of sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.evaluation_options import DataSet, LayerOptions, baseline_option
from cli.options import MINILM, EncoderOptions, Settings, encoder_options, option
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line
from eval.settings import Resampling, TransferSettings

datasets_argument = click.argument(
    "datasets", nargs=-1, required=True, metavar="DATASET...", type=DataSet()
)


@dataclass(frozen=True)
class SentenceOptions(LayerOptions, EncoderOptions):
    """The encoders to score, and the baseline among them."""

    encoders: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    baseline: str | None = None

    def names(self) -> tuple[str, ...]:
        """Return the text forms of the encoders; --model if no other is named."""
        from eval import named_encoders

        encoders = self.encoders or (() if self.lists else (self.model or MINILM,))
        return named_encoders(encoders, self.lists, self.model)

    def shared(self, resampling: Resampling) -> dict[str, Any]:
        """Return the settings of every score; a baseline without a model is one of --model."""
        from retriever.encoders import over_model

        return {
            "poolings": self.scored_poolings(),
            "baseline": self.baseline and over_model(self.baseline, self.model or MINILM),
            "resampling": resampling,
            "loading": self.loading(),
        }


# The command takes `encoders: SentenceOptions`.
sentence_options = encoder_options(
    MINILM,
    cache=True,
    name="encoders",
    kind=SentenceOptions,
    kind_settings="by_layer",
    kind_options=[
        option(
            "-e",
            "--encoder",
            "encoders",
            multiple=True,
            metavar="MODEL[::KEY=VALUE...]",
            help="Encoder to score, such as all-MiniLM-L6-v2::lc:0,6. ::lc:0,6 takes the model of "
            "--model. static=sif and static=usif are fitted on the texts of each set. "
            "Repeatable.",
            show_default="--model",
            section="Encoder",
        ),
        option(
            "--encoders",
            "lists",
            multiple=True,
            type=click.Choice(["paper"]),
            help="List of encoders, with the model of --model. paper: last, cls, max, last4, all "
            "layers, top-bottom, both SBERT-WK, lc:0,-1, SIF, uSIF, p-mean and average.",
            section="Encoder",
        ),
        baseline_option("Encoder", "ENCODER", "Scoring"),
    ],
)


# The command takes `scoring: TransferSettings`.
classifier_options = Settings("scoring", TransferSettings, "classifier seeds")


def show_scores(
    score: Callable[..., Any],
    datasets: tuple[Path, ...],
    encoders: SentenceOptions,
    settings: Any,
    results: ResultOptions,
) -> None:
    """Score the encoders on the data sets, and show the result."""
    names = encoders.names()
    with Stages() as progress:
        result = score(datasets, names, settings, progress=progress, command=command_line())
    results.show(result)
