"""Files made to take time or memory: each is read, or refused, within bounds."""

from __future__ import annotations

import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import pytest

from retriever import SourceError
from retriever.documents.kinds.docx import read_docx
from retriever.documents.kinds.mail import read_mail
from retriever.documents.kinds.opendocument import read_opendocument
from retriever.documents.kinds.pdf import _bookmark_marks, read_pdf
from retriever.documents.kinds.plain import read_markdown
from retriever.documents.kinds.sheets import read_xlsx
from retriever.documents.kinds.zipped import read_epub, read_pptx
from tests.retriever.documents import file_samples as samples
from tests.retriever.documents.source_samples import read, write

for module in ("pypdfium2", "trafilatura", "lxml"):
    pytest.importorskip(module)

# Of a test that takes a fraction of it where nothing is quadratic.
SECONDS = 20


@contextmanager
def bounded_time(seconds: float = SECONDS) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def test_encodings_that_no_browser_reads_are_not_decoded(tmp_path, monkeypatch):
    text = "a " * 250_000 + "-" + "b " * 250_000 + "c"
    page = f"<meta charset=punycode><p>{text}"
    mail = f"From: a\nContent-Type: text/plain; charset=punycode\n\n{text}"
    chapter = {"OEBPS/a.xhtml": f'<?xml version="1.0" encoding="punycode"?><p>{text}</p>'}
    # Pages are decoded in the process that reads them.
    with monkeypatch.context() as patch:
        patch.setattr("retriever.documents.decoding.decode", None)
        write(tmp_path / "a.html", page)
        write(tmp_path / "b.epub", samples.epub(parts=chapter))
        with bounded_time():
            assert [document.text for document in read(tmp_path)] == [
                text,
                f"{text}\n\nTwo\n\nHoney.",
            ]
    with bounded_time():
        assert read_mail(mail.encode()).text == text


@pytest.mark.parametrize(
    "front",
    [
        f"a{'.a' * 8_000} = 1",
        f"[{'a . ' * 8_000}a]",
        "a = {b" + '."b"' * 8_000 + " = 1}",
        "a = " + f"{{a{'.a' * 90} = " * 150 + "1" + "}" * 150,
    ],
)
def test_front_matter_nested_without_end_is_text(front):
    tracemalloc.start()
    with bounded_time(3):
        document = read_markdown(f"+++\n{front}\n+++\ntext")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert (document.metadata, document.text[-4:]) == ({}, "text")
    assert read_markdown("+++\na.b.c = 'x.y'\n+++\nx").metadata == {"a": {"b": {"c": "x.y"}}}


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("kind", ["docx", "pptx", "epub", "xlsx", "odt"])
def test_zip_entry_with_false_size_is_refused(kind, method):
    part, sample, reader = {
        "docx": ("word/document.xml", samples.docx(), read_docx),
        "pptx": ("ppt/presentation.xml", samples.pptx(), read_pptx),
        "epub": ("META-INF/container.xml", samples.epub(), read_epub),
        "xlsx": ("xl/workbook.xml", samples.archive({"a": "b"}), read_xlsx),
        "odt": ("content.xml", samples.archive({"a": "b"}), read_opendocument),
    }[kind]
    size = (1 << 28) + 1
    content = with_part(sample, part, size, method)
    assert len(content) < 1 << 20
    # What its entries say of the length of the part.
    lying = content.replace(size.to_bytes(4, "little"), (100).to_bytes(4, "little"))
    for archive in (content, lying):
        tracemalloc.start()
        with pytest.raises(SourceError, match=r"damaged|unpacks to more"):
            reader(archive)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 24


def with_part(content: bytes, name: str, size: int, method: int) -> bytes:
    """A zip file with a part of so many spaces in place of its own."""
    buffer = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        for other in old.namelist():
            if other != name:
                new.writestr(other, old.read(other))
        entry = zipfile.ZipInfo(name)
        entry.compress_type = method
        entry.file_size = size
        with new.open(entry, "w") as stream:
            for _ in range(size >> 16):
                stream.write(b" " * (1 << 16))
            stream.write(b" " * (size & 0xFFFF))
    return buffer.getvalue()


def test_a_zip_file_of_too_many_parts_is_not_listed():
    row = b"PK\x01\x02" + bytes(24) + b"\x01\0" + bytes(16) + b"a"
    rows = row * 200_000
    size = len(rows).to_bytes(4, "little")
    content = rows + b"PK\x05\x06" + bytes(4) + b"\xff\xff" * 2 + size + bytes(6)
    tracemalloc.start()
    with pytest.raises(SourceError, match="has more than 100,000 parts"):
        read_docx(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_missing_bookmark_titles_are_searched_in_linear_time():
    text = "abcdefgh " * 20_000
    with bounded_time(5):
        marks = _bookmark_marks(text, [("Food", 1)] * 10_000)
    assert {mark.offset for mark in marks} == {0}
    with bounded_time(5):
        _bookmark_marks("a " * 20_000, [("a " * 2_000 + "b", 1)] * 1_000)


def test_pdf_bookmarks_are_dropped_after_time_limit(monkeypatch):
    monkeypatch.setattr("retriever.documents.kinds.pdf._BOOKMARK_SECONDS", -1)
    parsed = read_pdf(samples.book_pdf())
    assert (parsed.text, [mark.kind for mark in parsed.outline]) == (
        "On bees\n\nFood\nnectar",
        ["page", "page"],
    )


@pytest.mark.parametrize(
    "header",
    [
        "To: " + ", ".join(f"u{number} <u{number}@example.org>" for number in range(100_000)),
        "To: " + "a," * 200_000,
        "To: " + "(" * 200_000,
        "Subject: " + "=?utf-8?q?a?= " * 30_000,
        "Subject: " + "=?utf-8?q?a?=x" * 30_000,
        "From: " + "a@b, " * 80_000,
        "Content-Type: text/plain" + "; a=b" * 80_000,
        "Content-Type: text/plain; a=" + '"\\""' * 100_000,
        "Content-Transfer-Encoding: " + "a;" * 100_000,
    ],
)
def test_long_headers_of_mails_are_read_in_little_time(header):
    with bounded_time(10):
        assert read_mail(f"From: a\n{header}\n\ntext".encode()).text == "text"
