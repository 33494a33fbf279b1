"""Text as a source: JSON Lines, plain text with a passage a line, folders of files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from retriever.documents import Fields, Json, Record
from retriever.documents.files import SourceFile, kind_of, read_files
from retriever.documents.sources import (
    Meter,
    OpenSource,
    TextLines,
    UnopenedError,
)
from retriever.errors import SourceError

_SPACE = " \t\r\n"
_LEAVES = "a link that leads out of the source, which is not followed"
_NOT_PLAIN = "not a plain file"


def read_jsonl(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """An object a line, in file order; blank lines are skipped."""
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    lines = TextLines(source.stream)
    for line in lines:
        fault = lines.take_fault()
        # The line end is removed first, so that an error's position is a column of this line.
        text = line.rstrip(_SPACE)
        if not text and fault is None:
            continue
        value: Json = {}
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
        if not isinstance(value, dict):
            value, fault = {}, f"expected a JSON object, found {text:.60}"
        yield Record(lines.number, f"{source.name}:{lines.number}", value, fault)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    values = dict(pairs)
    if len(values) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise KeyError(twice)
    return values


def read_lines(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The passages of a source, each without its line end; blank lines are skipped."""
    refuse_named_fields(source.name, fields)
    key = fields.text or "text"
    lines = TextLines(source.stream)
    for line in lines:
        fault = lines.take_fault()
        where = f"{source.name}:{lines.number}"
        if fault is not None:
            yield Record(lines.number, where, {}, fault)
        elif line.strip():
            text = line[:-1].removesuffix("\r") if line.endswith("\n") else line
            yield Record(lines.number, where, {key: text})


def refuse_named_fields(name: str, fields: Fields) -> None:
    """Refuse names of fields that a text does not have."""
    for role, named in (("id", fields.id), ("title", fields.title)):
        if named is not None:
            raise SourceError(
                f"{name}: read as plain text, which has no {role} field {named!r}; "
                "use JSONL, CSV, TSV, Parquet or SQLite to give one"
            )


class Entry(NamedTuple):
    """A file or folder below a source: its relative path, and why it is no document."""

    path: str
    fault: str | None = None
    # As of `Record`.
    passed_over: bool = False


def files_below(folder: Path) -> Iterator[Entry]:
    """The documents below `folder`, sorted by relative path, and what cannot be read.

    Hidden files, and links to folders of the source (which may form a cycle), are skipped.
    """
    return _below(folder, "", os.path.realpath(folder))


def _below(folder: Path, prefix: str, root: str) -> Iterator[Entry]:
    try:
        with os.scandir(folder / prefix) as found:
            entries = sorted(filter(None, (_entry(one, prefix, root) for one in found)))
    except OSError as error:
        fault = f"the folder cannot be listed: {error.strerror}"
        if not prefix:
            raise UnopenedError(f"{folder}: {fault}") from error
        yield Entry(prefix.rstrip("/"), fault)
        return
    for entry in entries:
        if entry.path.endswith("/"):
            yield from _below(folder, entry.path, root)
        else:
            yield entry


def _entry(one: os.DirEntry[str], prefix: str, root: str) -> Entry | None:
    """A file, or a folder with a slash, with which it sorts like the paths below it; or None."""
    path = prefix + one.name
    if one.name.startswith("."):
        return None
    if one.is_dir(follow_symlinks=False):
        return Entry(f"{path}/")
    is_link, is_document = one.is_symlink(), kind_of(one.name) is not None
    to_folder = is_link and os.path.isdir(one.path)
    if not (is_document or to_folder):
        return None
    if is_link and os.path.commonpath([root, os.path.realpath(one.path)]) != root:
        return Entry(path, _LEAVES, passed_over=True)
    if to_folder:
        return None
    if is_link:
        # A dangling one is an error of its own, when it is opened.
        is_plain = os.path.isfile(one.path) or not os.path.exists(one.path)
    else:
        is_plain = one.is_file(follow_symlinks=False)
    return Entry(path) if is_plain else Entry(path, _NOT_PLAIN, passed_over=True)


def read_folder(
    folder: Path, name: str, fields: Fields, meter: Meter, encoding: str | None
) -> Generator[Record, None, None]:
    """The documents below `folder`, as `files_below` gives them, with their paths as ids."""
    refuse_named_fields(name, fields)

    def files() -> Iterator[SourceFile | Record]:
        for number, entry in enumerate(files_below(folder), 1):
            where = f"{name.rstrip('/')}/{entry.path}"
            if entry.fault is not None:
                yield Record(number, where, {}, entry.fault, entry.passed_over)
            else:
                yield SourceFile(folder / entry.path, entry.path, where, number)

    return read_files(files(), fields, meter, encoding)
