"""Rules for the files of a folder that are read, in patterns of .gitignore."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from retriever.documents.file_kinds import KINDS
from retriever.documents.ignore_patterns import IgnorePatterns
from retriever.documents.members import MemberRules, PathFilter, is_archive
from retriever.documents.sources import normalize_name
from retriever.errors import ConfigError

# Wildcards and sets of a pattern, and the last name of a path in it.
_WILDCARDS = re.compile(r"\[[^\]]*\]|[*?!]")
_LAST_NAME = re.compile(r"[^/]*$")


@dataclass(frozen=True, slots=True)
class FolderRules:
    """Rules for the files to read; patterns are those of a .gitignore file.

    Without `include`, all files of known kinds are read.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    # Kinds of files whose names do not show them, such as ``text=*.nfo``.
    as_kinds: tuple[str, ...] = ()
    # Whether members of archives are read.
    archives: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the rules in stored options, of which those of an earlier release lack some."""
        names = [field.name for field in fields(cls) if field.name in options]
        patterns = {name: tuple(options[name]) for name in names if name != "archives"}
        return cls(**patterns, archives=options.get("archives", False))

    def __post_init__(self) -> None:
        for rule in self.as_kinds:
            kind, separator, pattern = rule.partition("=")
            if kind not in KINDS or not separator or not IgnorePatterns([encode_name(pattern)]):
                raise ConfigError(
                    "--as: expected KIND=PATTERN, such as text=*.nfo, with one of the kinds "
                    f"{', '.join(KINDS)}, found {rule!r}"
                )
        for pattern in (*self.include, *self.exclude):
            if not IgnorePatterns([encode_name(pattern)]):
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

    def member_rules(self, left_out: Counter[str]) -> MemberRules:
        """Return the rules for the members of archives, which count in `left_out`."""
        return MemberRules(PathFilter(self.include, self.exclude), left_out)

    def named_kind(self, name: str) -> str:
        """Return the kind that a rule gives a file that is named alone; empty if none does."""
        encoded = encode_name(name)
        kind = ""
        for rule in self.as_kinds:
            rule_kind, _, pattern = rule.partition("=")
            patterns = IgnorePatterns([encode_name(pattern)])
            if patterns.verdict(patterns.start, encoded, False):
                kind = rule_kind
        return "archive" if not kind and self.archives and is_archive(name) else kind


def encode_name(name: str) -> bytes:
    """Return a name or pattern in NFC as bytes, since macOS decomposes names."""
    return os.fsencode(normalize_name(name))
