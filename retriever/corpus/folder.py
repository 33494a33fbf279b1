"""A folder of .txt and .md files: one document per file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from retriever.corpus.documents import Json, Record
from retriever.corpus.fields import Fields
from retriever.corpus.lines import NUL_FAULT, decode_fault, refuse_named_fields
from retriever.corpus.sources import Meter, base_name, bytes_of
from retriever.errors import SourceError

_SUFFIXES = (".txt", ".md")
# An ATX heading of level one: https://spec.commonmark.org/0.31.2/#atx-headings
_HEADING = re.compile(r"\s*?^ {0,3}#[ \t]+(\S.*?)(?:[ \t]+#+)?[ \t]*\r?$", re.MULTILINE)


def files(folder: Path) -> Iterator[str]:
    """Relative POSIX paths of the documents below `folder`, sorted as strings.

    Hidden files and folders, and links to folders (which may form a cycle), are skipped. Only the
    names of one folder at a time are in memory.

    Raises:
        SourceError: a folder cannot be listed.
    """
    try:
        with os.scandir(folder) as found:
            # With its slash, a folder sorts among the files as the paths below it do.
            names = sorted(
                entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in found
                if not entry.name.startswith(".") and not (entry.is_symlink() and entry.is_dir())
            )
    except OSError as error:
        raise SourceError(f"{folder}: the folder cannot be listed: {error.strerror}") from error
    for name in names:
        if name.endswith("/"):
            yield from (name + below for below in files(folder / name))
        elif base_name(name).endswith(_SUFFIXES):
            yield name


def read(folder: Path, name: str, fields: Fields, meter: Meter) -> Iterator[Record]:
    """The documents below `folder`, sorted by relative path, which is their id.

    White space around a text is removed. If the first line of a .md file that is not blank is
    `# Heading`, the heading is the title and the rest is the text.

    Raises:
        SourceError: a file or folder cannot be read, or the caller names an id or title field,
            which plain text cannot have.
    """
    refuse_named_fields(name, fields)
    for number, path in enumerate(files(folder), 1):
        where = f"{name.rstrip('/')}/{path}"
        with bytes_of(folder / path, where, meter) as stream:
            content = stream.read()
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


def _values(path: str, text: str, text_name: str) -> dict[str, Json]:
    title = None
    if base_name(path).endswith(".md") and (heading := _HEADING.match(text)):
        title, text = heading[1], text[heading.end() :]
    return {"id": path, "title": title, text_name: text.strip()}
