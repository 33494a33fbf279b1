"""`retriever get`: print a document, or a part of it."""

from __future__ import annotations

import json
import re

import click

from cli.index_access import in_option, open_index
from cli.options import Command, Location, index_option, json_option, option
from retriever.terminal import without_controls

# A range of lines, and a number above every line.
_LINES = re.compile(r"([0-9]{1,9})(?:[-:]([0-9]{1,9})?)?")
_LAST_LINE = 10**9


def _line_range(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """Read the value of --lines: ``10``, ``10-20`` or ``10-``."""
    if value is None:
        return None
    ends = _LINES.fullmatch(value)
    if ends is None:
        raise click.BadParameter(f"expected FIRST-LAST, such as 10-20, found {value!r}")
    first = int(ends[1])
    open_end = _LAST_LINE if value[-1] in "-:" else first
    last = int(ends[2] or open_end)
    return first, last


@click.command("get", cls=Command)
@click.argument("place", metavar="ID")
@in_option
@index_option
@option(
    "--lines",
    callback=_line_range,
    metavar="FIRST-LAST",
    help="Print only these lines of the source; the first line is 1.",
    section="Output",
)
@json_option
def get_command(
    place: str,
    sources: tuple[str, ...],
    folder: Location,
    lines: tuple[int, int] | None,
    as_json: bool,
) -> None:
    """Print the text of a document from the index.

    ID is the id of a document or a place that `retriever query` prints: `notes.md:120-141`,
    `"report.pdf, page 3"`, or `notes.md[0:500]` for characters. If the index has no such document
    or part, the exit code is 2.
    """
    from retriever.documents import find_part
    from retriever.documents.places import part_of_lines

    with open_index(folder, sources) as index:
        part = find_part(place, index.get)
    if lines is not None:
        if part.document.id != place:
            raise click.UsageError(
                f"--lines: {place} already names a part of the document; leave --lines out"
            )
        part = part_of_lines(part.document, *lines)
    if as_json:
        facts = {
            "id": part.document.id,
            "title": part.document.title,
            "text": part.text,
            "metadata": part.document.metadata,
            "start": part.start,
            "stop": part.stop,
            "length": len(part.document.text),
        }
        click.echo(json.dumps(facts, ensure_ascii=False))
    else:
        click.echo(without_controls(part.text))
