"""Folders of text and Markdown files: order, titles, bad files."""

from __future__ import annotations

import gzip
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import CorpusReader, Document, SourceError
from retriever.documents.kinds.plain import split_heading
from tests.retriever.documents.source_samples import read, refuses, write


def test_a_folder_is_read_in_order_of_relative_paths_without_hidden_ones(tmp_path):
    names = ["b.txt", "a.txt", "a/z.md", "a-b.txt", "a/b/c.TXT", "a.b/x.txt", "ä.md", "a!/q.txt"]
    for name in names:
        write(tmp_path / name, f"text of {name}\n")
    for name in (".hidden.txt", ".git/x.txt", "a/.x/y.md", "c.xyz", "d.jsonl", "empty/.keep"):
        write(tmp_path / name, "not read")
    os.symlink(tmp_path, tmp_path / "loop")
    reader = CorpusReader([str(tmp_path)])
    assert [(one.id, one.text) for one in reader] == [
        (name, f"text of {name}") for name in sorted(names)
    ]
    assert reader.bytes_read == reader.total_bytes
    assert reader.generated_ids == "ids are the paths relative to the folder"


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        ("a.md", "\n \n# A heading\r\n\nBody\n\n# Next\n", "A heading", "Body\n\n# Next"),
        ("a.md", "\ufeff# Closed ##\nBody", "Closed", "Body"),
        ("a.md", "# Only a title\n", "Only a title", ""),
        ("a.md", "Body\n# Later\n", None, "Body\n# Later"),
        ("a.txt", "# Not Markdown\nBody", None, "# Not Markdown\nBody"),
    ],
)
def test_the_first_heading_of_a_markdown_file_is_its_title(tmp_path, name, content, title, text):
    write(tmp_path / name, content)
    [found] = read(tmp_path)
    assert replace(found, outline=()) == Document(name, text, title)


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
    assert len(read(tmp_path)) == 1
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
    link = "a link that leads out of the source, which is not followed"
    out = [
        f"{inside}/{name}: {link}" for name in ("b.txt", "below/d.txt", "c.txt", "gone.txt", "out")
    ]
    for on_error in ("fail", "skip"):
        reader = CorpusReader([inside], on_error=on_error)
        assert [(one.id, one.text) for one in reader] == [
            ("a.txt", "plain"),
            ("below/e.txt", "plain"),
        ]
        assert reader.problems == [*out, f"{inside}/pipe.txt: not a plain file"]
        assert reader.skipped == 6


def test_a_source_that_is_a_link_is_followed(tmp_path):
    write(tmp_path / "texts/a.txt", "x")
    (tmp_path / "texts/b.txt").symlink_to("a.txt")
    (tmp_path / "link").symlink_to("texts")
    reader = CorpusReader([tmp_path / "link"])
    assert [one.id for one in reader] == ["a.txt", "b.txt"]
    assert reader.skipped == 0


def test_what_cannot_be_read_below_a_folder_is_named_or_skipped(tmp_path, longest):
    write(tmp_path / "a.txt", "x")
    (tmp_path / "b.txt").symlink_to("nowhere.txt")
    (tmp_path / "c.txt").symlink_to("c.txt")
    write(tmp_path / "d.txt.gz", gzip.compress(b"cut" * 100)[:-9])
    write(tmp_path / "e.txt.gz", gzip.compress(b"x" * (longest + 1), 1))
    write(tmp_path / "f.txt", b"fine\nnot \xff fine\n")
    write(tmp_path / "g.md", " \n")
    write(tmp_path / "h.txt", "x\n\n\0")
    with pytest.raises(SourceError, match=r"b\.txt: no such file"):
        CorpusReader([tmp_path])
    reader = CorpusReader([tmp_path], on_error="skip")
    assert [one.id for one in reader] == ["a.txt"]
    said = ["b.txt: no such file", "c.txt: cannot be read: ", "d.txt.gz: the gzip data ends"]
    said += ["e.txt.gz: longer than 64 MiB", "f.txt:2: invalid UTF-8: byte 0xff"]
    said.append("h.txt:3: holds a NUL byte")
    assert reader.skipped == len(said)
    for problem, start in zip(reader.problems, said, strict=True):
        assert problem.startswith(f"{tmp_path}/{start}")
    assert (reader.empty, reader.empty_at) == (1, [f"{tmp_path}/g.md"])
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.txt").unlink()
    with pytest.raises(SourceError, match=r"d\.txt\.gz: the gzip data ends"):
        read(tmp_path)


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
    write(tmp_path / "texts/c.xyz", "x")
    refuses(tmp_path / "texts", r"the folder holds no file of a kind that is read")
    (tmp_path / "texts/a.txt").symlink_to(write(tmp_path / "secret.txt", "x"))
    refuses(tmp_path / "texts", r"a\.txt: a link that leads out of the source")
