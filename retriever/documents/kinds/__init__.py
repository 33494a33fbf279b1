"""Kinds of files: each reader takes a file's text or bytes and returns its title, text and outline.

A reader raises SourceError, without the file's name, for a file that it cannot read. Content is
never executed: no macros, scripts or external entities; links are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from retriever.documents.document import Json
from retriever.documents.losses import Loss
from retriever.documents.outline import Mark, MarkKind, Outline
from retriever.errors import SourceError


class PassedOverError(SourceError):
    """A file that is sound but gives no text, or needs a library that is not installed."""


class Attachment(NamedTuple):
    """A file that is attached to a mail."""

    name: str
    content: bytes


class Parsed(NamedTuple):
    """The content of a file as one document.

    Attributes:
        encoding: the detected encoding, if the file names none and it is not UTF-8.
        attachments: files that may be documents of their own, with different names.
    """

    text: str
    title: str | None = None
    metadata: Mapping[str, Json] = {}
    outline: Outline = ()
    losses: tuple[Loss, ...] = ()
    encoding: str | None = None
    attachments: tuple[Attachment, ...] = ()


class OutlinedText:
    """A text that grows by blocks, with marks that wait for the next block."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._marks: list[Mark] = []
        self._waiting: list[tuple[MarkKind, str, int]] = []

    def __len__(self) -> int:
        return self._length

    @property
    def text(self) -> str:
        """The text of all blocks."""
        return "".join(self._parts)

    def mark(self, kind: MarkKind, label: str, level: int = 0) -> None:
        """Add a mark at the beginning of the next block; it is dropped if no block follows."""
        self._waiting.append((kind, label, level))

    def add(self, block: str, before: str = "\n\n", marks: Iterable[Mark] = ()) -> None:
        """Add a block with marks of its own, after `before`, unless it is empty."""
        if not block:
            return
        if self._parts:
            self._parts.append(before)
            self._length += len(before)
        self._marks += [Mark(self._length, *mark) for mark in self._waiting]
        self._marks += [mark._replace(offset=mark.offset + self._length) for mark in marks]
        self._waiting.clear()
        self._parts.append(block)
        self._length += len(block)

    def parsed(
        self,
        title: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        fallback_title: str = "",
    ) -> Parsed:
        """Return the document.

        A heading over the whole text becomes its title, else `fallback_title` does.
        """
        text = self.text
        outline = tuple(self._marks)
        top_headings = [mark for mark in outline if mark.kind == "heading" and mark.level == 1]
        if (
            len(top_headings) == 1
            and top_headings[0].offset == 0
            and title in (None, top_headings[0].label)
            and text.startswith(top_headings[0].label)
        ):
            title = top_headings[0].label
            cut = len(text) - len(text[len(title) :].lstrip("\n"))
            outline = tuple(
                mark._replace(offset=max(0, mark.offset - cut))
                for mark in outline
                if mark != top_headings[0]
            )
            text = text[cut:]
        return Parsed(text, title or one_line(fallback_title) or None, metadata or {}, outline)


def one_line(text: object) -> str:
    """Return a label or title without line ends, NUL and surrounding white space."""
    return " ".join(str(text or "").replace("\0", "").split())


def nonempty_metadata(**values: object) -> dict[str, Json]:
    """Return metadata of the values that are not empty, each on one line."""
    return {name: line for name, value in values.items() if (line := one_line(value))}
