"""Text for a terminal: messages, tables and counts, without control characters."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.terminal import on_one_line, table

if TYPE_CHECKING:
    from retriever.index import Index, IndexingReport


def say(line: str, *, err: bool = True) -> None:
    """Print a message of one line, to stderr if `err`.

    Control characters in names and in messages of libraries are replaced. A progress bar on the
    terminal makes room for the line.
    """
    one_line = on_one_line(line)
    tqdm_module = sys.modules.get("tqdm")
    if err and tqdm_module is not None:
        tqdm_module.tqdm.write(one_line, file=sys.stderr)
    else:
        click.echo(one_line, err=err)


def tell(
    summary: str | Iterable[str],
    facts: Mapping[str, Any],
    *,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Print the result of a command: `facts` as JSON, or else `summary`, unless quiet."""
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
    elif not quiet:
        for line in [summary] if isinstance(summary, str) else summary:
            say(line, err=False)


def say_earlier_terms(index: Index, *, quiet: bool = False) -> None:
    """Note that an index has the terms of an earlier release, with the command that renews them."""
    from retriever.search import earlier_terms

    if not quiet and (reason := earlier_terms(index.analyzer.settings)):
        quoted_location = shlex.quote(str(index.store))
        say(f"note: {index.store}: {reason}; `retriever reindex -i {quoted_location}` brings them")


def tell_encoder(
    folder: Path, lines: Iterable[str], facts: Mapping[str, Any], *, as_json: bool, quiet: bool
) -> None:
    """Print the facts of a new encoder, and the option that names it."""
    from retriever.encoders import EncoderSettings

    encoder = str(EncoderSettings(model=str(folder)))
    lines = (*lines, f"--model {shlex.quote(encoder)}")
    tell(lines, {"encoder": encoder, **facts}, as_json=as_json, quiet=quiet)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 document``, ``2,000 documents``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def human_bytes(count: int) -> str:
    """Return a size in decimal units: ``1.5 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def meta_summary(facts: dict[str, Any]) -> str:
    """Return the facts of `MetaParts.describe` in one line."""
    pooling = f", {facts['pooling']} pooling" if facts["pooling"] else ""
    return (
        f"{facts['method']} of {len(facts['sources'])} encoders, {facts['level']} level"
        f"{pooling}, {facts['dimensions']} dimensions"
    )


def meta_lines(facts: dict[str, Any]) -> list[str]:
    """Return the sources of a meta-embedding as a table."""
    rows = [
        [
            source["encoder"],
            str(source["dimensions"]),
            f"{source['weight']:.3f}",
            source["fingerprint"],
        ]
        for source in facts["sources"]
    ]
    return table(["source", "dimensions", "weight", "fingerprint"], rows)


def merge_note(report: IndexingReport) -> str:
    """Describe the merge at the end of a run; return an empty string if there was none."""
    if not report.merged_segments:
        return ""
    merged = counted(report.merged_segments, "segment")
    return f", {report.merge_seconds:.1f} s of it to merge {merged}"
