"""`retriever make questions`: make a question set from a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import Command, Settings, option, output_folder
from cli.output.progress import Stages, warn_reader
from cli.output.results import ResultOptions, result_options
from cli.output.text import say
from cli.source_options import SourceOptions, source_options, sources_argument
from eval.settings import QUESTION_KINDS, MadeQuestionSettings

if TYPE_CHECKING:
    from retriever.documents import CorpusReader, Document


@click.command("questions", cls=Command)
@sources_argument
@source_options
@option(
    "--kind",
    "kinds",
    type=click.Choice(QUESTION_KINDS),
    multiple=True,
    help="Part of documents that becomes a question; repeatable.",
    show_default="all",
    section="Output",
)
@output_folder("New folder for the corpus, the questions and their judgments.")
@Settings("settings", MadeQuestionSettings, "questions")
@result_options()
def questions_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    kinds: tuple[str, ...],
    output: Path,
    settings: MadeQuestionSettings,
    results: ResultOptions,
) -> None:
    """Make questions and judgments from the documents of SOURCE.

    SOURCE is an index, or any source of `retriever index`; you need no human judgments. Titles,
    headings and sentences of a document become questions that it answers. They are removed from the
    corpus in FOLDER. Index that corpus and evaluate on it: `retriever eval qa FOLDER --index NEW`.
    """
    from eval import make_questions
    from eval.questions import check_question_folder

    check_question_folder(output)
    if kinds:
        settings = replace(settings, kinds=tuple(dict.fromkeys(kinds)))
    with ExitStack() as stack:
        reader: CorpusReader | None = None
        documents: Iterable[Document] | None = _open_index(sources, stack)
        if documents is None:
            documents = reader = source.reader(sources)
        progress = stack.enter_context(Stages())
        result = make_questions(documents, settings, progress, say)
    if reader is not None:
        warn_reader(reader)
    result.write(output)
    results.show(result)


def _open_index(sources: tuple[str, ...], stack: ExitStack) -> Iterable[Document] | None:
    """Open the index that is the only source; return None if there is no such index."""
    from retriever import Index, NotAnIndexError

    if len(sources) > 1 or not ("://" in sources[0] or Path(sources[0]).is_dir()):
        return None
    try:
        return stack.enter_context(Index.open(sources[0]))
    except NotAnIndexError:
        return None
