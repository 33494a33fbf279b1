"""Scanned pages are recognized by a program of the user, within bounds."""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import struct
import time
import zlib

import pytest

from retriever import CorpusReader, Index
from retriever.documents import ocr
from retriever.errors import ConfigError
from tests.retriever.documents.file_samples import pdf
from tests.retriever.documents.source_samples import write

pypdfium2 = pytest.importorskip("pypdfium2")
TEXT = "The tenant may end the lease with three months notice in writing"


def scan(*texts):
    """A PDF with a picture for each text, and a page of text for each that begins with =."""
    target = pypdfium2.PdfDocument.new()
    for text in texts:
        source = pypdfium2.PdfDocument(pdf([text.removeprefix("=")]))
        if text.startswith("="):
            target.import_pages(source)
            continue
        bitmap = source[0].render(scale=4)
        width, height = source[0].get_size()
        page = target.new_page(width, height)
        picture = pypdfium2.PdfImage.new(target)
        picture.set_bitmap(bitmap)
        picture.set_matrix(pypdfium2.PdfMatrix().scale(width, height))
        page.insert_obj(picture)
        page.gen_content()
    buffer = io.BytesIO()
    target.save(buffer)
    return buffer.getvalue()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program, and make it the command; `{}` in its arguments stands for the picture."""

    def make(body, arguments=""):
        path = tmp_path / "recognize"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(ocr.VARIABLE, f"{path} {arguments}")

    return make


def read(folder):
    reader = CorpusReader(folder, on_error="skip-files")
    return {document.id: document for document in reader}, reader


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_tesseract_recognizes_the_words_of_a_scan(tmp_path, monkeypatch):
    write(tmp_path / "notes/lease.pdf", scan(TEXT))
    for command in ("tesseract - -", "tesseract {} stdout -l eng"):
        monkeypatch.setenv(ocr.VARIABLE, command)
        documents, reader = read(tmp_path / "notes")
        words = set(re.findall(r"\w+", documents["lease.pdf"].text))
        assert len(set(TEXT.split()) & words) >= 10
        assert documents["lease.pdf"].metadata["ocr_pages"] == 1
        assert reader.files.in_part == 0


def test_pages_without_text_alone_are_given_as_a_picture(tmp_path, program):
    write(tmp_path / "notes/a.pdf", scan("first", "=second", "third"))
    program(f"cat > {tmp_path}/picture.png; echo recognized")
    documents, reader = read(tmp_path / "notes")
    assert documents["a.pdf"].text == "recognized\n\nsecond\n\nrecognized"
    assert documents["a.pdf"].metadata["ocr_pages"] == 2
    pages = [mark.label for mark in documents["a.pdf"].outline if mark.kind == "page"]
    assert pages == ["1", "2", "3"]
    assert reader.files.in_part == 0
    picture = (tmp_path / "picture.png").read_bytes()
    width, height, depth, color = struct.unpack(">IIBB", picture[16:26])
    assert (depth, color) == (8, 0)
    data = picture[41 : 41 + struct.unpack(">I", picture[33:37])[0]]
    assert len(zlib.decompress(data)) == height * (width + 1)


def test_without_a_command_pages_are_counted_and_the_option_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv(ocr.VARIABLE, raising=False)
    write(tmp_path / "all.pdf", scan("first"))
    write(tmp_path / "part.pdf", scan("first", "=second"))
    documents, reader = read(tmp_path)
    assert list(documents) == ["part.pdf"]
    assert "--ocr COMMAND recognizes it" in reader.problems[0]
    assert "1 of 2 pages have no text; --ocr COMMAND" in reader.files.named[0]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("echo broken >&2; exit 3", "exit code 3: broken"),
        ("kill -9 $$", "signal 9"),
        ("true", ""),
    ],
)
def test_a_program_that_fails_leaves_the_page_counted_and_others_read(
    tmp_path, program, body, fault
):
    write(tmp_path / "notes/part.pdf", scan("first", "=second"))
    write(tmp_path / "notes/b.md", "neighbor")
    program(body)
    documents, reader = read(tmp_path / "notes")
    assert documents["part.pdf"].text == "second"
    assert "1 of 2 pages have no text" in reader.files.named[0]
    assert fault in reader.files.named[0]
    assert "b.md" in documents


@pytest.mark.parametrize(
    "body", ["yes words of a text without an end", "printf 'a\\377b\\000c'", "cat /dev/zero"]
)
def test_endless_output_and_bytes_of_no_encoding_are_bounded(tmp_path, program, body):
    write(tmp_path / "notes/part.pdf", scan("first", "=second"))
    program(body)
    started = time.monotonic()
    documents, _ = read(tmp_path / "notes")
    assert "second" in documents["part.pdf"].text
    assert len(documents["part.pdf"].text) < 2**21
    assert time.monotonic() - started < 60


def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path, program, monkeypatch):
    write(tmp_path / "notes/part.pdf", scan("first", "=second"))
    mark = tmp_path / "child"
    program(f"sleep 1000 & echo $! > {mark}; wait")
    monkeypatch.setattr(ocr, "SECONDS", 1.0)
    document = pypdfium2.PdfDocument(scan("first"))
    with pytest.raises(ocr.RecognitionError, match="longer than 1 s"):
        ocr.recognize_page(document[0], ocr.ocr_command())
    child = int(mark.read_text())
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{child}")


@pytest.mark.parametrize("command", ["no-such-program-at-all - -", "'unfinished"])
def test_a_command_that_cannot_run_is_refused_before_reading(tmp_path, monkeypatch, command):
    write(tmp_path / "a.md", "text")
    monkeypatch.setenv(ocr.VARIABLE, command)
    with pytest.raises(ConfigError, match="--ocr: "):
        list(CorpusReader(tmp_path))


def test_no_shell_reads_the_command(tmp_path, program, monkeypatch):
    write(tmp_path / "notes/a.pdf", scan("first"))
    program('echo "$@"', f"'$(touch {tmp_path}/ran)' ';' touch {tmp_path}/ran2")
    documents, _ = read(tmp_path / "notes")
    assert documents["a.pdf"].text.startswith("$(touch")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "ran2").exists()


def test_scans_are_read_once_a_command_is_set_and_kept_without_it(
    tmp_path, program, monkeypatch, fake_encoder
):
    from retriever.index.sources import files

    monkeypatch.delenv(ocr.VARIABLE, raising=False)
    write(tmp_path / "notes/a.pdf", scan("first"))
    write(tmp_path / "notes/b.md", "text")
    with Index.create(tmp_path / "my.index") as index:
        files.lacking.cache_clear()
        index.add(CorpusReader(tmp_path / "notes", on_error="skip-files"), remember=True)
        assert [document.id for document in index] == ["b.md"]
        program("echo recognized")
        files.lacking.cache_clear()
        assert index.refresh().added == 1
        monkeypatch.delenv(ocr.VARIABLE)
        files.lacking.cache_clear()
        assert not index.refresh().is_change
        assert index["a.pdf"].text == "recognized"
    files.lacking.cache_clear()
