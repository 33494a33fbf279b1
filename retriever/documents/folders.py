"""Selection of the files of a folder by ignore files, kinds and sizes, with counts of the rest."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from retriever.documents.document import Fields, Record
from retriever.documents.file_heads import head_exclusion, head_of, kind_of_head, name_exclusion
from retriever.documents.file_kinds import KINDS, NAMED_KINDS, kind_of
from retriever.documents.files import LONGEST_FILE, SourceFile, read_files
from retriever.documents.folder_rules import FolderRules, encode_name
from retriever.documents.ignore_patterns import IgnorePatterns, Position, split_lines
from retriever.documents.members import is_archive
from retriever.documents.sources import LONGEST, Meter, UnopenedError, base_name, normalize_name
from retriever.documents.text import refuse_named_fields

# Names of ignore files; a later file takes precedence over an earlier one.
IGNORE_FILES = (".gitignore", ".ignore", ".retrieverignore")
# Maximum size of an ignore file in bytes; each name below its folder is compared with all of it.
_LONGEST_IGNORE_FILE = 1 << 16
# Groups that a message lists with their counts, and further ones by name.
_MOST_COUNTS = 12
_MOST_NAMES = 20
# Groups of entries left out that are kept apart by their rules.
_MOST_GROUPS = 1000
# Suffixes of text that is data, and is read only if a pattern names it.
TEXT_SUFFIXES = (".csv", ".ics", ".json", ".log", ".tsv", ".vcf", ".xml")
_LEAVES = "a link that leads out of the source, which is not followed"
_NOT_PLAIN = "not a plain file"
# Patterns, and their position in a folder.
_PositionedPatterns = tuple[IgnorePatterns, Position]


class Entry(NamedTuple):
    """A file or folder below a source: its relative path, and the reason if it is no document."""

    path: str
    fault: str | None = None
    # See `Record`.
    passed_over: bool = False
    # Status of the file; None for a link to nothing.
    status: os.stat_result | None = None
    # The kind that a rule gives it; empty if its name or content decide.
    kind: str = ""


class _IgnoreLine(NamedTuple):
    """A line of an ignore file."""

    # Relative path of the file, and number of the line from 1.
    path: str
    number: int
    text: bytes

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {os.fsdecode(self.text)}"


class LeftOut(NamedTuple):
    """A group of entries that one rule leaves out."""

    # As in the counts: a suffix, or a word such as "hidden".
    reason: str
    # The rule in words; empty if the reason says it.
    rule: str


class LeftOutEntries:
    """The entries that a walk leaves out, by group, each with the number and the first path."""

    def __init__(self) -> None:
        self.groups: dict[LeftOut, tuple[int, str]] = {}

    def add(self, group: LeftOut, path: str) -> None:
        """Count an entry; beyond many groups, those of one reason are counted together."""
        if group not in self.groups and len(self.groups) >= _MOST_GROUPS:
            group = group._replace(rule="")
        files, first = self.groups.get(group, (0, path))
        self.groups[group] = files + 1, first


def files_below(
    folder: Path,
    rules: FolderRules,
    left_out: Counter[str],
    entries: LeftOutEntries | None = None,
) -> Iterator[Entry]:
    """Yield the files to read, by relative path, and unreadable ones.

    `left_out` counts the others, and `entries` gets the rule of each.
    """
    walk = _Walk(folder, rules, left_out, entries)
    # A stack instead of recursion, since folders may be deeper than Python's call stack.
    kind_patterns = [rule.partition("=")[2] for rule in rules.as_kinds]
    patterns = _Patterns(
        (),
        *map(_compile_patterns, (rules.include, rules.exclude, rules.named, kind_patterns)),
    )
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
    compiled = IgnorePatterns(map(encode_name, patterns))
    return ((compiled, compiled.start),)


class _Patterns(NamedTuple):
    """All patterns that apply in a folder."""

    # Patterns of ignore files, from the source down to the folder.
    ignores: tuple[_PositionedPatterns, ...]
    include: tuple[_PositionedPatterns, ...]
    exclude: tuple[_PositionedPatterns, ...]
    # The patterns of `include` that name files or a suffix.
    named: tuple[_PositionedPatterns, ...]
    # The patterns of `as_kinds`.
    kinds: tuple[_PositionedPatterns, ...]

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

    def deciding_pattern(self, name: bytes, is_folder: bool) -> tuple[str, int, int]:
        """Return which patterns leave an entry out: their role, number and deciding line.

        The role is ``ignore``, ``exclude`` or ``include``; for ``include`` no pattern matches.
        """
        for number, (patterns, position) in reversed(list(enumerate(self.ignores))):
            line = patterns.deciding_line(position, name, is_folder)
            if line is not None:
                if patterns.verdict(position, name, is_folder):
                    return "ignore", number, line
                break
        for patterns, position in self.exclude:
            line = patterns.deciding_line(position, name, is_folder)
            if line is not None and patterns.verdict(position, name, is_folder):
                return "exclude", 0, line
        return "include", 0, 0

    def kind_number(self, name: bytes) -> int | None:
        """Return the number of the rule of `as_kinds` that gives a file its kind, or None."""
        for patterns, position in self.kinds:
            line = patterns.deciding_line(position, name, False, inherits=True)
            if line is not None:
                return line
        return None

    def has_named(self, name: bytes) -> bool:
        """Return whether a pattern names a file, and not only a folder above it."""
        return any(patterns.verdict(position, name, False) for patterns, position in self.named)


class _Walk:
    def __init__(
        self,
        folder: Path,
        rules: FolderRules,
        left_out: Counter[str],
        entries: LeftOutEntries | None,
    ) -> None:
        self._folder = folder
        self._rules = rules
        self._root = os.path.realpath(folder)
        self._left_out = left_out
        self._entries = entries

    def _leave_out(self, reason: str, path: str, rule: str = "") -> None:
        """Count an entry that is left out."""
        self._left_out[reason] += 1
        if self._entries is not None:
            self._entries.add(LeftOut(reason, rule), path)

    def list_entries(
        self, prefix: str, patterns: _Patterns, ignore_files: tuple[list[_IgnoreLine], ...] = ()
    ) -> Iterator[Entry | tuple[str, _Patterns, tuple[list[_IgnoreLine], ...]]]:
        """Yield the entries of a folder by path.

        A subfolder is yielded as its path, with a slash at the end, its patterns, and the lines of
        the ignore files among them.
        """
        try:
            with os.scandir(self._folder / prefix) as entries:
                children = {child.name: child for child in entries}
            ignore_lines = list(self._ignore_lines(children, prefix))
            lines = [line.text for line in ignore_lines]
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
            ignore_files = (*ignore_files, ignore_lines)
        folders = {name for name, child in children.items() if child.is_dir(follow_symlinks=False)}
        for path in sorted(f"{prefix}{name}{'/' * (name in folders)}" for name in children):
            name = path[len(prefix) :].rstrip("/")
            if name.startswith("."):
                self._leave_out("hidden", path)
                continue
            encoded = encode_name(name)
            # Patterns of --include are those of the members.
            is_folder = name in folders or self._is_archive(name)
            reason = patterns.exclusion_reason(encoded, is_folder)
            if reason is not None:
                decision = patterns.deciding_pattern(encoded, name in folders)
                self._leave_out(reason, path, self._describe_pattern(decision, ignore_files))
            elif name in folders:
                yield path, patterns.below(encoded), ignore_files
            else:
                kind = self._ruled_kind(encoded, patterns)
                is_named = patterns.has_named(encoded)
                entry = self._entry(path, children[name], kind, is_named=is_named)
                yield from [] if entry is None else [entry]

    def _ruled_kind(self, name: bytes, patterns: _Patterns) -> str:
        """Return the kind that a rule gives a file; empty if none does."""
        number = patterns.kind_number(name)
        if number is not None:
            return self._rules.as_kinds[number].partition("=")[0]
        return "archive" if self._is_archive(os.fsdecode(name)) else ""

    def _is_archive(self, name: str) -> bool:
        return self._rules.archives and is_archive(name)

    def _describe_pattern(
        self, decision: tuple[str, int, int], ignore_files: tuple[list[_IgnoreLine], ...]
    ) -> str:
        """Describe the pattern that leaves an entry out, if descriptions are asked for."""
        role, number, line = decision
        if self._entries is None:
            return ""
        if role == "ignore":
            return str(ignore_files[number][line])
        if role == "exclude":
            return f"--exclude {self._rules.exclude[line]!r}"
        return "no pattern of --include"

    def _ignore_lines(
        self, entries: dict[str, os.DirEntry[str]], prefix: str
    ) -> Iterator[_IgnoreLine]:
        """Take the ignore files out of the entries of a folder, and yield their lines."""
        for name in IGNORE_FILES:
            if name not in entries:
                continue
            entry = entries.pop(name)
            # As in Git, which follows no link to an ignore file; a pipe would block.
            if not entry.is_file(follow_symlinks=False):
                self._leave_out("ignore files that are not plain", f"{prefix}{name}")
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
            for number, line in enumerate(split_lines(content), 1):
                yield _IgnoreLine(f"{prefix}{name}", number, encode_name(os.fsdecode(line)))

    def _entry(
        self, path: str, file: os.DirEntry[str], ruled_kind: str, *, is_named: bool
    ) -> Entry | None:
        is_link = file.is_symlink()
        to_folder = is_link and os.path.isdir(file.path)
        kind = ruled_kind or kind_of(file.path)
        if kind is None and is_named:
            suffix = os.path.splitext(base_name(file.path))[1]
            ruled_kind = NAMED_KINDS.get(suffix, "")
            kind = ruled_kind or "text"
        if kind is None and not to_folder:
            return self._entry_by_head(path, file)
        if is_link and self._leads_out(file):
            return Entry(path, _LEAVES, passed_over=True)
        if kind is None or to_folder:
            self._leave_out("links to folders", path)
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
        entry = self._entry_by_size(path, kind, status)
        return None if entry is None else entry._replace(kind=ruled_kind)

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
        self._leave_out(group or "of other names", path)
        return None

    def _leads_out(self, file: os.DirEntry[str]) -> bool:
        return os.path.commonpath([self._root, os.path.realpath(file.path)]) != self._root

    def _entry_by_size(self, path: str, kind: str, status: os.stat_result) -> Entry | None:
        # A mailbox or an archive may have any size, since it holds many documents.
        most = LONGEST if KINDS[kind].is_text else LONGEST_FILE
        if status.st_size > most and kind not in ("mbox", "archive"):
            self._leave_out(f"larger than {most >> 20} MiB", path)
            return None
        return Entry(path, status=status)


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


def archive_advice(left_out: Mapping[str, int]) -> str:
    """Return advice on archives that are left out, after a semicolon; empty if there are none."""
    suffix = next((name for name in left_out if is_archive(f"name{name}")), None)
    return "" if suffix is None else f"; --archives reads the files in {suffix}"


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
                yield SourceFile(
                    folder / path,
                    normalize_name(prefix + path),
                    where,
                    number,
                    path,
                    kind=entry.kind,
                )

    return read_files(files(), fields, meter, encoding, rules.member_rules(left_out))
