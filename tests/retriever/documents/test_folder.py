"""Folders of text and Markdown files: order, titles, bad files."""

from __future__ import annotations

import gzip
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.errors import SourceError
from retriever.documents import Document
from retriever.documents.reader import CorpusReader
from retriever.documents.text import split_heading


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


# The same, as a pattern, which takes quadratic time.
HEADING = re.compile(r"\s*?^ {0,3}#[ \t]+(\S.*?)(?:[ \t]+#+)?[ \t]*\r?$", re.MULTILINE)


@given(text=st.text("# \ta\r\n", max_size=12))
def test_headings_are_those_of_the_pattern(text):
    match = HEADING.match(text)
    expected = (None, text) if match is None else (match[1], text[match.end() :])
    title, rest = split_heading(text)
    # The pattern leaves the carriage return of a heading's own line end to the text.
    assert (title, rest.strip()) == (expected[0], expected[1].strip())


@pytest.mark.parametrize(
    "text", ["# a" + " " * 100_000 + "x", "# a" + " #" * 50_000, "\n " * 50_000 + "x"]
)
def test_the_heading_of_a_hostile_file_is_looked_for_once(tmp_path, text):
    write(tmp_path / "a.md", text)
    started = time.perf_counter()
    assert len(list(CorpusReader([tmp_path]))) == 1
    assert time.perf_counter() - started < 2


def test_what_leads_out_of_a_folder_or_is_no_plain_file_is_passed_over_and_counted(tmp_path):
    write(tmp_path / "secret.txt", "secret")
    write(tmp_path / "outside/b.txt", "outside")
    inside = tmp_path / "source"
    write(inside / "a.txt", "plain")
    (inside / "below").mkdir()
    links = {
        "b.txt": "../secret.txt",
        "c.txt": tmp_path / "secret.txt",
        "below/d.txt": "../../secret.txt",
        "gone.txt": "../nowhere.txt",
        "out": "../outside",
        "in": "below",
        "below/e.txt": "../a.txt",
    }
    for name, target in links.items():
        (inside / name).symlink_to(target)
    os.mkfifo(inside / "pipe.txt")
    for on_error in ("fail", "skip"):
        reader = CorpusReader([inside], on_error=on_error)
        assert [(one.id, one.text) for one in reader] == [
            ("a.txt", "plain"),
            ("below/e.txt", "plain"),
        ]
        assert reader.skipped == 6
        link = "a link that leads out of the source, which is not followed"
        assert reader.problems == [
            f"{inside}/b.txt: {link}",
            f"{inside}/below/d.txt: {link}",
            f"{inside}/c.txt: {link}",
            f"{inside}/gone.txt: {link}",
            f"{inside}/out: {link}",
            f"{inside}/pipe.txt: not a plain file",
        ]


def test_a_source_that_is_a_link_is_followed(tmp_path):
    write(tmp_path / "texts/a.txt", "x")
    (tmp_path / "texts/b.txt").symlink_to("a.txt")
    (tmp_path / "link").symlink_to("texts")
    reader = CorpusReader([tmp_path / "link"])
    assert [one.id for one in reader] == ["a.txt", "b.txt"]
    assert reader.skipped == 0


def test_a_folder_of_nothing_but_links_out_of_it_holds_no_records(tmp_path):
    write(tmp_path / "secret.txt", "x")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").symlink_to("../secret.txt")
    with pytest.raises(SourceError, match="holds no records"):
        list(CorpusReader([tmp_path / "texts"]))


def test_what_cannot_be_read_below_a_folder_is_named_or_skipped(tmp_path, longest):
    write(tmp_path / "a.txt", "x")
    (tmp_path / "b.txt").symlink_to("nowhere.txt")
    (tmp_path / "c.txt").symlink_to("c.txt")
    write(tmp_path / "d.txt.gz", gzip.compress(b"cut" * 100)[:-9])
    with gzip.open(tmp_path / "e.txt.gz", "wb", 1) as file:
        file.write(b"x" * (longest + 1))
    with pytest.raises(SourceError, match=r"b\.txt: no such file"):
        CorpusReader([tmp_path])
    reader = CorpusReader([tmp_path], on_error="skip")
    assert [one.id for one in reader] == ["a.txt"]
    said = ["b.txt: no such file", "c.txt: cannot be read: ", "d.txt.gz: the gzip data ends"]
    said.append("e.txt.gz: longer than 64 MiB")
    assert reader.skipped == len(said)
    for problem, start in zip(reader.problems, said, strict=True):
        assert problem.startswith(f"{tmp_path}/{start}")
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.txt").unlink()
    with pytest.raises(SourceError, match=r"d\.txt\.gz: the gzip data ends"):
        list(CorpusReader([tmp_path]))


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
