"""Files made to take time or memory: each is read, or refused, within bounds."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from retriever.documents.kinds.mail import read_mail
from retriever.documents.kinds.plain import read_markdown
from tests.retriever.documents import file_samples as samples
from tests.retriever.documents.source_samples import read, write

for module in ("pypdfium2", "trafilatura", "mammoth", "defusedxml"):
    pytest.importorskip(module)

# Of a test that takes a fraction of it where nothing is quadratic.
SECONDS = 20


@contextmanager
def bounded_time(seconds: float = SECONDS) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def test_encodings_that_no_browser_reads_are_not_decoded(tmp_path, monkeypatch):
    text = "a" * 500_000 + "-" + "b" * 500_000
    page = f"<meta charset=punycode><p>{text}"
    mail = f"From: a\nContent-Type: text/plain; charset=punycode\n\n{text}"
    chapter = {"OEBPS/a.xhtml": f'<?xml version="1.0" encoding="punycode"?><p>{text}</p>'}
    # Pages are decoded in the process that reads them.
    with monkeypatch.context() as patch:
        patch.setattr("retriever.documents.decoding.decoded", None)
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
        found = read_markdown(f"+++\n{front}\n+++\ntext")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert (found.metadata, found.text[-4:]) == ({}, "text")
    assert read_markdown("+++\na.b.c = 'x.y'\n+++\nx").metadata == {"a": {"b": {"c": "x.y"}}}
