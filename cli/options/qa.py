"""What the commands that read a question set share: options, splits, the cache of vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.shared import Command

if TYPE_CHECKING:
    from eval.datasets.qa.question_set import QuestionSet
    from eval.qa.corpus import CorpusSearch
    from eval.qa.resources import EvaluationSettings, Resources
    from retriever.encoders.choice import ModelChoice


cache_option = click.option(
    "--cache/--no-cache",
    default=True,
    show_default=True,
    help="Keep vectors in $RETRIEVER_CACHE or ~/.cache/retriever, to encode a text once.",
)


def dataset_options(command: Command) -> Command:
    """DATASET and how it is read."""
    options: list[Callable[[Command], Command]] = [
        click.argument("dataset", type=click.Path(path_type=Path)),
        click.option("--form", help="The data set's form, if it is not to be detected."),
        click.option("--variant", help="Of a set that has several: clean or raw, a pool size."),
        click.option(
            "--train-split", default="train", show_default=True, help="What is trained on."
        ),
        click.option("--dev-split", default="dev", show_default=True, help="What is chosen on."),
        click.option(
            "--dev-share",
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            help="Hold out this share of the training questions instead of reading --dev-split.",
        ),
        click.option(
            "--index",
            "index_folder",
            type=click.Path(path_type=Path),
            help="For a set without pools: an index of its corpus, made there if there is none.",
        ),
        click.option(
            "--depth",
            type=click.IntRange(min=1),
            default=100,
            show_default=True,
            help="For a set without pools: how many hits are a question's pool.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def cache_folder(wanted: bool) -> Path | None:
    """Where vectors are kept."""
    if not wanted:
        return None
    named = os.environ.get("RETRIEVER_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "retriever"


@contextmanager
def opened(
    options: Mapping[str, Any],
    settings: EvaluationSettings,
    choice: ModelChoice,
    *,
    quiet: bool,
) -> Iterator[Resources]:
    """The data set that `dataset_options` name, and what is computed from it.

    Raises:
        SourceError: it cannot be read.
        UsageError: it has no pools and no index is given, or the other way round.
    """
    from cli.output.progress import Stages
    from eval.datasets.qa.forms import read_question_set
    from eval.qa.resources import Resources

    corpus: list[CorpusSearch] = []

    def read(split: str) -> QuestionSet:
        found = read_question_set(
            options["dataset"], split, form=options["form"], variant=options["variant"]
        )
        if bool(found.corpus) == bool(options["index_folder"]):
            if corpus:
                return corpus[0].pools(found)
            return found
        raise click.UsageError(
            f"{options['dataset']} has no pools of candidates: give --index FOLDER, where the "
            "index of its corpus is or is to be made"
            if found.corpus
            else f"{options['dataset']} has pools of candidates: leave out --index"
        )

    with Stages(quiet=quiet) as stage:
        if options["index_folder"] is None:
            yield Resources(read, settings, stage, _say)
            return
        first = read(settings.split)
        with _index(options["index_folder"], first, choice, quiet=quiet) as search:
            search.depth = options["depth"]
            corpus.append(search)
            yield Resources(read, settings, stage, _say, search)


@contextmanager
def _index(
    folder: Path, questions: QuestionSet, choice: ModelChoice, *, quiet: bool
) -> Iterator[CorpusSearch]:
    """The index in a folder, made first where there is none."""
    from cli.output.progress import EncodingProgress, warn_reader
    from eval.qa.corpus import CorpusSearch
    from indexes.store.connection import is_index
    from retriever.corpus import CorpusReader
    from retriever.index import Index

    made = is_index(folder)
    with Index.create(
        folder, choice.encoder, device=choice.device, download=choice.download
    ) as index:
        if not made:
            reader = CorpusReader(list(questions.corpus))
            with EncodingProgress(reader, quiet=quiet) as progress:
                index.add(reader, progress=progress)
            warn_reader(reader, _say)
        yield CorpusSearch(index, 1)


def _say(line: str) -> None:
    click.echo(line, err=True)
