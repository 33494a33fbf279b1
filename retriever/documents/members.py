"""Members of archives, which are documents of their own: `archive.zip!path`.

Members are chosen as files of a folder are: hidden ones, possible secrets, other kinds and what
patterns exclude are left out. An archive within an archive is not read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple, cast

from retriever.documents.dates import file_time
from retriever.documents.file_heads import HEAD, head_exclusion, name_exclusion
from retriever.documents.file_kinds import KINDS, kind_of
from retriever.documents.ignore_patterns import IgnorePatterns
from retriever.documents.sources import LONGEST, normalize_name

_TAR = r"\.tar(?:\.(?:gz|bz2|xz))?|\.t(?:gz|bz2|xz)"
_ARCHIVE = re.compile(rf"(?i).*(?:\.zip|{_TAR})")
# Limits of an archive: bytes that its members unpack to, and their number.
MOST_BYTES = 1 << 30
MOST_MEMBERS = 100_000
# Maximum size in bytes of a member that is not text.
LONGEST_MEMBER = 1 << 28
# How compressed files begin, and what unpacks them.
_OPENERS: tuple[tuple[bytes, Callable[[IO[bytes]], IO[bytes]]], ...] = (
    (b"\x1f\x8b", lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file))),
    (b"BZh", lambda file: cast(IO[bytes], bz2.BZ2File(file))),
    (b"\xfd7zXZ\0", lambda file: cast(IO[bytes], lzma.LZMAFile(file))),  # noqa: SIM115
)
_FAULTS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,
    ValueError,
)


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        name: its path, with slashes.
        content: its bytes; empty if it cannot be read.
        modified: the time of its last change, as `file_time` has it, or None.
        kind: its kind by name or first bytes; None if a pattern names it alone.
        fault: why it, or the rest of the archive, cannot be read; empty if it can.
    """

    name: str
    content: bytes = b""
    modified: str | None = None
    kind: str | None = None
    fault: str = ""


class MemberRules(NamedTuple):
    """The rules for the members of archives, and the counts of those that are left out."""

    paths: PathFilter
    left_out: Counter[str]


@dataclass(frozen=True, slots=True)
class _Listed:
    """A member before it is read."""

    name: str
    size: int
    modified: str | None
    is_encrypted: bool
    source: zipfile.ZipInfo | tarfile.TarInfo


def is_archive(name: str) -> bool:
    """Return whether a name is that of a zip or tar file."""
    return _ARCHIVE.fullmatch(name) is not None


def read_members(path: Path, paths: PathFilter, left_out: Counter[str]) -> Iterator[Member]:
    """Yield the members to read, and those that cannot be read; `left_out` counts the others.

    Damage in the middle of an archive ends it with a fault.
    """
    try:
        with path.open("rb") as file:
            archive = _ZipMembers(file) if zipfile.is_zipfile(file) else _TarMembers(file)
            yield from _MemberReader(archive, paths, left_out).read_all()
    except _TooManyBytesError:
        yield Member("", fault=f"unpacks to more than {MOST_BYTES >> 30} GiB; the rest is left out")
    except _FAULTS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        yield Member("", fault=f"a damaged archive: {reason:.200}; unpack it, and read the folder")


class _TooManyBytesError(Exception):
    """The members of an archive unpack to more bytes than are read."""


class _MemberReader:
    """Reads the members of one archive, and counts those that are left out."""

    def __init__(
        self, archive: _ZipMembers | _TarMembers, paths: PathFilter, left_out: Counter[str]
    ) -> None:
        self._archive = archive
        self._paths = paths
        self._left_out = left_out
        self._names: set[str] = set()
        self._bytes_left = MOST_BYTES

    def read_all(self) -> Iterator[Member]:
        """Yield the members in the order of the archive."""
        for number, listed in enumerate(self._archive.list()):
            if number >= MOST_MEMBERS:
                yield Member("", fault=f"more than {MOST_MEMBERS:,} members; the rest is left out")
                return
            name = normalize_name(listed.name)
            reason = _exclusion_reason(name, listed, self._paths)
            if reason is not None:
                self._left_out[reason] += 1
                continue
            member = self._read_member(name, listed)
            if member is not None:
                yield member

    def _read_member(self, name: str, listed: _Listed) -> Member | None:
        """Return a member; None if its first bytes show no kind."""
        if name in self._names:
            return Member(name, fault="a second member with this name")
        self._names.add(name)
        if listed.is_encrypted:
            return Member(name, fault="encrypted; unpack it with its password")
        content = self._archive.read(listed, min(LONGEST_MEMBER, self._bytes_left) + 1)
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            raise _TooManyBytesError
        lower = name.lower()
        kind = kind_of(lower, content[:HEAD])
        reason = None
        if len(content) > LONGEST_MEMBER:
            reason = f"larger than {LONGEST_MEMBER >> 20} MiB"
        elif kind is None:
            reason = head_exclusion(lower, content[:HEAD]) or "of other names"
        elif kind == "mbox":
            reason = "mailboxes in archives"
        if reason is not None:
            self._left_out[reason] += 1
            return None
        return Member(name, content, listed.modified, kind)


class PathFilter:
    """The patterns of `exclude` and `include` for paths within archives."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        encode = os.fsencode
        self._include = IgnorePatterns(map(encode, include)) if include else None
        self._exclude = IgnorePatterns(map(encode, exclude)) if exclude else None

    def excludes(self, path: str) -> bool:
        """Return whether a path, from the archive's own folder on, is left out."""
        *folders, name = os.fsencode(path).split(b"/")
        if self._exclude is not None:
            position = self._exclude.start
            for folder in folders:
                if self._exclude.verdict(position, folder, True):
                    return True
                position = self._exclude.below(position, folder)
            if self._exclude.verdict(position, name, False):
                return True
        if self._include is None:
            return False
        position = self._include.start
        for folder in folders:
            position = self._include.below(position, folder)
        return not self._include.verdict(position, name, False, inherits=True)


def _exclusion_reason(name: str, member: _Listed, paths: PathFilter) -> str | None:
    """Return the reason for which a member is left out before it is read; None if it is read."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or (parts[0][1:2] == ":"):
        return "paths that lead out of the archive"
    if any(part.startswith(".") for part in parts):
        return "hidden"
    if paths.excludes(name):
        return "excluded"
    if is_archive(name):
        return "archives in archives"
    lower = name.lower()
    kind = kind_of(lower)
    group = name_exclusion(lower) if kind is None else None
    if group is not None:
        return group
    longest = LONGEST if kind is not None and KINDS[kind].is_text else LONGEST_MEMBER
    return f"larger than {longest >> 20} MiB" if member.size > longest else None


class _BoundedStream(io.RawIOBase):
    """A stream that ends with an error after the bytes that an archive may unpack to."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes_left = MOST_BYTES

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            raise _TooManyBytesError
        return content


class _ZipMembers:
    """The members of a zip file in the order of its directory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._archive = zipfile.ZipFile(file)

    def list(self) -> Iterator[_Listed]:
        """Yield the plain files."""
        for info in self._archive.infolist():
            is_link = stat.S_ISLNK(info.external_attr >> 16)
            if info.is_dir() or is_link:
                continue
            modified = None
            try:
                # A zip file has local times without their zone.
                moment = datetime(*info.date_time, tzinfo=UTC)
                modified = moment.replace(tzinfo=None).isoformat()
            except ValueError:
                pass
            yield _Listed(info.filename, info.file_size, modified, bool(info.flag_bits & 1), info)

    def read(self, member: _Listed, most: int) -> bytes:
        """Return the content of a member, at most `most` bytes."""
        assert isinstance(member.source, zipfile.ZipInfo)
        with self._archive.open(member.source) as stream:
            return stream.read(most)


class _TarMembers:
    """The members of a tar file, compressed or not, in their order."""

    def __init__(self, file: IO[bytes]) -> None:
        file.seek(0)
        magic = file.read(6)
        file.seek(0)
        opener = next((opener for start, opener in _OPENERS if magic.startswith(start)), None)
        if opener is None:
            self._archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115
        else:
            # Members that are left out are unpacked too, since they are in the way.
            stream = _BoundedStream(opener(file))
            self._archive = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115

    def list(self) -> Iterator[_Listed]:
        """Yield the plain files; links and devices are passed over."""
        for info in self._archive:
            if info.isreg():
                name = info.name.removeprefix("./")
                modified = file_time(int(info.mtime) * 10**9)
                yield _Listed(name, info.size, modified, False, info)

    def read(self, member: _Listed, most: int) -> bytes:
        """Return the content of a member, at most `most` bytes."""
        assert isinstance(member.source, tarfile.TarInfo)
        stream = self._archive.extractfile(member.source)
        return b"" if stream is None else stream.read(most)
