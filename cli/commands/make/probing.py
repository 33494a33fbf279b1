"""`retriever make probing`: probing sets from a corpus of sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.shared import field_options, json_option, on_error_option, quiet_option

if TYPE_CHECKING:
    from eval.datasets.probing.maker import MadeSet
    from retriever.corpus import CorpusReader

_TASKS = ("sentlen", "wc", "bshift")
_WINDOW = 1_000


@click.command("probing")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--task",
    type=click.Choice([*_TASKS, "all"]),
    default="all",
    show_default=True,
    help="Length in six bins, which word of many, two words exchanged or not.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder for sentence_length.txt, word_content.txt and bigram_shift.txt.",
)
@click.option(
    "--words",
    type=click.IntRange(min=2),
    help="wc: how many words; fewer for a smaller corpus. [default: 1000]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what is drawn."
)
@field_options
@on_error_option
@quiet_option
@json_option
def command(
    sources: tuple[str, ...],
    task: str,
    output: Path,
    words: int | None,
    seed: int,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_error: Literal["fail", "skip"],
    quiet: bool,
    as_json: bool,
) -> None:
    """Make probing sets in SentEval's form: what does a sentence's vector tell of the sentence?

    SOURCE... are read as `retriever index` reads them; each text of 5 to 28 tokens is a sentence.
    As published, 100,000 sentences to train on and twice 10,000, as many of each label; from a
    smaller corpus as many as it allows, in the same ratio.
    """
    from cli.output.progress import warn_reader
    from eval.datasets.probing.files import check_folder, write_sets
    from eval.datasets.probing.makers import MAKERS, make_probing
    from eval.datasets.probing.words import WORDS, WordMaker
    from retriever.corpus import CorpusReader, Fields

    tasks = _TASKS if task == "all" else (task,)
    if words is not None and "wc" not in tasks:
        raise click.UsageError(f"--words is of wc; --task is {task}")
    makers = [WordMaker(words or WORDS) if one == "wc" else MAKERS[one]() for one in tasks]
    if "-" in sources and any(maker.passes > 1 for maker in makers):
        raise click.UsageError(
            "wc and bshift read SOURCE... twice, and standard input can be read only once: name a "
            "file, or --task sentlen"
        )
    check_folder(output, tasks)
    reader = CorpusReader(sources, Fields(id_field, text_field, title_field), on_error=on_error)
    sets, read, used = make_probing(lambda: _texts(reader, quiet=quiet), makers, seed=seed)
    warn_reader(reader, lambda line: click.echo(line, err=True))
    files = write_sets(output, sets)
    _report(sets, files, {"seed": seed, "texts": read, "sentences": used}, quiet, as_json)


def _texts(reader: CorpusReader, *, quiet: bool) -> Iterator[str]:
    from cli.output.progress import EncodingProgress

    with EncodingProgress(reader, quiet=quiet) as progress:
        for number, document in enumerate(reader, 1):
            yield document.text
            if number % _WINDOW == 0:
                progress.window(_WINDOW)
                progress.encoded(_WINDOW, 0)


def _report(
    sets: list[MadeSet], files: list[Path], corpus: dict[str, int], quiet: bool, as_json: bool
) -> None:
    facts: list[dict[str, Any]] = [
        {
            "task": made.task,
            "file": str(file),
            "labels": made.labels,
            **{split: len(instances) for split, instances in made.splits.items()},
            **made.facts,
        }
        for made, file in zip(sets, files, strict=True)
    ]
    if as_json:
        click.echo(json.dumps({**corpus, "sets": facts}))
    elif not quiet:
        click.echo(
            f"{corpus['sentences']:,} of {corpus['texts']:,} texts have 5 to 28 tokens "
            f"(seed {corpus['seed']})"
        )
        for one in facts:
            click.echo(
                f"{one['file']}: {one['task']}, {one['labels']:,} labels; {one['tr']:,} to train "
                f"on, {one['va']:,} dev, {one['te']:,} test{_own_facts(one)}"
            )


def _own_facts(facts: dict[str, Any]) -> str:
    if "ranks" in facts:
        first, last = facts["ranks"]
        return f"; {facts['words']:,} words of the ranks {first:,} to {last:,}"
    if facts.get("dropped"):
        return f"; {facts['dropped']:,} exchanges that make another sentence dropped"
    return ""
