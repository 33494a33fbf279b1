"""A report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from eval.reports.model import Report, Table
from eval.reports.text import printable

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$&!])")


def markdown_lines(report: Report, files: Sequence[str], remarks: Sequence[str]) -> Iterator[str]:
    """The lines of report.md.

    Args:
        report: what to write.
        files: paths of what was written beside it, below the report's folder.
        remarks: on what was not written.
    """
    yield f"# {escaped(report.title)}"
    yield ""
    # Indented, so that nothing in it can end the block.
    yield from (f"    {printable(line)}" for line in report.command.splitlines())
    for section in report.sections:
        if section.heading:
            yield ""
            yield f"## {escaped(section.heading)}"
        yield from _facts(section.facts)
        for table in section.tables:
            yield from _table(table)
        if section.remarks:
            yield ""
            yield from (f"- {escaped(remark)}" for remark in section.remarks)
    if remarks:
        yield ""
        yield from (f"- {escaped(remark)}" for remark in remarks)
    if report.environment:
        yield ""
        yield "## Environment"
        yield from _facts(report.environment)
    yield ""
    yield "## Files"
    yield ""
    for file in files:
        shown = file.startswith("figures/") and file.endswith(".png")
        yield f"- {'!' if shown else ''}[{escaped(file)}]({file})"


def escaped(text: str) -> str:
    """The text on one line, with nothing in it that Markdown interprets."""
    return _MARKDOWN.sub(r"\\\1", printable(text))


def _facts(facts: Mapping[str, str]) -> Iterator[str]:
    if facts:
        yield from _table(Table(("", ""), tuple(facts.items()), left=(0, 1)))


def _table(table: Table) -> Iterator[str]:
    yield ""
    if table.title:
        yield f"**{escaped(table.title)}**"
        yield ""
    marks = ["---" if place in table.left else "---:" for place in range(len(table.columns))]
    for cells in (map(escaped, table.columns), marks, *(map(escaped, row) for row in table.rows)):
        yield f"| {' | '.join(cells)} |"
