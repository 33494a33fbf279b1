"""Folders of text and Markdown files: order, titles, bad files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexes.errors import SourceError
from retriever.corpus import CorpusReader, Document


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_folder_is_read_in_order_of_relative_paths_without_hidden_ones(tmp_path):
    names = ["b.txt", "a.txt", "a/z.md", "a-b.txt", "a/b/c.TXT", "a.b/x.txt", "ä.md", "a!/q.txt"]
    for name in names:
        write(tmp_path / name, f"text of {name}\n")
    for name in (".hidden.txt", ".git/x.txt", "a/.x/y.md", "c.pdf", "d.jsonl", "empty/.keep"):
        write(tmp_path / name, "not read")
    os.symlink(tmp_path, tmp_path / "loop")
    reader = CorpusReader([str(tmp_path)])
    assert list(reader) == [Document(name, f"text of {name}") for name in sorted(names)]
    assert reader.bytes_read == reader.total_bytes
    assert reader.generated_ids == "ids are the paths relative to the folder"


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        ("a.md", "\n \n# A heading\r\n\nBody\n\n# Next\n", "A heading", "Body\n\n# Next"),
        ("a.md", "\ufeff# Closed ##\nBody", "Closed", "Body"),
        ("a.md", "# Only a title\n", "Only a title", ""),
        ("a.md", "## Second level\nBody", None, "## Second level\nBody"),
        ("a.md", "#hashtag\nBody", None, "#hashtag\nBody"),
        ("a.md", "Body\n# Later\n", None, "Body\n# Later"),
        ("a.txt", "# Not Markdown\nBody", None, "# Not Markdown\nBody"),
    ],
)
def test_the_first_heading_of_a_markdown_file_is_its_title(tmp_path, name, content, title, text):
    write(tmp_path / name, content)
    assert list(CorpusReader([tmp_path])) == [Document(name, text, title)]


def test_bad_files_of_a_folder_are_named_or_skipped(tmp_path):
    write(tmp_path / "a.txt", b"fine\nnot \xff fine\n")
    write(tmp_path / "b.md", " \n")
    write(tmp_path / "c.txt", "x\n\n\0")
    write(tmp_path / "d.txt", "good")
    reader = CorpusReader([tmp_path], on_error="skip")
    assert [document.id for document in reader] == ["d.txt"]
    starts = [f"{tmp_path}/a.txt:2: invalid UTF-8: byte 0xff"]
    starts.append(f"{tmp_path}/c.txt:3: holds a NUL byte")
    assert len(reader.problems) == 2
    assert all(map(str.startswith, reader.problems, starts))
    assert (reader.empty, reader.empty_at) == (1, [f"{tmp_path}/b.md"])


def test_a_file_name_that_is_not_utf8_is_named_or_skipped(tmp_path):
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    write(tmp_path / "a.txt", "x")
    reader = CorpusReader([tmp_path], on_error="skip")
    assert [document.id for document in reader] == ["a.txt"]
    assert "name is not UTF-8" in reader.problems[0]


def test_a_folder_without_documents_is_an_error(tmp_path):
    write(tmp_path / "c.pdf", "x")
    with pytest.raises(SourceError, match=r"the folder holds no \.txt or \.md file"):
        CorpusReader([tmp_path])
