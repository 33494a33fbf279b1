"""What `eval transfer` and `eval probe` share: scoring tasks and showing the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.options.sentences import (
    baseline_name,
    check_names,
    command_line,
    encoder_names,
    fitted_remark,
    layer_encoders,
    loading,
    show,
)
from cli.options.shared import Command

if TYPE_CHECKING:
    from eval.datasets.sentences.tasks import ClassificationTask
    from eval.sentences.result import LayerGrid, SentenceResult, SetScores
    from eval.transfer.sets import TransferSettings

_CLASSIFIERS = {
    "lr": "logistic regression over scaled features",
    "lr-senteval": "logistic regression over features as they are, with SentEval's strengths",
    "mlp": "50 sigmoid units, 4 epochs of Adam (SBERT-WK)",
}


def classifier_options(command: Command) -> Command:
    """--classifier and --seeds."""
    options: list[Callable[[Command], Command]] = [
        click.option(
            "--classifier",
            type=click.Choice(list(_CLASSIFIERS)),
            default="lr",
            show_default=True,
            help="Logistic regression, that of SentEval's code, or an MLP of 50 units.",
        ),
        click.option(
            "--seeds",
            type=click.IntRange(min=1),
            help="How often all is divided and trained anew. [default: 5]",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def run_tasks(
    kind: str,
    tasks: Sequence[ClassificationTask],
    settings: TransferSettings,
    options: Mapping[str, Any],
) -> None:
    """Score encoders, or with --by-layer every hidden state, on tasks, and show the result.

    Args:
        kind: "transfer" or "probe".
        tasks: what is classified.
        settings: how.
        options: of the command, `cli.options.sentences.sentence_options` among them.
    """
    from cli.output.progress import Stages
    from eval.sentences.comparison import Resampling
    from eval.transfer.sets import score_task, task_grids
    from eval.vectors.encoders import SentenceEncoders

    names = encoder_names(options)
    check_tasks(tasks)
    sets: list[SetScores] = []
    grids: list[LayerGrid] = []
    baseline = None
    with Stages(quiet=options["quiet"]) as stage:
        if options["by_layer"]:
            layers = layer_encoders(options, names)
            grids = [grid for task in tasks for grid in task_grids(task, layers, settings, stage)]
        else:
            baseline = baseline_name(options, names)
            encoders = SentenceEncoders(names, loading(options))
            resampling = Resampling(options["resamples"], options["seed"])
            sets = [
                score_task(task, encoders, settings, baseline, resampling, stage) for task in tasks
            ]
    said = {
        "classifier": f"{settings.classifier}: {_classifier(settings)}",
        "protocol": _protocol(settings),
        "seeds": f"{settings.seeds}, or 1 where nothing is random",
    }
    remarks = (
        f"accuracies of {_classifier(settings)}; {_protocol(settings)}",
        *fitted_remark(names, "all of its texts, without labels"),
    )
    show(
        result_of(kind, tasks, said, remarks, options, sets=sets, grids=grids, baseline=baseline),
        options,
        as_json=options["as_json"],
    )


def check_tasks(tasks: Sequence[ClassificationTask]) -> None:
    """Refuse what cannot be scored, before anything is encoded.

    Raises:
        UsageError: two tasks have the same name.
        BadInputError: a split is missing, or there is one class only.
        MissingExtraError: scikit-learn is not installed.
    """
    from eval.extras import require_classifiers
    from eval.transfer.examples import without_features

    require_classifiers()
    check_names([task.name for task in tasks])
    for task in tasks:
        without_features(task)


def result_of(
    kind: str,
    tasks: Sequence[ClassificationTask],
    settings: dict[str, str],
    remarks: Sequence[str],
    options: Mapping[str, Any],
    *,
    sets: Sequence[SetScores] = (),
    grids: Sequence[LayerGrid] = (),
    baseline: str | None = None,
) -> SentenceResult:
    """What the tasks came to, with what is to be said of it."""
    from eval.sentences.result import SentenceResult, sentence_environment
    from eval.transfer.sets import ACCURACY

    if sets:
        settings["resamples"] = f"{options['resamples']:,}, seed {options['seed']}"
    named = "Transfer" if kind == "transfer" else "Probing"
    return SentenceResult(
        kind=kind,
        title=f"{named}: {', '.join(task.name for task in tasks)}",
        settings=settings,
        remarks=tuple(remarks),
        measures=(ACCURACY,),
        sets=tuple(sets),
        grids=tuple(grids),
        baseline=baseline,
        command=command_line(),
        environment=sentence_environment(options["device"]),
    )


def _classifier(settings: TransferSettings) -> str:
    if settings.protocol.name == "bert-lc" and settings.classifier == "lr":
        return "logistic regression by SAGA with C = 10 (BERT-LC)"
    return _CLASSIFIERS[settings.classifier]


def _protocol(settings: TransferSettings) -> str:
    protocol = settings.protocol
    if protocol.name == "bert-lc":
        return f"bert-lc: {protocol.outer} divisions into 85% to train on and 15% to test on"
    return f"senteval: a set's own splits, else {protocol.folds} nested folds"
