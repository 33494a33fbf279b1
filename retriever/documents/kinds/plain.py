"""Plain text, source code, Markdown and notebooks, which need no library."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, time
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

from retriever.documents.dates import iso_date
from retriever.documents.document import Json
from retriever.documents.kinds import OutlinedText, Parsed, one_line
from retriever.documents.kinds.markdown import headings, markdown_headings
from retriever.documents.losses import Loss
from retriever.documents.outline import Mark
from retriever.errors import SourceError

# Maximum length in characters of front matter.
_LONGEST_FRONT = 1 << 16
_YAML_BLOCK = re.compile(r"---[ \t\r]*\n((?:.*\n)*?)(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)")
_TOML_BLOCK = re.compile(r"\+\+\+[ \t\r]*\n((?:.*\n)*?)\+\+\+[ \t\r]*(?:\n|\Z)")
# Lines of a block that is not YAML: a field, a line that continues it, and other lines.
_FIELD = re.compile(r"""('[^'\n]+'|"[^"\n]+"|[^\W\d][^\n:'"#]*?)[ \t]*:(?:[ \t]+(.*)|$)""")
_MORE_OF_FIELD = re.compile(r"[ \t]|-[ \t]|\s*$")
_NO_FIELD = re.compile(r"#.*|\s*")
_NO_YAML = object()
# Values of the core schema of YAML 1.2: their first characters and their form.
_YAML_VALUES = {
    "null": (["~", "n", "N", ""], r"(?:~|null|Null|NULL|)\Z"),
    "bool": ([*"tTfF"], r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "int": ([*"-+0123456789"], r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    "float": (
        [*"-+.0123456789"],
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z",
    ),
}
_BASES = {"0o": 8, "0x": 16}
# Parts of Markdown that a reader does not see.
_UNSEEN = re.compile(r"<!--(?s:.)*?(?:-->|\Z)|</?[a-zA-Z][^<>]*+>")

# An address with data: the part before the data, and the data. Base64 data may be in quotes and
# have several lines; a picture may have escapes.
_DATA_ADDRESS = re.compile(
    r"""(["']?)\b(data:([a-z]{1,20}/[\w.+-]{1,80}))((?:;[\w.+-]{1,80}(?:=[^\s;,"']{0,80})?){0,5}),""",
    re.I,
)
_BASE64 = re.compile(r"[A-Za-z0-9+/=_%-]*+")
_BASE64_LINES = re.compile(r"[A-Za-z0-9+/=_%\s\\-]*+")
_ESCAPED = re.compile(r"""[^\s"'<>()\\]*+""")
_QUOTED = {sign: re.compile(f"[^{sign}\n]*+") for sign in "\"'"}
_MEDIA = ("image", "audio", "video", "font")
# The least number of characters of data that are left out; shorter data may be an example.
_LEAST_DATA = 48

# A key of 100 parts. The standard library's time and memory are quadratic in the parts.
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d")

_Headings = Callable[[str], Iterator[Mark]]


def read_plain(text: str) -> Parsed:
    """Return text or code without blank lines at its ends and without data in addresses."""
    source = without_data(text)
    return numbered_lines(source, source.text)


def read_markdown(text: str) -> Parsed:
    """Return Markdown; front matter becomes metadata, and a heading at the beginning the title."""
    source = without_data(text)
    metadata, body = _front_matter(source.text)
    title = one_line(metadata.pop("title", None)) or None
    # The body begins at the first line that is not blank.
    body = body[body.rfind("\n", 0, len(body) - len(body.lstrip())) + 1 :]
    first = next(headings(body), None)
    if first is not None and first.mark.level == 1 and title in (None, first.mark.label):
        offset = first.mark.offset
        if not _UNSEEN.sub("", body[:offset]).strip():
            title = first.mark.label
            # The heading stays in the text if other text is beside or above it.
            body = body[first.stop :] if offset == 0 and first.stop >= 0 else body
    return numbered_lines(source, body, title, metadata, markdown_headings)


def read_notebook(text: str) -> Parsed:
    """Return the Markdown and code cells of a Jupyter notebook, without their outputs."""
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"no Jupyter notebook: not JSON: {error}") from error
    losses: list[Loss] = []
    try:
        sheets = [book] if "cells" in book else book["worksheets"]
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        blocks = OutlinedText()
        title = ""
        for cell in cells:
            lines = cell.get("source", cell.get("input", ""))
            source = without_data(lines if isinstance(lines, str) else "".join(lines))
            losses += source.losses
            is_markdown = cell.get("cell_type") == "markdown"
            body = source.text.strip("\n")
            marks = [*markdown_headings(body)] if is_markdown else []
            if marks and not len(blocks) and (marks[0].offset, marks[0].level) == (0, 1):
                title = marks[0].label
            blocks.add(body, marks=marks)
    except (AttributeError, KeyError, TypeError) as error:
        raise SourceError("no Jupyter notebook: expected a list of cells") from error
    return blocks.parsed(fallback_title=title)._replace(losses=tuple(losses))


class TextWithoutData(NamedTuple):
    """A text whose addresses hold no data.

    Attributes:
        text: the text with ``data:image/png`` instead of an address and its data.
        gaps: offsets of lines after lines that were left out, each with the number of lines left
            out so far.
        losses: data other than pictures, sounds and fonts.
    """

    text: str
    gaps: tuple[tuple[int, int], ...] = ()
    losses: tuple[Loss, ...] = ()


def without_data(text: str) -> TextWithoutData:
    """Leave the data of addresses out of a text, since nobody searches for them."""
    parts: list[str] = []
    gaps: list[tuple[int, int]] = []
    types: list[str] = []
    length = 0
    place = 0
    dropped_lines = 0
    size = 0
    for match in _DATA_ADDRESS.finditer(text):
        data = _find_data(text, match) if match.start() >= place else ""
        if len(data) < _LEAST_DATA:
            continue
        parts.append(text[place : match.end(2)])
        length += len(parts[-1])
        place = match.end() + len(data)
        if line_ends := data.count("\n"):
            dropped_lines += line_ends
            rest_of_line = text.find("\n", place)
            gaps += [(length + rest_of_line - place + 1, dropped_lines)] * (rest_of_line >= 0)
        if match[3].partition("/")[0].lower() not in _MEDIA:
            types.append(match[3].lower())
            size += len(data)
    parts.append(text[place:])
    detail = (
        f"{len(types)} data URI{'s' if len(types) > 1 else ''} with {max(1, size // 1000)} kB of "
        f"{', '.join(sorted(set(types)))[:100]} left out"
    )
    losses = (Loss("data", detail),) if types else ()
    return TextWithoutData("".join(parts), tuple(gaps), losses)


def _find_data(text: str, match: re.Match[str]) -> str:
    """Return the data after the beginning of an address; empty if they are readable words."""
    start = match.end()
    quotation = match[1]
    if match[4].lower().endswith(";base64"):
        lines = _BASE64_LINES.match(text, start) if quotation else None
        if lines is not None and text[lines.end() : lines.end() + 1] == quotation:
            return lines[0]
        data = _BASE64.match(text, start)
    elif match[3].partition("/")[0].lower() in _MEDIA:
        data = (_QUOTED[quotation] if quotation else _ESCAPED).match(text, start)
    else:
        data = None
    return data[0] if data is not None else ""


def numbered_lines(
    source: TextWithoutData,
    rest: str,
    title: str | None = None,
    metadata: dict[str, Json] | None = None,
    find_headings: _Headings | None = None,
) -> Parsed:
    """Return the end `rest` of a text, with the numbers of its lines in the file."""
    text = rest.strip()
    if not text:
        return Parsed("", title, metadata or {}, losses=source.losses)
    start = len(source.text) - len(rest.lstrip())
    marks = [*find_headings(text)] if find_headings is not None else []
    dropped = max((lines for place, lines in source.gaps if place <= start), default=0)
    number = source.text.count("\n", 0, start) + 1 + dropped
    numbers = [Mark(0, "line", str(number))]
    before = start
    for place, lines in source.gaps:
        if start < place < start + len(text):
            number += source.text.count("\n", before, place) + lines - dropped
            dropped = lines
            before = place
            numbers.append(Mark(place - start, "line", str(number)))
    marks = sorted([*numbers, *marks], key=itemgetter(0))
    return Parsed(text, title, metadata or {}, tuple(marks), source.losses)


def _front_matter(text: str) -> tuple[dict[str, Json], str]:
    """Return the fields of YAML or TOML at the beginning of a text, and the text below them.

    As in Pandoc, fields begin in the line after the fence; before a blank line, the fence is a
    rule.
    """
    match = _YAML_BLOCK.match(text, 0, _LONGEST_FRONT)
    is_yaml = match is not None
    match = match or _TOML_BLOCK.match(text, 0, _LONGEST_FRONT)
    if match is None:
        return {}, text
    front = match[1]
    below = text[match.end() :]
    if not front.strip():
        return {}, below
    fields: object = None
    if is_yaml:
        fields = _read_yaml(front) if front.partition("\n")[0].strip() else None
    elif _DEEP_KEY.search(front) is None:
        with suppress(ValueError, RecursionError):
            fields = tomllib.loads(front)
    if not isinstance(fields, dict):
        return {}, text
    try:
        return {str(name): _json_value(value) for name, value in fields.items()}, below
    except RecursionError:
        # Keys with dots nest deeper than the parser's recursion.
        return {}, text


def _read_yaml(front: str) -> object:
    """Return the fields of a block; None if it has lines that belong to no field."""
    value = _load_yaml(front)
    if value is not _NO_YAML:
        return value
    # The usual fault is a value with a colon, such as a title. The other fields are kept.
    fields: dict[object, object] = {}
    lines = front.splitlines()
    place = 0
    while place < len(lines):
        first = _FIELD.fullmatch(lines[place])
        start = place
        place += 1
        if first is None:
            if _NO_FIELD.fullmatch(lines[start]) is None:
                return None
            continue
        while place < len(lines) and _MORE_OF_FIELD.match(lines[place]):
            place += 1
        value = _load_yaml("\n".join(lines[start:place]))
        if isinstance(value, dict):
            fields |= value
        else:
            fields[first[1].strip("'\"")] = _plain_field_value(
                [first[2] or "", *lines[start + 1 : place]]
            )
    return fields


def _plain_field_value(lines: list[str]) -> str | list[str]:
    """Return a value that is no YAML; a list if all lines below its name are items."""
    lines = [line.strip() for line in lines if line.strip()]
    if all(line.startswith("- ") for line in lines):
        return [line[2:].strip().strip("'\"") for line in lines]
    return " ".join(lines).strip("'\"")


def _load_yaml(front: str) -> object:
    """Return the value of a text of YAML; `_NO_YAML` if it is none."""
    import yaml

    try:
        return yaml.load(front, _yaml_loader())  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError, KeyError, AttributeError, TypeError):
        return _NO_YAML


@cache
def _yaml_loader() -> Any:
    """Return PyYAML's safe loader, of YAML 1.1, with the values of YAML 1.2's core schema."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Takes no aliases, of which a few lines can make any number of values."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("an alias")
            return super().compose_node(parent, index)

        def construct_number(self, node: Any) -> object:
            return _yaml_number(self.construct_scalar(node))

    for name, (first, pattern) in _YAML_VALUES.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), first)
    for name in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{name}", Loader.construct_number)
    return Loader


def _yaml_number(text: str) -> int | float | str:
    """Return a number of YAML; its text if metadata cannot hold it."""
    try:
        whole = int(text[2:], _BASES[text[:2]]) if text[:2] in _BASES else int(text)
    except ValueError:
        # Thousands of digits, or not an integer.
        real = math.inf if text.isdecimal() else float(text.lower().replace(".inf", "inf"))
        return real if math.isfinite(real) else text
    return whole if -(2**63) <= whole < 2**63 else text


def _json_value(value: object) -> Any:
    """Return a value of front matter as JSON as far as possible; the rest is left out later."""
    if isinstance(value, date | time):
        value = value.isoformat()
    if isinstance(value, str) and _MOMENT.match(value):
        return iso_date(re.sub(r"\s+(?=[+-]\d|Z$)", "", value)) or value
    if isinstance(value, dict):
        return {str(name): _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json_value(item) for item in value]
    return value
