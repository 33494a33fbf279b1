"""A source, its files as they are now, and how they differ from what an index remembers."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from retriever.documents.dates import file_time
from retriever.documents.file_kinds import KINDS, kind_of
from retriever.documents.folder_rules import FolderRules
from retriever.documents.folders import files_below
from retriever.documents.ocr import VARIABLE as OCR_VARIABLE
from retriever.documents.sources import UnopenedError
from retriever.documents.tables import split_table

# A file that changed so shortly ago can change again within the same tick of its clock.
_RECENT_NS = 2 * 10**9

# Beginning of a stamp of a file that may have changed, and end of those of files whose documents
# have the time of the file.
_UNSETTLED = "? "
_WITH_TIME = " t"

# Stamp and hash of a file.
FileState = tuple[str, bytes | None]


class Source(NamedTuple):
    """A source that an index remembers."""

    number: int
    path: str  # absolute; of a database with its table
    # `reader`: of `CorpusReader.again`; `on_long`; `is_folder`; `lacks`: modules without which
    # files were passed over.
    options: dict[str, Any]


@dataclass(slots=True)
class SourceChanges:
    """How a source differs from what is remembered of it."""

    source: Source
    read: set[str] = field(default_factory=set)  # files that are to be read
    # Of these, files that are as they were, but read by a reader of an earlier release.
    outdated: set[str] = field(default_factory=set)
    # Files with another time and the same content: the earlier time and the new one, as in the
    # metadata of their documents.
    touched: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    # New stamps and hashes of these, and of files whose content is as it was.
    seen: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    missing: str | None = None  # why the source as a whole is not there
    removed: list[str] = field(default_factory=list)  # all files, if the source is missing
    # Places that cannot be read at the moment and keep their documents, with the reason.
    unreadable: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class SourceListing:
    """The files of a source."""

    # Place and status of each file, by its path below the source.
    files: dict[str, tuple[str, os.stat_result]] = field(default_factory=dict)
    missing: str | None = None  # why the source as a whole is not there
    unlisted: list[str] = field(default_factory=list)  # folders that cannot be read, with a slash
    unreadable: list[str] = field(default_factory=list)  # places with the reason
    left_out: Counter[str] = field(default_factory=Counter)  # files by the reason


def list_files(source: Source) -> SourceListing:
    """List the files of a source."""
    listing = SourceListing()
    place = split_table(source.path)[0]
    if not place.exists():
        listing.missing = "does not exist"
    elif place.is_dir() != source.options["is_folder"]:
        listing.missing = "is now a folder" if place.is_dir() else "is no folder any more"
    elif not place.is_dir():
        listing.files[""] = str(place), place.stat()
    else:
        options = source.options["reader"]
        rules = FolderRules.from_options(options)
        try:
            for entry in files_below(place, rules, listing.left_out):
                if entry.fault is not None and not entry.passed_over:
                    listing.unlisted.append(f"{entry.path}/")
                    listing.unreadable.append(f"{place}/{entry.path}: {entry.fault}")
                elif entry.status is not None:
                    listing.files[entry.path] = f"{place}/{entry.path}", entry.status
        except UnopenedError as error:
            # The source itself cannot be listed.
            listing.unlisted.append("")
            listing.unreadable.append(str(error))
    return listing


def passed_over(source: Source) -> Counter[str]:
    """Count the files of a source, by kind, that packages which are not installed would read."""
    modules = set(lacking())
    places = [place for place, _ in list_files(source).files.values()]
    kinds = [KINDS[kind] for place in places if (kind := kind_of(place)) is not None]
    return Counter(kind.label for kind in kinds if modules.intersection(kind.needs))


@cache
def lacking() -> list[str]:
    """Return the modules that some kinds of files need and that are not installed.

    Without a command for scans, its variable is among them.
    """
    required = {module for kind in KINDS.values() for module in kind.needs}
    missing = [module for module in required if find_spec(module) is None]
    return sorted([*missing, *([] if os.environ.get(OCR_VARIABLE) else [OCR_VARIABLE])])


def hidden_path(path: str) -> bytes:
    """Return the stand-in for the path of an erased file; it begins with NUL, as no path does."""
    return b"\0" + hashlib.blake2b(os.fsencode(path), digest_size=16).digest()


def has_log(place: str, path: str) -> bool:
    """Whether a source is a database with a log, which holds its last commits."""
    return not path and os.path.exists(f"{place}-wal")


def file_stamp(place: str, path: str, status: os.stat_result, now: int) -> str:
    """Return size and times of a file; unsettled while it may change without another time."""
    unsettled = _UNSETTLED if now - status.st_ctime_ns < _RECENT_NS or has_log(place, path) else ""
    # The time of the last change of any kind (ctime) cannot be set, unlike that of the content.
    return f"{unsettled}{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}{_WITH_TIME}"


def is_settled(stamp: str) -> bool:
    """Return whether a file with an equal stamp has not changed."""
    return stamp != "" and not stamp.startswith(_UNSETTLED)


def stamped_time(stamp: str) -> str | None:
    """Return the `modified` that documents got from a file; None if an earlier release read it."""
    parts = stamp.removeprefix(_UNSETTLED).split()
    return file_time(int(parts[1])) if stamp.endswith(_WITH_TIME) else None


def file_digest(place: str) -> bytes:
    """Return 16 bytes that identify the content of a file."""
    with open(place, "rb", buffering=0) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
