"""`retriever make probing`: make probing sets in SentEval's form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import Command, Settings, option, output_folder, refuse
from cli.output.progress import EncodingProgress, warn_reader
from cli.output.results import ResultOptions, result_options
from cli.source_options import SourceOptions, source_options, sources_argument
from eval.settings import PROBING_TASKS, ProbingSettings

if TYPE_CHECKING:
    from retriever.documents import CorpusReader


# Texts between two updates of the bar.
_BLOCK = 1_000


@click.command("probing", cls=Command)
@sources_argument
@source_options
@option(
    "--task",
    type=click.Choice([*PROBING_TASKS, "all"]),
    default="all",
    help="sentlen: length in six bins. wc: which of many words occurs. bshift: whether two words "
    "are swapped.",
    section="Output",
)
@output_folder("Folder for sentence_length.txt, word_content.txt and bigram_shift.txt.")
@Settings("settings", ProbingSettings, "words")
@result_options()
def probing_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    task: str,
    output: Path,
    settings: ProbingSettings,
    results: ResultOptions,
) -> None:
    """Make probing sets in SentEval's format from SOURCE.

    The command reads SOURCE as `retriever index` does; each text of 5 to 28 tokens is a sentence.
    The sets have 100,000 training sentences and twice 10,000 for dev and test, balanced over the
    labels, as published. A smaller corpus gives fewer sentences in the same ratio.
    """
    from eval import make_probing

    settings = replace(settings, tasks=PROBING_TASKS if task == "all" else (task,))
    if "wc" not in settings.tasks:
        refuse("words", f"only wc uses it, but --task is {task}")
    if "-" in sources and settings.passes > 1:
        raise click.UsageError(
            "wc and bshift read SOURCE twice, but standard input allows one pass; name a file, or "
            "use --task sentlen"
        )
    reader = source.reader(sources)
    result = make_probing(lambda: _texts(reader), output, settings)
    warn_reader(reader)
    results.show(result)


def _texts(reader: CorpusReader) -> Iterator[str]:
    """Yield the texts of a corpus, with a bar."""
    with EncodingProgress(reader) as progress:
        for number, document in enumerate(reader, 1):
            yield document.text
            if number % _BLOCK == 0:
                progress.window(_BLOCK, 0)
                progress.encoded(_BLOCK, 0)
