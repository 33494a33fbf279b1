"""A folder of .txt and .md files: one document per file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from retriever.corpus.documents import Record
from retriever.corpus.fields import Fields
from retriever.corpus.lines import LONGEST, NUL_FAULT, TOO_LONG, decode_fault, refuse_named_fields
from retriever.corpus.sources import Meter, UnopenedError, base_name, bytes_of
from retriever.errors import SourceError

_SUFFIXES = (".txt", ".md")
_LEAVES = "a link that leads out of the source, which is not followed"
_NOT_PLAIN = "not a plain file"


class Entry(NamedTuple):
    """A file or folder below a source.

    Attributes:
        path: relative POSIX path.
        fault: why it is no document, or None.
        passed_over: `fault` is no error; see `Record`.
    """

    path: str
    fault: str | None = None
    passed_over: bool = False


def files(folder: Path) -> Iterator[Entry]:
    """The documents below `folder`, sorted by relative path as a string, and what cannot be read.

    Hidden files and folders, and links to folders of the source (which may form a cycle), are
    skipped without a word. Only the names of one folder at a time are in memory.

    Raises:
        UnopenedError: `folder` itself cannot be listed.
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
    is_link, is_document = one.is_symlink(), base_name(one.name).endswith(_SUFFIXES)
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


def read(folder: Path, name: str, fields: Fields, meter: Meter) -> Iterator[Record]:
    """The documents below `folder`, sorted by relative path, which is their id.

    White space around a text is removed. If the first line of a .md file that is not blank is
    `# Heading`, the heading is the title and the rest is the text.

    Raises:
        SourceError: the folder cannot be listed, or the caller names an id or title field, which
            plain text cannot have.
    """
    refuse_named_fields(name, fields)
    for number, (path, fault, passed_over) in enumerate(files(folder), 1):
        where = f"{name.rstrip('/')}/{path}"
        if fault is not None:
            yield Record(number, where, {}, fault, passed_over)
            continue
        try:
            with bytes_of(folder / path, where, meter) as stream:
                content = stream.read(LONGEST + 1)
        except SourceError as error:
            yield Record(number, where, {}, str(error).removeprefix(f"{where}: "))
            continue
        if len(content) > LONGEST:
            yield Record(number, where, {}, TOO_LONG)
            continue
        try:
            path.encode()
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            yield Record(number, f"{where}:{line}", {}, decode_fault(error))
            continue
        except UnicodeEncodeError:
            shown = ascii(where)
            yield Record(number, shown, {}, "the file's name is not UTF-8; rename it")
            continue
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            yield Record(number, f"{where}:{line}", {}, NUL_FAULT)
            continue
        yield Record(number, where, _values(path, text, fields.text or "text"))


def _values(path: str, text: str, text_name: str) -> dict[str, str | None]:
    title = None
    if base_name(path).endswith(".md"):
        title, text = split_heading(text)
    return {"id": path, "title": title, text_name: text.strip()}


def split_heading(text: str) -> tuple[str | None, str]:
    """The heading of level one that Markdown begins with, or None, and the text below it.

    An ATX heading: https://spec.commonmark.org/0.31.2/#atx-headings
    """
    start = len(text) - len(text.lstrip())
    indent = text[text.rfind("\n", 0, start) + 1 : start]
    line, end, rest = text[start:].partition("\n")
    if indent not in ("", " ", "  ", "   ") or line[:1] != "#" or line[1:2] not in (" ", "\t"):
        return None, text
    title = line[1:].removesuffix("\r").strip(" \t")
    opened = title.rstrip("#")
    if opened != title and opened.endswith((" ", "\t")):
        title = opened.rstrip(" \t")
    if not title or title[0].isspace():
        return None, text
    return title, end + rest
