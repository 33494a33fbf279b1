"""Which files of sources would be read, and which are left out by which rule; nothing is read.

Files whose names show no kind are opened for their first bytes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retriever.documents.file_kinds import KINDS, conversion_advice, is_document, kind_of_file
from retriever.documents.folder_rules import FolderRules
from retriever.documents.folders import (
    TEXT_SUFFIXES,
    LeftOut,
    LeftOutEntries,
    files_below,
)
from retriever.documents.members import is_archive
from retriever.documents.sources import path_on_disk
from retriever.documents.tables import split_table
from retriever.errors import SourceError

# Unreadable places that are listed.
_MOST_UNREADABLE = 100
# The label of files whose records or lines are documents.
_RECORDS = "records, a document each"


@dataclass(slots=True)
class ReadingPlan:
    """The files of some sources that would be read, and those left out.

    Attributes:
        files, bytes: number and size of the files to read, by the label of their kind.
        missing: number of files, by the label of their kind, that need packages which are not
            installed.
        left_out: number and first path of the entries that a rule leaves out, by rule.
        unreadable: the first 100 places that cannot be read, with the reason.
    """

    files: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    left_out: dict[LeftOut, tuple[int, str]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "read": [
                {"kind": kind, "files": files, "bytes": self.bytes[kind]}
                for kind, files in self.files.most_common()
            ],
            "missing": dict(self.missing),
            "left_out": [
                {"reason": group.reason, "files": files, "rule": group.rule, "first": first}
                for group, (files, first) in self.largest_groups()
            ],
            "unreadable": self.unreadable,
        }

    def largest_groups(self) -> list[tuple[LeftOut, tuple[int, str]]]:
        """Return what is left out, the largest group first."""
        return sorted(self.left_out.items(), key=lambda item: (-item[1][0], item[0]))


def plan_reading(sources: Sequence[str | Path], rules: FolderRules) -> ReadingPlan:
    """List the files of folders, and say how each source that is a file would be read.

    Raises:
        SourceError: a source does not exist.
    """
    plan = ReadingPlan()
    for source in map(path_on_disk, sources):
        if os.path.isdir(source):
            _plan_folder(plan, Path(source), rules)
        elif str(source) != "-":
            _plan_file(plan, source, rules)
    return plan


def _plan_folder(plan: ReadingPlan, folder: Path, rules: FolderRules) -> None:
    entries = LeftOutEntries()
    for entry in files_below(folder, rules, Counter(), entries):
        path = folder / entry.path
        if entry.fault is not None:
            _add_unreadable(plan, f"{path}: {entry.fault}")
        else:
            _add_file(plan, path, entry.kind or kind_of_file(path) or "text")
    for group, (files, first) in entries.groups.items():
        rule = group.rule or _describe_reason(group.reason, first)
        plan.left_out[group._replace(rule=rule)] = files, str(folder / first)


def _plan_file(plan: ReadingPlan, source: str | Path, rules: FolderRules) -> None:
    path, table = split_table(source)
    if not path.exists():
        raise SourceError(f"{path}: no such file or folder")
    kind = rules.named_kind(path.name)
    if table is None and (kind or is_document(path)):
        _add_file(plan, path, kind or kind_of_file(path) or "text")
        return
    plan.files[_RECORDS] += 1
    plan.bytes[_RECORDS] += path.stat().st_size


def _add_file(plan: ReadingPlan, path: Path, kind: str) -> None:
    """Count a file to read, or one that packages which are not installed would read."""
    label = KINDS[kind].label
    if any(find_spec(module) is None for module in KINDS[kind].needs):
        plan.missing[label] += 1
        return
    try:
        size = path.stat().st_size
    except OSError as error:
        _add_unreadable(plan, f"{path}: {error.strerror}")
        return
    plan.files[label] += 1
    plan.bytes[label] += size


def _add_unreadable(plan: ReadingPlan, line: str) -> None:
    if len(plan.unreadable) < _MOST_UNREADABLE:
        plan.unreadable.append(line)


def _describe_reason(reason: str, path: str) -> str:
    """Describe the rule behind a reason, with a remedy where there is one."""
    if reason == "hidden":
        return "its name begins with a dot"
    if reason == "possible secrets":
        return "its name or first bytes are those of keys or passwords"
    if is_archive(f"name{reason}"):
        return "--archives reads its files"
    if reason in TEXT_SUFFIXES:
        return f"data; --include '*{reason}' reads it as text"
    if reason.startswith("."):
        advice = conversion_advice(Path(path))
        return advice if "save it" in advice or "export it" in advice else "of no kind that is read"
    return ""
