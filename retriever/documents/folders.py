"""Which files of a folder are read: ignore files, kinds and sizes; what is left out is counted."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from retriever.documents import Fields, Record
from retriever.documents.files import KINDS, LONGEST_FILE, SourceFile, kind_of, read_files
from retriever.documents.sources import LONGEST, Meter, UnopenedError
from retriever.documents.text import refuse_named_fields
from retriever.errors import ConfigError

# A later one decides before an earlier one.
IGNORE_FILES = (".gitignore", ".ignore", ".retrieverignore")
_LONGEST_RULES = 1 << 16
# A pattern with more of them could take hours to match a name that is made for it.
_WILDCARDS = 3
# What is below a folder; the library would take the folder itself too.
_ALL_BELOW = re.compile(r"/\*\*(?=/?\s*$)")
_KNOWN_SUFFIX = re.compile(r"\.[a-z0-9_+-]{1,12}")
_SHOWN = 12
_LEAVES = "a link that leads out of the source, which is not followed"
_NOT_PLAIN = "not a plain file"

# Whether a path below the folder is matched, a folder's with a slash at its end; None if no pattern
# says so.
_Match = Callable[[str], bool | None]


@dataclass(frozen=True, slots=True)
class FolderRules:
    """Which files are read, all without `include`; patterns are those of a .gitignore file."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            if not pattern.strip() or pattern.startswith("#") or _matcher([pattern]) is None:
                raise ConfigError(
                    f"--include and --exclude: expected a pattern as in .gitignore with at most "
                    f"{_WILDCARDS} wildcards in a name, found {pattern!r}"
                )


class Entry(NamedTuple):
    """A file or folder below a source: its relative path, and why it is no document."""

    path: str
    fault: str | None = None
    # As of `Record`.
    passed_over: bool = False
    # Of the file that is read; None for a link to nothing.
    status: os.stat_result | None = None


def files_below(folder: Path, rules: FolderRules, left_out: Counter[str]) -> Iterator[Entry]:
    """The files that are read, by relative path, and what cannot be; `left_out` counts the rest."""
    walk = _Walk(folder, rules, left_out)
    # No recursion, since folders may be deeper than Python's calls.
    levels = [walk.listed("", ())]
    while levels:
        found = next(levels[-1], None)
        if found is None:
            levels.pop()
        elif isinstance(found, Entry):
            yield found
        else:
            levels.append(walk.listed(*found))


# A folder below the source, and the ignore files that count in it: length of the path of the folder
# that has one, and what it matches.
_Ignores = tuple[tuple[int, _Match], ...]


class _Walk:
    def __init__(self, folder: Path, rules: FolderRules, left_out: Counter[str]) -> None:
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._left_out = left_out
        self._include = _matcher(rules.include, below=True) if rules.include else None
        self._exclude = _matcher(rules.exclude) if rules.exclude else None

    def listed(self, prefix: str, ignores: _Ignores) -> Iterator[Entry | tuple[str, _Ignores]]:
        """The entries of a folder by path, where a folder has a slash at its end."""
        try:
            with os.scandir(self._folder / prefix) as entries:
                found = {one.name: one for one in entries}
        except OSError as error:
            fault = f"the folder cannot be listed: {error.strerror}"
            if not prefix:
                raise UnopenedError(f"{self._folder}: {fault}") from error
            yield Entry(prefix.rstrip("/"), fault)
            return
        own = _ignored_by([found.pop(name) for name in IGNORE_FILES if name in found])
        if own is not None:
            ignores = (*ignores, (len(prefix), own))
        folders = {name for name, one in found.items() if one.is_dir(follow_symlinks=False)}
        for path in sorted(f"{prefix}{name}{'/' * (name in folders)}" for name in found):
            name = path[len(prefix) :].rstrip("/")
            reason = self._left_out_as(path, name, ignores)
            if reason is not None:
                self._left_out[reason] += 1
            elif path.endswith("/"):
                yield path, ignores
            elif (entry := self._entry(path, found[name])) is not None:
                yield entry

    def _left_out_as(self, path: str, name: str, ignores: _Ignores) -> str | None:
        if name.startswith("."):
            return "hidden"
        for length, match in reversed(ignores):
            if (decided := match(path[length:])) is not None:
                if decided:
                    return "ignored"
                break
        if self._exclude is not None and self._exclude(path):
            return "excluded"
        if self._include is not None and not path.endswith("/") and not self._include(path):
            return "excluded"
        return None

    def _entry(self, path: str, one: os.DirEntry[str]) -> Entry | None:
        is_link = one.is_symlink()
        to_folder = is_link and os.path.isdir(one.path)
        kind = kind_of(one.name)
        if kind is None and not to_folder:
            suffix = os.path.splitext(one.name)[1].lower()
            known = _KNOWN_SUFFIX.fullmatch(suffix)
            self._left_out[suffix if known else "of other names"] += 1
            return None
        if is_link and os.path.commonpath([self._root, os.path.realpath(one.path)]) != self._root:
            return Entry(path, _LEAVES, passed_over=True)
        if kind is None or to_folder:
            self._left_out["links to folders"] += 1
            return None
        try:
            status = one.stat()
        except OSError:
            # A dangling link, or a cycle of links, is an error of its own when it is opened.
            return Entry(path)
        if not stat.S_ISREG(status.st_mode):
            return Entry(path, _NOT_PLAIN, passed_over=True)
        # A mailbox may be of any size: each of its messages is a document.
        most = LONGEST if KINDS[kind].is_text else LONGEST_FILE
        if status.st_size > most and kind != "mbox":
            self._left_out[f"larger than {most >> 20} MiB"] += 1
            return None
        return Entry(path, status=status)


def _ignored_by(files: Sequence[os.DirEntry[str]]) -> _Match | None:
    """What the ignore files of one folder match, which are read as plain text and no further."""
    lines: list[str] = []
    for one in files:
        # A link may lead anywhere, and a pipe never ends.
        if one.is_file(follow_symlinks=False):
            try:
                with open(one.path, "rb") as file:
                    content = file.read(_LONGEST_RULES)
            except OSError:
                continue
            lines += os.fsdecode(content.removeprefix(b"\xef\xbb\xbf")).split("\n")
    return _matcher(lines) if lines else None


def _matcher(lines: Sequence[str], below: bool = False) -> _Match | None:
    """What patterns match, of which the last sound one decides, also `below` a matching folder."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    patterns = []
    for line in lines:
        names = line.split("/")
        if max(names.count("**"), *(name.count("*") for name in names)) > _WILDCARDS:
            continue
        try:
            pattern = GitIgnoreSpecPattern(_ALL_BELOW.sub("/**/*", line.removesuffix("\r")))
        except ValueError:
            # Git passes over what is no pattern.
            continue
        if pattern.regex is not None and pattern.include is not None:
            regex = pattern.regex
            if not below and "ps_d" in regex.groupindex:
                regex = re.compile(rf"(?:{regex.pattern})\Z")
            # Not `match`: what any folder matches is not anchored.
            patterns.append((regex.search, pattern.include))
    if not patterns:
        return None
    patterns.reverse()

    def match(path: str) -> bool | None:
        for matches, include in patterns:
            if matches(path):
                return include
        return None

    return match


def left_out_text(left_out: Mapping[str, int]) -> str:
    """The counts of what was left out, the largest first: ``20 .html, 12 .gz, 3 hidden``."""
    ranked = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{number:,} {what}" for what, number in islice(ranked, _SHOWN))
    more = sum(number for _, number in ranked[_SHOWN:])
    return f"{shown} and {more:,} of other kinds" if more else shown


def read_folder(
    folder: Path,
    name: str,
    fields: Fields,
    meter: Meter,
    encoding: str | None,
    rules: FolderRules,
    left_out: Counter[str],
    only: Container[str] | None,
    prefix: str,
) -> Generator[Record, None, None]:
    """The documents below a folder, `only` those of some paths; ids are paths after a prefix."""
    refuse_named_fields(name, fields)

    def files() -> Iterator[SourceFile | Record]:
        for number, entry in enumerate(files_below(folder, rules, left_out), 1):
            path = entry.path
            if only is not None and path not in only:
                continue
            where = f"{name.rstrip('/')}/{path}"
            if entry.fault is not None:
                yield Record(number, where, {}, entry.fault, entry.passed_over, file=path)
            else:
                yield SourceFile(folder / path, prefix + path, where, number, path)

    return read_files(files(), fields, meter, encoding)
