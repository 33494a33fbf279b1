"""JSON Lines: one object per line; blank lines are skipped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from retriever.corpus.documents import Json, Record
from retriever.corpus.fields import Fields
from retriever.corpus.lines import TextLines
from retriever.corpus.sources import OpenSource

_SPACE = " \t\r\n"


def read(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The records of a source, in file order."""
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    lines = TextLines(source.stream)
    name = source.name
    for line in lines:
        fault = lines.take_fault()
        # The line end is removed first, so that an error's position is a column of this line.
        text = line.rstrip(_SPACE)
        if not text and fault is None:
            continue
        where = f"{name}:{lines.number}"
        value: Json = None
        if fault is None:
            try:
                value = decode(text)
            except json.JSONDecodeError as error:
                fault = (
                    f"not JSON, expected one object per line: {error.msg} at column {error.pos + 1}"
                )
            except KeyError as error:
                fault = f"the key {error.args[0]!r} occurs twice in one object; keep one of them"
            except RecursionError:
                fault = "the JSON is nested too deeply"
            except ValueError:
                fault = "holds an integer of thousands of digits; write it as a string"
        if fault is not None:
            yield Record(lines.number, where, {}, fault)
        elif isinstance(value, dict):
            yield Record(lines.number, where, value)
        else:
            kind = _KINDS[type(value)]
            yield Record(lines.number, where, {}, f"expected a JSON object, found {kind}")


_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
}


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    values = dict(pairs)
    if len(values) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise KeyError(twice)
    return values
