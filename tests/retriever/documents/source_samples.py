"""Sources that tests write, and what is true of every source that has a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from retriever import CorpusReader, Document, SourceError

# Of the bytes above 127, 80% are valid UTF-8.
DAMAGED = (b"fr\xc3\xbch fr\xc3\xbch fr\xfch ") * 20


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(source: object, *fields: object, **options: object) -> list[Document]:
    return list(CorpusReader([source], *fields, **options))


def refuses(source: object, message: str, *fields: object, **options: object) -> str:
    """The source as a whole is unusable, even where records are skipped, and is named."""
    for on_error in ("fail", "skip"):
        with pytest.raises(SourceError, match=message) as caught:
            read(source, *fields, on_error=on_error, **options)
    assert str(caught.value).startswith("stdin" if source == "-" else str(source).split("::")[0])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names_or_skips(source: object, place: str, message: str, kept: list[str]) -> None:
    """A bad record is named with its place, and skipped if asked, so that the others are read."""
    with pytest.raises(SourceError, match=message) as caught:
        read(source)
    assert str(caught.value).startswith(f"{source}{place}: ")
    assert "\n" not in str(caught.value)
    reader = CorpusReader([source], on_error="skip")
    assert [document.text for document in reader] == kept
    assert (reader.skipped, reader.problems) == (1, [str(caught.value)])
