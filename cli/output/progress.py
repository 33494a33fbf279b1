"""Progress of a long command: one line on stderr, and nothing if that is not a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import click

from retriever.terminal import on_one_line

if TYPE_CHECKING:
    from retriever.documents.reader import CorpusReader


# Columns whose types are printed, and warnings of columns and fields.
_COLUMNS = 20


class ReadInBytes(Protocol):
    """Something that is read, with its progress."""

    @property
    def bytes_read(self) -> int:
        """Number of bytes read so far."""

    @property
    def total_bytes(self) -> int | None:
        """Number of bytes in total; None if it is unknown."""


def _corpus_bar(reader: ReadInBytes, *, quiet: bool) -> Any:
    from tqdm import tqdm

    return tqdm(
        total=reader.total_bytes,
        desc="0 passages",
        disable=quiet or not sys.stderr.isatty(),
        file=sys.stderr,
        unit="B",
        unit_scale=True,
        dynamic_ncols=True,
        leave=False,
        bar_format=None
        if reader.total_bytes is None
        else "{percentage:3.0f}% |{bar}| {desc}, {elapsed}, {remaining} left",
    )


class EncodingProgress:
    """A bar over the bytes of a corpus, with passages per second and the remaining time.

    The reader is one window ahead of the encoder; the bar follows the encoder.

    Args:
        reader: the corpus.
        quiet: show nothing.
    """

    def __init__(self, reader: ReadInBytes, *, quiet: bool) -> None:
        self._reader = reader
        self._quiet = quiet
        self._bar: Any = None
        self._before = 0
        self._after = 0
        self._window = 0
        self._done = 0
        self._passages = 0

    def __enter__(self) -> EncodingProgress:
        self._bar = _corpus_bar(self._reader, quiet=self._quiet)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def window(self, passages: int) -> None:
        """Begin a window of `passages` passages."""
        self._before, self._after = self._after, self._reader.bytes_read
        self._window, self._done = passages, 0

    def encoded(self, passages: int, pieces: int) -> None:
        """Count `passages` more encoded passages of the window."""
        self._done += passages
        self._passages += passages
        reached = self._before + (self._after - self._before) * self._done // self._window
        elapsed = self._bar.format_dict["elapsed"]
        rate = self._passages / elapsed if elapsed else 0.0
        said = f"{self._passages:,} passages, {rate:,.0f}/s"
        self._bar.set_description_str(said, refresh=False)
        self._bar.update(reached - self._bar.n)


class ShardsProgress:
    """A bar over the bytes of a corpus up to the last finished shard, with the rate of all workers.

    Args:
        reader: the corpus.
        quiet: show nothing.
    """

    def __init__(self, reader: ReadInBytes, *, quiet: bool) -> None:
        self._bar: Any = _corpus_bar(reader, quiet=quiet)
        self._passages = 0

    def __enter__(self) -> ShardsProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def window(self, passages: int) -> None:
        """Do nothing: workers have windows of their own."""

    def encoded(self, passages: int, pieces: int) -> None:
        """Count passages that a worker has just encoded."""
        self._passages += passages
        elapsed = self._bar.format_dict["elapsed"]
        rate = self._passages / elapsed if elapsed else 0.0
        self._bar.set_description_str(f"{self._passages:,} passages, {rate:,.0f}/s")

    def finished(self, reached: int) -> None:
        """A shard is there; the corpus was read up to `reached` bytes at its end."""
        self._bar.update(max(0, reached - self._bar.n))


class Stages:
    """A bar on stderr for each stage of a command; nothing if stderr is not a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet or not sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Stages:
        return self

    def __call__(self, name: str, total: int | None) -> Callable[[int], None]:
        """Begin a stage of `total` steps, None if that is not known; call the result with steps."""
        from tqdm import tqdm

        self._close()
        self._bar = tqdm(
            total=total,
            desc=name,
            disable=self._quiet,
            file=sys.stderr,
            dynamic_ncols=True,
            leave=False,
            bar_format="{desc}: {n_fmt}, {elapsed}"
            if total is None
            else "{percentage:3.0f}% |{bar}| {desc}: {n_fmt} of {total_fmt}, {remaining} left",
        )
        update: Callable[[int], None] = self._bar.update
        return update

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def counting(unit: str, total: int | None, *, quiet: bool) -> Iterator[Callable[[int], object]]:
    """A bar on stderr, if that is a terminal; call it with the number of units just done."""
    from tqdm import tqdm

    bar: Any = tqdm(
        total=total,
        unit=f" {unit}",
        disable=quiet or not sys.stderr.isatty(),
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
    )
    with bar:
        yield bar.update


class _AboveBars(logging.Handler):
    """Prints lines on stderr above any bars, unless the command has --quiet."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        context = click.get_current_context(silent=True)
        if context is None or not context.params.get("quiet"):
            tqdm.write(on_one_line(record.getMessage()), file=sys.stderr)


@contextmanager
def announce_long_builds() -> Iterator[None]:
    """Print on stderr what `maintenance` expects of a long build, before the build begins."""
    logger, handler = logging.getLogger("indexes.folder.writer"), _AboveBars()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 document``, ``2,000 documents``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def human_bytes(count: int) -> str:
    """A size in decimal units: ``1.5 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def warn_metadata(reader: CorpusReader, echo: Callable[[str], None]) -> None:
    """Report the types of columns, and the metadata that is not what its column or field should be.

    For commands that keep metadata, beside `warn_reader`.
    """
    for source, columns in reader.columns.items():
        if columns:
            named = [f"{name} {kind}" for name, kind in islice(columns.items(), _COLUMNS)]
            more = len(columns) - len(named)
            named += [f"{more:,} more"] if more else []
            echo(f"note: {source}: types of columns: {', '.join(named)} (--types gives others)")
    lines = list(reader.metadata_warnings())
    for line in lines[:_COLUMNS]:
        echo(f"warning: {line}")
    if len(lines) > _COLUMNS:
        echo(f"warning: {len(lines) - _COLUMNS:,} more of columns and fields")


def warn_reader(reader: CorpusReader, echo: Callable[[str], None]) -> None:
    """Report which ids the reader made, and which records it merged or skipped."""
    if reader.generated_ids is not None:
        echo(f"note: {reader.generated_ids}")
    if reader.empty:
        more = reader.empty - len(reader.empty_at)
        places = ", ".join(reader.empty_at) + (f" and {more:,} more" if more else "")
        echo(f"warning: {counted(reader.empty, 'document')} without text skipped: {places}")
    if reader.duplicates:
        echo(f"note: {counted(reader.duplicates, 'record')} merged with identical earlier ones")
    for problem in reader.problems:
        echo(f"skipped: {problem}")
    if reader.skipped > len(reader.problems):
        echo(f"skipped: {counted(reader.skipped - len(reader.problems), 'more record')}")
