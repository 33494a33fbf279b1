"""Selection of the files of a folder by ignore files, kinds and sizes, with counts of the rest."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from retriever.documents.document import Fields, Record
from retriever.documents.file_heads import head_exclusion, head_of, kind_of_head, name_exclusion
from retriever.documents.file_kinds import KINDS, kind_of
from retriever.documents.files import LONGEST_FILE, SourceFile, read_files
from retriever.documents.ignore_patterns import IgnorePatterns, Position, split_lines
from retriever.documents.sources import LONGEST, Meter, UnopenedError, base_name, normalize_name
from retriever.documents.text import refuse_named_fields
from retriever.errors import ConfigError

# Names of ignore files; a later file takes precedence over an earlier one.
IGNORE_FILES = (".gitignore", ".ignore", ".retrieverignore")
# Maximum size of an ignore file in bytes; each name below its folder is compared with all of it.
_LONGEST_IGNORE_FILE = 1 << 16
# Groups that a message lists with their counts, and further ones by name.
_MOST_COUNTS = 12
_MOST_NAMES = 20
# Wildcards and sets of a pattern, and the last name of a path in it.
_WILDCARDS = re.compile(r"\[[^\]]*\]|[*?!]")
_LAST_NAME = re.compile(r"[^/]*$")
# Suffixes of text that is data, and is read only if a pattern names it.
TEXT_SUFFIXES = (".csv", ".ics", ".json", ".log", ".tsv", ".vcf", ".xml")
_LEAVES = "a link that leads out of the source, which is not followed"
_NOT_PLAIN = "not a plain file"
# Patterns, and their position in a folder.
_PositionedPatterns = tuple[IgnorePatterns, Position]


@dataclass(frozen=True, slots=True)
class FolderRules:
    """Rules for the files to read; patterns are those of a .gitignore file.

    Without `include`, all files of known kinds are read.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            if not IgnorePatterns([_encode_name(pattern)]):
                raise ConfigError(
                    "--include and --exclude: expected a pattern as in .gitignore that can match "
                    f"a name, found {pattern!r}"
                )

    @property
    def named(self) -> tuple[str, ...]:
        """The patterns of `include` that name files or a suffix, which are read as text."""
        names = ((pattern, _LAST_NAME.search(pattern.rstrip())) for pattern in self.include)
        return tuple(
            pattern
            for pattern, name in names
            if name is not None and re.search(r"\w", _WILDCARDS.sub("", name[0]))
        )


class Entry(NamedTuple):
    """A file or folder below a source: its relative path, and the reason if it is no document."""

    path: str
    fault: str | None = None
    # See `Record`.
    passed_over: bool = False
    # Status of the file; None for a link to nothing.
    status: os.stat_result | None = None


def files_below(folder: Path, rules: FolderRules, left_out: Counter[str]) -> Iterator[Entry]:
    """Yield the files to read, by relative path, and unreadable ones.

    `left_out` counts the others.
    """
    walk = _Walk(folder, left_out)
    # A stack instead of recursion, since folders may be deeper than Python's call stack.
    patterns = _Patterns((), *map(_compile_patterns, (rules.include, rules.exclude, rules.named)))
    levels = [walk.list_entries("", patterns)]
    while levels:
        child = next(levels[-1], None)
        if child is None:
            levels.pop()
        elif isinstance(child, Entry):
            yield child
        else:
            levels.append(walk.list_entries(*child))


def _compile_patterns(patterns: Sequence[str]) -> tuple[_PositionedPatterns, ...]:
    if not patterns:
        return ()
    compiled = IgnorePatterns(map(_encode_name, patterns))
    return ((compiled, compiled.start),)


class _Patterns(NamedTuple):
    """All patterns that apply in a folder."""

    # Patterns of ignore files, from the source down to the folder.
    ignores: tuple[_PositionedPatterns, ...]
    include: tuple[_PositionedPatterns, ...]
    exclude: tuple[_PositionedPatterns, ...]
    # The patterns of `include` that name files or a suffix.
    named: tuple[_PositionedPatterns, ...]

    def below(self, name: bytes) -> _Patterns:
        """Return the patterns in a subfolder."""
        return _Patterns(
            *(
                tuple(
                    (patterns, patterns.below(position, name)) for patterns, position in positioned
                )
                for positioned in self
            )
        )

    def exclusion_reason(self, name: bytes, is_folder: bool) -> str | None:
        """Return the reason for which an entry is left out; None if it is read."""
        for patterns, position in reversed(self.ignores):
            is_match = patterns.verdict(position, name, is_folder)
            if is_match:
                return "ignored"
            if is_match is not None:
                break
        for patterns, position in self.exclude:
            if patterns.verdict(position, name, is_folder):
                return "excluded"
        for patterns, position in self.include:
            if not (is_folder or patterns.verdict(position, name, is_folder, inherits=True)):
                return "excluded"
        return None

    def has_named(self, name: bytes) -> bool:
        """Return whether a pattern names a file, and not only a folder above it."""
        return any(patterns.verdict(position, name, False) for patterns, position in self.named)


class _Walk:
    def __init__(self, folder: Path, left_out: Counter[str]) -> None:
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._left_out = left_out

    def list_entries(
        self, prefix: str, patterns: _Patterns
    ) -> Iterator[Entry | tuple[str, _Patterns]]:
        """Yield the entries of a folder by path.

        A subfolder is yielded as its path, with a slash at the end, and its patterns.
        """
        try:
            with os.scandir(self._folder / prefix) as entries:
                children = {child.name: child for child in entries}
            lines = list(self._ignore_lines(children))
        except (OSError, UnopenedError) as error:
            fault = str(error)
            if isinstance(error, OSError):
                fault = f"the folder cannot be listed: {error.strerror}"
            if not prefix:
                raise UnopenedError(f"{self._folder}: {fault}") from error
            yield Entry(prefix.rstrip("/"), fault)
            return
        if lines and (own := IgnorePatterns(lines)):
            patterns = patterns._replace(ignores=(*patterns.ignores, (own, own.start)))
        folders = {name for name, child in children.items() if child.is_dir(follow_symlinks=False)}
        for path in sorted(f"{prefix}{name}{'/' * (name in folders)}" for name in children):
            name = path[len(prefix) :].rstrip("/")
            if name.startswith("."):
                self._left_out["hidden"] += 1
                continue
            encoded = _encode_name(name)
            reason = patterns.exclusion_reason(encoded, name in folders)
            if reason is not None:
                self._left_out[reason] += 1
            elif name in folders:
                yield path, patterns.below(encoded)
            else:
                is_named = patterns.has_named(encoded)
                entry = self._entry(path, children[name], is_named=is_named)
                if entry is not None:
                    yield entry

    def _ignore_lines(self, entries: dict[str, os.DirEntry[str]]) -> Iterator[bytes]:
        """Take the ignore files out of some entries, and yield their lines."""
        for name in IGNORE_FILES:
            if name not in entries:
                continue
            entry = entries.pop(name)
            # As in Git, which follows no link to an ignore file; a pipe would block.
            if not entry.is_file(follow_symlinks=False):
                self._left_out["ignore files that are not plain"] += 1
                continue
            # Without the ignore file, files that it excludes would be read.
            fault = f"the folder is passed over, since its {name}"
            try:
                with open(entry.path, "rb") as file:
                    content = file.read(_LONGEST_IGNORE_FILE + 1)
            except OSError as error:
                raise UnopenedError(f"{fault} cannot be read: {error.strerror}") from error
            if len(content) > _LONGEST_IGNORE_FILE:
                limit = _LONGEST_IGNORE_FILE >> 10
                raise UnopenedError(f"{fault} is larger than {limit} KiB; shorten it")
            yield from (_encode_name(os.fsdecode(line)) for line in split_lines(content))

    def _entry(self, path: str, file: os.DirEntry[str], *, is_named: bool) -> Entry | None:
        is_link = file.is_symlink()
        to_folder = is_link and os.path.isdir(file.path)
        kind = kind_of(file.path) or ("text" if is_named else None)
        if kind is None and not to_folder:
            return self._entry_by_head(path, file)
        if is_link and self._leads_out(file):
            return Entry(path, _LEAVES, passed_over=True)
        if kind is None or to_folder:
            self._left_out["links to folders"] += 1
            return None
        try:
            status = file.stat()
        except PermissionError as error:
            # The folder can be listed and not entered.
            return Entry(path, f"cannot be read: {error.strerror}")
        except OSError:
            # A dangling link, or a cycle of links, is an error of its own when it is opened.
            return Entry(path)
        if not stat.S_ISREG(status.st_mode):
            return Entry(path, _NOT_PLAIN, passed_over=True)
        return self._entry_by_size(path, kind, status)

    def _entry_by_head(self, path: str, file: os.DirEntry[str]) -> Entry | None:
        """Return the entry of a file whose name shows no kind, if its first bytes show one."""
        name = base_name(file.path)
        group = name_exclusion(name)
        if group is None:
            try:
                status = file.stat()
                if file.is_symlink() and self._leads_out(file):
                    group = "links out of the folder"
                elif not stat.S_ISREG(status.st_mode):
                    group = "not plain files"
                else:
                    head = head_of(file.path)
                    kind = kind_of_head(name, head)
                    if kind is not None:
                        return self._entry_by_size(path, kind, status)
                    group = head_exclusion(name, head)
            except OSError:
                group = "unreadable without a suffix"
        if file.name.lower().endswith(".gz") and group != "possible secrets":
            group = ".gz"
        self._left_out[group or "of other names"] += 1
        return None

    def _leads_out(self, file: os.DirEntry[str]) -> bool:
        return os.path.commonpath([self._root, os.path.realpath(file.path)]) != self._root

    def _entry_by_size(self, path: str, kind: str, status: os.stat_result) -> Entry | None:
        # A mailbox may have any size, since each message is a document.
        most = LONGEST if KINDS[kind].is_text else LONGEST_FILE
        if status.st_size > most and kind != "mbox":
            self._left_out[f"larger than {most >> 20} MiB"] += 1
            return None
        return Entry(path, status=status)


def _encode_name(name: str) -> bytes:
    """Return a name or pattern in NFC as bytes, since macOS decomposes names."""
    return os.fsencode(normalize_name(name))


def left_out_text(left_out: Mapping[str, int]) -> str:
    """Return the counts of files left out, the largest first: ``20 .html, 12 .gz, 3 hidden``."""
    ranked = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    largest = ", ".join(f"{number:,} {group}" for group, number in islice(ranked, _MOST_COUNTS))
    rest = ranked[_MOST_COUNTS:]
    if not rest:
        return largest
    names = ", ".join(group for group, _ in islice(rest, _MOST_NAMES))
    more = " and others" if len(rest) > _MOST_NAMES else ""
    return f"{largest} and {sum(number for _, number in rest):,} of {names}{more}"


def include_advice(left_out: Mapping[str, int], suffixes: Container[str] | None = None) -> str:
    """Return advice on files left out for their suffix, after a semicolon; empty if there are none.

    With `suffixes`, only these suffixes count.
    """
    names = [name for name in left_out if name.startswith(".")]
    if suffixes is not None:
        names = [name for name in names if name in suffixes]
    if not names:
        return ""
    # Text is recommended before files that may be binary.
    suffix = max(names, key=lambda name: (name in TEXT_SUFFIXES, left_out[name], name))
    return f"; --include '*{suffix}' reads only these, as text; add --include '*' to read all kinds"


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
    """Yield the documents below a folder; their ids are `prefix` and the path.

    `only` limits them to some relative paths.
    """
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
                yield SourceFile(folder / path, normalize_name(prefix + path), where, number, path)

    return read_files(files(), fields, meter, encoding)
