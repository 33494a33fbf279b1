"""`retriever eval transfer`: what can be learned from an encoder's vectors?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.eval.classification_runs import (
    check_tasks,
    classifier_options,
    result_of,
    run_tasks,
)
from cli.options.sentences import (
    check_output,
    encoder_names,
    loading,
    sentence_options,
    show,
)

if TYPE_CHECKING:
    from eval.datasets.sentences.tasks import ClassificationTask
    from eval.transfer.layer_transfer import LayerTransferSettings
    from eval.transfer.protocols import ProtocolName


@click.command("transfer")
@sentence_options
@classifier_options
@click.option(
    "--protocol",
    type=click.Choice(["senteval", "bert-lc"]),
    help="The splits of each set, else nested folds; or divisions of all of it into 85% and 15%. "
    "[default: senteval; bert-lc with --layers-search]",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=10,
    show_default=True,
    help="Of each cross-validation.",
)
@click.option(
    "--outer",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="For bert-lc: how many divisions are tested on.",
)
@click.option(
    "--layers-search",
    is_flag=True,
    help="Choose the layers to average as BERT-LC does, on divisions of the training examples, and "
    "compare them with the last layer.",
)
@click.option(
    "--inner",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="For --layers-search: how many divisions layers are chosen on.",
)
@click.option(
    "--max-layers",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="For --layers-search: sets of at most so many.",
)
@click.option(
    "--finalists",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="For --layers-search: so many of the best sets are tried again with the classifier that "
    "is tested, which decides.",
)
def command(
    datasets: tuple[Path, ...],
    protocol: ProtocolName | None,
    folds: int,
    outer: int,
    layers_search: bool,
    inner: int,
    max_layers: int,
    finalists: int,
    **options: Any,
) -> None:
    """Train a classifier on encoders' vectors and test it: MR, CR, SUBJ, MPQA, SST, TREC, MRPC ...

    DATASET is the folder of a task (the forms are detected), or its one file.
    """
    from eval.datasets.sentences.classification import read_classification
    from eval.transfer.layer_transfer import LayerTransferSettings
    from eval.transfer.protocols import Protocol
    from eval.transfer.sets import TransferSettings

    if layers_search:
        _check_search(protocol, options)
    elif protocol == "bert-lc" and options["classifier"] != "lr":
        raise click.UsageError(
            f"--classifier {options['classifier']}: bert-lc chooses no strength of regularisation, "
            "so it has a classifier of its own: leave it out"
        )
    check_output(options)
    tasks = [read_classification(path) for path in datasets]
    if layers_search:
        _search(
            tasks, LayerTransferSettings(max_layers, outer, inner, finalists=finalists), options
        )
        return
    settings = TransferSettings(
        options["classifier"],
        Protocol(protocol or "senteval", folds, outer),
        options["seeds"] or 5,
    )
    run_tasks("transfer", tasks, settings, options)


def _check_search(protocol: str | None, options: dict[str, Any]) -> None:
    """Refuse what the search itself decides."""
    wrong = {
        "--by-layer": options["by_layer"],
        "--protocol": protocol == "senteval",
        "--classifier": options["classifier"] != "lr",
        "--seeds": options["seeds"] is not None,
        "--baseline": options["baseline"] is not None,
    }
    for name, given in wrong.items():
        if given:
            raise click.UsageError(
                f"{name}: --layers-search compares chosen layers with the last one over --outer "
                f"divisions, by BERT-LC's logistic regression; leave {name} out"
            )


def _search(
    tasks: list[ClassificationTask], settings: LayerTransferSettings, options: dict[str, Any]
) -> None:
    from cli.output.progress import Stages
    from eval.sentences.comparison import Resampling
    from eval.transfer.layer_choice import search_task, searched_names
    from eval.vectors.encoders import LayerEncoders

    names = encoder_names(options)
    check_tasks(tasks)
    layers = LayerEncoders(names, ("mean",), loading(options))
    resampling = Resampling(options["resamples"], options["seed"])
    with Stages(quiet=options["quiet"]) as stage:
        sets = [search_task(task, layers, settings, resampling, stage) for task in tasks]
    said = {
        "protocol": f"bert-lc: {settings.outer} divisions into 85% to learn from and 15% to test "
        "on",
        "choice": f"sets of up to {settings.max_layers} layers, on {settings.inner} divisions of "
        "the 85%, by a ridge classifier"
        + (
            f", then by the logistic regression of {settings.finalists} finalists"
            if settings.finalists > 1
            else ""
        ),
    }
    remarks = (
        "accuracies of BERT-LC's logistic regression over the mean of layers that were chosen "
        "without the tested examples, and over the last layer",
    )
    baseline = searched_names(names[0])[0]
    show(
        result_of("transfer", tasks, said, remarks, options, sets=sets, baseline=baseline),
        options,
        as_json=options["as_json"],
    )
