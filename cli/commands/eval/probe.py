"""`retriever eval probe`: what does a sentence's vector tell of the sentence?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.commands.eval.classification_runs import classifier_options, run_tasks
from cli.options.sentences import check_output, sentence_options


@click.command("probe")
@sentence_options
@classifier_options
def command(datasets: tuple[Path, ...], **options: Any) -> None:
    """Train a classifier to read length, words, tense ... off encoders' vectors.

    DATASET is a file of a probing task in SentEval's form: its ten, those that `retriever make
    probing` writes, or your own. The dev split chooses the strength of regularisation.
    """
    from eval.datasets.probing.forms import read_probing
    from eval.transfer.sets import TransferSettings

    check_output(options)
    tasks = [read_probing(path) for path in datasets]
    settings = TransferSettings(options["classifier"], seeds=options["seeds"] or 5)
    run_tasks("probe", tasks, settings, options)
