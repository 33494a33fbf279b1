"""Opening the index that `--index` or `--in` names, and following its sources."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cli.options import PATIENCE, F, Location, Section, complete_path, option
from cli.output.text import counted, say

if TYPE_CHECKING:
    from retriever.documents import CorpusReader
    from retriever.index import Index, RefreshReport
    from retriever.index.automatic import ModelDecision

# Maximum bytes of a source's name in the name of its index, which has a limit of 255.
_LONGEST_NAME = 200
# Maximum time before an answer for reading files again that an earlier release read, in s.
_OUTDATED_SECONDS = 10.0
in_option = option(
    "--in",
    "sources",
    multiple=True,
    metavar="SOURCE",
    shell_complete=complete_path,
    help="Search this folder or file; repeatable. Its index is in the cache (`retriever cache`), "
    "and is refreshed before each answer.",
    section="Index",
)


def use_ocr_command(command: str | None) -> None:
    """Put a command into the environment of this run, where reading processes find it."""
    if command is not None:
        from retriever.documents.ocr import VARIABLE, ocr_command

        os.environ[VARIABLE] = command
        # Refuses one that cannot run.
        ocr_command()


def ocr_option(section: Section) -> Callable[[F], F]:
    """Return --ocr, in a section of the help page."""
    return option(
        "--ocr",
        metavar="COMMAND",
        help="Recognize PDF pages without text with this program, such as 'tesseract - -'. It "
        "reads a PNG from standard input, or the file {}, and prints the text. $RETRIEVER_OCR does "
        "the same.",
        section=section,
    )


watch_option = option(
    "--watch",
    is_flag=True,
    help="Refresh the index whenever its sources change, until Ctrl-C.",
    section="Index",
)


def open_index(
    folder: Location,
    sources: Sequence[str],
    encoder: Mapping[str, Any] | None = None,
    *,
    lock_timeout: float = 0.0,
    quiet: bool = False,
) -> Index:
    """Open the index of `--in` if there are sources, else the index of `--index`."""
    from retriever.index import Index

    source_of_folder = click.get_current_context().get_parameter_source("folder")
    if not sources:
        return Index.open(folder, **(encoder or {}), lock_timeout=lock_timeout)
    if source_of_folder is ParameterSource.COMMANDLINE:
        raise click.UsageError("give either --in or --index")
    return index_in(sources, encoder or {}, quiet=quiet)


def index_in(sources: Sequence[str], encoder: Mapping[str, Any], *, quiet: bool = False) -> Index:
    """Return the index of folders and files in the cache, made on first use and refreshed."""
    from retriever.documents import path_on_disk
    from retriever.files import folder_cache, make_private, private_files

    if "-" in sources:
        raise click.UsageError("--in: expected a folder or a file, found standard input")
    paths = list(dict.fromkeys(map(os.path.abspath, map(path_on_disk, sources))))
    digest = hashlib.sha256(b"\0".join(map(os.fsencode, sorted(paths)))).hexdigest()[:8]
    # The name begins with the name of a source, which may be as long as the system allows.
    name = os.path.basename(min(paths)).encode(errors="replace")[:_LONGEST_NAME]
    place = folder_cache() / f"{name.decode(errors='ignore')}-{digest}.index"
    # Private sources need a private index.
    make_private(place.parent)
    if place.exists():
        make_private(place, whole=True)
    with private_files():
        return _index_in_cache(place, paths, ", ".join(sources), encoder, quiet=quiet)


def _index_in_cache(
    place: Path, paths: Sequence[str], names: str, encoder: Mapping[str, Any], *, quiet: bool
) -> Index:
    """Make or refresh the index of `paths` in the folder `place`; messages call them `names`."""
    from cli.output.progress import EncodingProgress, Stages, warn_reader
    from retriever.documents import CorpusReader
    from retriever.errors import EncoderMismatchError
    from retriever.index import Index

    reader = None
    decision = None
    if not place.exists():
        # Refuses a source that cannot be read before an index is made.
        for path in paths:
            CorpusReader([path])
        reader = CorpusReader(paths, on_error="skip", on_empty="yield")
    if has_automatic_model(encoder):
        reader = reader or CorpusReader(paths, on_error="skip", on_empty="yield")
        decision = decide_model(place, reader, encoder, quiet=quiet)
        encoder = {**encoder, "model": decision.settings}
    try:
        index = Index.create(place, **encoder, lock_timeout=PATIENCE)
    except EncoderMismatchError as error:
        # No option of `query` makes such an index again.
        remedy = "for --in, remove the index with `retriever cache --clear`"
        raise EncoderMismatchError(f"{error}; {remedy}") from None
    try:
        if decision is not None:
            decision.record(index.store)
        # An index without documents is built again, which reports its faults again.
        if index.sources and len(index):
            refresh_for_query(index, quiet=quiet)
            return index
        reader = reader or CorpusReader(paths, on_error="skip", on_empty="yield")
        if not quiet:
            say(f"{names}: indexing in {place}")
        with EncodingProgress(reader, quiet=quiet) as progress, Stages(quiet=quiet) as stage:
            report = index.add(reader, progress=progress, stage=stage, remember=True)
        warn_reader(reader, quiet=quiet)
        if not quiet:
            say(f"{names}: {counted(report.added, 'document')} indexed")
    except BaseException:
        index.close()
        raise
    return index


def has_automatic_model(encoder: Mapping[str, Any]) -> bool:
    """Return whether the keywords of an encoder have the model ``auto``."""
    if not encoder.get("model"):
        return False
    from retriever.encoders import is_automatic

    return is_automatic(encoder["model"])


def decide_model(
    place: Location,
    reader: CorpusReader,
    keywords: Mapping[str, Any],
    *,
    replaces: bool = False,
    quiet: bool = False,
) -> ModelDecision:
    """Decide which model ``auto`` is for an index, and say so unless it has one already.

    The arguments are those of `retriever.index.automatic.decide_model`.
    """
    from retriever.index.automatic import decide_model

    decision, _ = decide_model(place, reader, keywords, replaces=replaces)
    if decision.reason and not quiet:
        say(str(decision))
    return decision


def refresh_for_query(index: Index, *, quiet: bool = False) -> None:
    """Refresh an index before it answers, and report the changes unless `quiet`."""
    from cli.output.progress import Stages
    from retriever.files import folder_cache, private_files

    folder = index.store.folder
    is_in_cache = folder is not None and folder.parent == folder_cache()
    with private_files() if is_in_cache else nullcontext(), Stages(quiet=quiet) as stage:
        report = index.refresh(stage=stage, seconds=_OUTDATED_SECONDS)
    warn_refresh(report, quiet=quiet)
    if report.is_change and not quiet:
        say(f"{index.store}: {changes_text(report)}")


def follow(index: Index, stop: Event) -> None:
    """Refresh an index whenever a source changes, until `stop` is set, and report changes."""
    from retriever.errors import RetrieverError
    from retriever.index import watched

    try:
        for report in watched(index, stop):
            if isinstance(report, RetrieverError):
                say(f"warning: {report}")
                continue
            warn_refresh(report)
            if report.is_change:
                say(f"{index.store}: {changes_text(report)}")
    except RetrieverError as error:
        # A service closes its indexes when it ends.
        if not stop.is_set():
            say(f"warning: {index.store}: no longer watched: {error}")


def warn_refresh(report: RefreshReport, *, quiet: bool = False) -> None:
    """Report skipped files, files that were read in part, and files of an earlier release."""
    from cli.output.progress import loss_lines, say_skipped

    say_skipped(report.skipped, report.problems)
    for line in loss_lines(report.files):
        say(line)
    if report.outdated and not quiet:
        say(f"note: {counted(report.outdated, 'file')} of an earlier release read again")
    if report.postponed:
        say(
            f"note: {counted(report.postponed, 'file')} still have the text of an earlier "
            "release; the next query or refresh reads them again"
        )


def changes_text(report: RefreshReport) -> str:
    """Return the counts of added, changed and removed documents, in words."""
    return f"{report.added:,} added, {report.changed:,} changed, {report.removed:,} removed"
