"""Progress of a long command: one line on stderr, and nothing if that is not a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from cli.output.text import counted, say
from retriever.terminal import on_one_line

if TYPE_CHECKING:
    from retriever.documents import CorpusReader

# Maximum number of columns whose types are printed, and of warnings of columns and fields.
_COLUMNS = 20
# Descriptions of losses, by `LossKind`.
_LOSSES = {
    "pages": "with pages without text",
    "characters": "with characters that have no names",
    "bytes": "with damaged bytes",
    "parts": "without some parts",
    "data": "without data such as pictures",
}
_BAR = "{percentage:3.0f}% |{bar}| "


@dataclass(slots=True)
class DocumentsRead:
    """Progress of a reader for `EncodingProgress`, in documents instead of bytes."""

    total_bytes: int | None
    bytes_read: int = 0

    def count(self, documents: int) -> None:
        """Count documents that were read."""
        self.bytes_read += documents


class _AboveBars(logging.Handler):
    """Prints announcements of long builds of the index writer above any bars."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(on_one_line(record.getMessage()), file=sys.stderr)


_BUILDS = logging.getLogger("indexes.folder.writer")
_ABOVE = _AboveBars()


class _Bars:
    """Bars on stderr, and above them announcements of long builds."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Any = None

    def __enter__(self) -> Self:
        if not self._quiet:
            _BUILDS.addHandler(_ABOVE)
            _BUILDS.setLevel(logging.INFO)
        return self

    def __exit__(self, *error: object) -> None:
        if not self._quiet:
            _BUILDS.removeHandler(_ABOVE)
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _show(self, **attributes: Any) -> Any:
        from tqdm import tqdm

        self._close()
        self._bar = tqdm(
            disable=self._quiet or not sys.stderr.isatty(),
            file=sys.stderr,
            dynamic_ncols=True,
            leave=False,
            **attributes,
        )
        return self._bar


class EncodingProgress(_Bars):
    """A bar over the bytes of a corpus.

    It follows the encoder, which is behind the reader: bytes count once their passages are encoded.
    """

    def __init__(self, reader: CorpusReader | DocumentsRead, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._reader = reader
        self._passages = 0
        # State of the current window.
        self._window_start = 0  # position of the bar at its start
        self._bytes_read = 0  # by the reader at its start
        self._unencoded = 0  # passages that are read and not encoded at its start
        self._encoded_since = 0  # passages since its start
        total = reader.total_bytes
        self._show(
            total=total,
            desc="0 passages",
            unit="B",
            unit_scale=True,
            bar_format=None if total is None else _BAR + "{desc}, {elapsed}, {remaining} left",
        )

    def window(self, passages: int, waiting: int) -> None:
        """Begin a window of `passages` passages, after which `waiting` more are read already."""
        self._window_start = self._bar.n
        self._bytes_read = self._reader.bytes_read
        self._unencoded = passages + waiting
        self._encoded_since = 0

    def encoded(self, passages: int, pieces: int = 0) -> None:
        """Count `passages` more encoded passages of the window."""
        self._passages += passages
        elapsed = self._bar.format_dict["elapsed"]
        rate = self._passages / elapsed if elapsed else 0.0
        description = f"{self._passages:,} passages, {rate:,.0f}/s"
        self._bar.set_description_str(description, refresh=not self._unencoded)
        if self._unencoded:
            self._encoded_since += passages
            ahead = self._bytes_read - self._window_start
            self.finished(self._window_start + ahead * self._encoded_since // self._unencoded)

    def finished(self, position: int) -> None:
        """Move the bar to `position`, the bytes of the corpus whose passages are encoded."""
        self._bar.update(max(0, position - self._bar.n))


class ShardsProgress(EncodingProgress):
    """A bar over the bytes of a corpus in finished shards, with the rate of all workers."""

    def window(self, passages: int, waiting: int) -> None:
        """Do nothing: workers have windows of their own."""


class Stages(_Bars):
    """A bar for each stage of a command."""

    def __call__(self, name: str, total: int | None) -> Callable[[int], None]:
        """Begin a stage of `total` steps, None if that is not known; call the result with steps."""
        counts = "{desc}: {n_fmt}"
        bar = self._show(
            total=total,
            desc=name,
            bar_format=f"{counts}, {{elapsed}}"
            if total is None
            else f"{_BAR}{counts} of {{total_fmt}}, {{remaining}} left",
        )
        update: Callable[[int], None] = bar.update
        return update


def warn_metadata(reader: CorpusReader) -> None:
    """Report types of columns, and metadata of other types than their columns or fields."""
    for source, columns in reader.columns.items():
        if columns:
            named = [f"{name} {kind}" for name, kind in islice(columns.items(), _COLUMNS)]
            more = len(columns) - len(named)
            named += [f"{more:,} more"] if more else []
            say(f"note: {source}: types of columns: {', '.join(named)} (change them with --types)")
    lines = list(reader.metadata_warnings())
    for line in lines[:_COLUMNS]:
        say(f"warning: {line}")
    if len(lines) > _COLUMNS:
        say(f"warning: {len(lines) - _COLUMNS:,} more warnings about columns and fields")


def warn_reader(reader: CorpusReader, *, quiet: bool = False) -> None:
    """Report the ids that the reader made, the records that it merged or skipped, and its files.

    With `quiet`, only losses are reported for files, and the rule of generated ids is left out.
    """
    from retriever.documents.decoding import REMEDY

    if reader.generated_ids is not None and not quiet:
        say(f"note: {reader.generated_ids}")
    for encoding, count in reader.recoded.items():
        say(
            f"note: {counted(count.records, 'file')} read as {encoding}, not UTF-8, the first "
            f"{count.first}; if that is wrong, {REMEDY}"
        )
    if reader.empty:
        more = reader.empty - len(reader.empty_at)
        places = ", ".join(reader.empty_at) + (f" and {more:,} more" if more else "")
        say(f"warning: {counted(reader.empty, 'document')} without text skipped: {places}")
    if reader.duplicates:
        say(f"note: {counted(reader.duplicates, 'record')} merged with identical earlier ones")
    say_skipped(reader.skipped, reader.problems)
    report = reader.files.to_json()
    for line in loss_lines(report) if quiet else file_lines(report):
        say(line)


def say_skipped(skipped: int, problems: Sequence[str]) -> None:
    """Report the number of skipped records, and the messages of the first ones."""
    for problem in problems:
        say(f"skipped: {problem}")
    if skipped > len(problems):
        say(f"skipped: {counted(skipped - len(problems), 'more record')}")


def file_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table of files; `report` is that of `FilesReport.to_json`."""
    kinds = sorted(report["read"].items(), key=lambda item: -item[1])
    read = ", ".join(f"{files:,} {label}" for label, files in kinds)
    if read:
        yield f"{'files':<12} {sum(report['read'].values()):,} read: {read}"
    yield from loss_lines(report)
    if report["without_text"]:
        yield f"{'without text':<12} {counted(report['without_text'], 'file')}"
    if report["skipped"]:
        yield f"{'skipped':<12} {counted(report['skipped'], 'file')}"
        # `index` and `refresh` name such files while they read.
        for line in report["faults"]:
            yield f"{'':<12} {line}"
    if report["left_out"]:
        yield left_out_line(report["left_out"])


def left_out_line(files: Mapping[str, int]) -> str:
    """Return the line on files of folders that are left out, by suffix or another reason."""
    from retriever.documents.folders import (
        TEXT_SUFFIXES,
        archive_advice,
        include_advice,
        left_out_text,
    )

    advice = include_advice(files, TEXT_SUFFIXES) + archive_advice(files)
    return f"{'left out':<12} {left_out_text(files)}{advice}"


def loss_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files that were read in part, and their losses."""
    if not report["in_part"]:
        return
    losses = ", ".join(f"{files:,} {_LOSSES[kind]}" for kind, files in report["losses"].items())
    yield f"{'in part':<12} {counted(report['in_part'], 'file')}: {losses}"
    for line in report["named"]:
        yield f"{'':<12} {line}"
    more = report["in_part"] - len(report["named"])
    if more:
        yield f"{'':<12} and {more:,} more"
