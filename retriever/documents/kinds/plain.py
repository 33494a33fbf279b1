"""Plain text, source code, Markdown and notebooks: what needs no library."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, time
from typing import Any

from retriever.documents import Json
from retriever.documents.kinds import OutlinedText, Parsed, one_line
from retriever.documents.outline import Mark
from retriever.documents.text import iso_date
from retriever.errors import SourceError

# Characters of the longest front matter: more is no front matter.
_LONGEST_FRONT = 1 << 16

# A key of so many parts that the standard library's time and memory, quadratic in them, are much.
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d")

_Headings = Callable[[str], Iterator[Mark]]


def read_plain(text: str) -> Parsed:
    """Text or code as it is, but for blank lines at its ends."""
    return _lines(text, text)


def read_markdown(text: str) -> Parsed:
    """Markdown; its front matter is metadata, and the heading that it begins with its title."""
    metadata, body = _front_matter(text)
    title = one_line(metadata.pop("title", None)) or None
    # From the first line that is not blank.
    start = body.rfind("\n", 0, len(body) - len(body.lstrip())) + 1
    first = next(markdown_headings(body[start:]), None)
    if first is not None and (first.offset, first.level) == (0, 1) and title in (None, first.label):
        title = first.label
        # A heading without number signs has a line below it.
        lines = 2 if body[start:].partition("\n")[0].strip() == title else 1
        body = "".join(body[start:].split("\n", lines)[lines:])
    return _lines(text, body, title, metadata, markdown_headings)


def _lines(
    whole: str,
    rest: str,
    title: str | None = None,
    metadata: dict[str, Json] | None = None,
    headings: _Headings | None = None,
) -> Parsed:
    """The end `rest` of a text, with the number of its first line."""
    text = rest.strip()
    if not text:
        return Parsed("", title, metadata or {})
    start = len(whole) - len(rest.lstrip())
    number = whole.count("\n", 0, start) + 1
    found = headings(text) if headings is not None else ()
    return Parsed(text, title, metadata or {}, (Mark(0, "line", str(number)), *found))


def markdown_headings(text: str) -> Iterator[Mark]:
    """Headings with number signs or a line below them, outside fenced code."""
    offset, fence, before = 0, "", ""
    for line in text.split("\n"):
        body = line.strip()
        is_block = len(line) - len(line.lstrip(" ")) <= 3
        paragraph = ""
        if fence:
            is_last = body.startswith(fence) and not body.strip(fence[0])
            if is_last or (fence == "-->" and fence in body):
                fence = ""
        elif is_block and body.startswith("<!--"):
            fence = "" if "-->" in body else "-->"
        elif is_block and (body[:3] == "~~~" or re.match("```+[^`]*$", body)):
            fence = body[: len(body) - len(body.lstrip(body[0]))]
        elif is_block and body.startswith("#"):
            label = body.lstrip("#")
            level = len(body) - len(label)
            closed = label.rstrip("#")
            label = (closed if closed.endswith((" ", "\t")) else label).strip()
            if level <= 6 and label and body[level] in " \t":
                yield Mark(offset, "heading", label, level)
        elif is_block and before and body and set(body) in ({"="}, {"-"}):
            yield Mark(offset - len(before) - 1, "heading", before.strip(), 1 + (body[0] == "-"))
        elif is_block and not body.startswith(("- ", "* ", "+ ", ">", "|")):
            paragraph = line if body else ""
        before = paragraph
        offset += len(line) + 1


def _front_matter(text: str) -> tuple[dict[str, Json], str]:
    """The fields of YAML or TOML that a text begins with, and the text below them."""
    fence = text.partition("\n")[0].rstrip()
    if fence not in ("---", "+++"):
        return {}, text
    end, length = text.find(f"\n{fence}", 3, _LONGEST_FRONT), 4
    if end < 0 and fence == "---":
        end = text.find("\n...", 3, _LONGEST_FRONT)
    line, _, rest = text[end + length :].partition("\n")
    if end < 0 or line.strip():
        return {}, text
    front = text[3 : end + 1]
    found: object = None
    if fence == "---":
        found = _yaml(front)
    elif _DEEP_KEY.search(front) is None:
        with suppress(ValueError, RecursionError):
            found = tomllib.loads(front)
    if not isinstance(found, dict):
        return {}, text
    try:
        return {str(name): _json(value) for name, value in found.items()}, rest
    except RecursionError:
        # Keys with dots nest deeper than the parser calls itself.
        return {}, text


def _yaml(front: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Takes no aliases, of which a few lines can make any number of values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("an alias")
            return super().compose_node(parent, index)

    try:
        return yaml.load(front, Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError, KeyError, AttributeError, TypeError):
        # A value with a colon, as in a title, is the usual fault: what most lines mean is plain.
        lines = (line.partition(": ") for line in front.splitlines() if line[:1].isalpha())
        return {name: value.strip().strip("'\"") for name, _, value in lines if value} or None


def _json(value: object) -> Any:
    """A value of front matter as JSON has it; what it does not have is left out later."""
    if isinstance(value, date | time):
        value = value.isoformat()
    if isinstance(value, str) and _MOMENT.match(value):
        return iso_date(re.sub(r"\s+(?=[+-]\d)", "", value)) or value
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json(one) for one in value]
    return value


def read_notebook(text: str) -> Parsed:
    """The Markdown and code cells of a Jupyter notebook, without their outputs."""
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"no Jupyter notebook: not JSON: {error}") from error
    try:
        sheets = [book] if "cells" in book else book["worksheets"]
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        found = OutlinedText()
        for cell in cells:
            given = cell.get("source", cell.get("input", ""))
            source = given if isinstance(given, str) else "".join(given)
            is_markdown = cell.get("cell_type") == "markdown"
            body = source.strip("\n")
            found.add(body, marks=markdown_headings(body) if is_markdown else ())
    except (AttributeError, KeyError, TypeError) as error:
        raise SourceError("no Jupyter notebook: expected a list of cells") from error
    return found.parsed()
