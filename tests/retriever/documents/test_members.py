"""Members of archives and attachments of mails become documents of their own, within bounds."""

from __future__ import annotations

import io
import os
import random
import tarfile
import time
import zipfile
from email.message import EmailMessage

import pytest

from retriever import CorpusReader, Index
from retriever.documents import members
from tests.retriever.documents.file_samples import book_pdf
from tests.retriever.documents.source_samples import write

FILES = {
    "a.md": b"# A\n\nbees",
    "docs/book.pdf": book_pdf(),
    "docs/b.txt": b"text of b",
    ".hidden/c.md": b"secret",
    "id_rsa": b"key",
    "image.png": b"\x89PNG\r\n",
    "inner.zip": b"PK\x03\x04",
}
EXPECTED = ["a.md", "docs/b.txt", "docs/book.pdf"]


def zipped(files, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 3, 1, 10, 0, 0)), content)
    return buffer.getvalue()


def tarred(files, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mtime = 1_709_287_200
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


ARCHIVES = {
    "x.zip": zipped(FILES),
    "x.tar": tarred(FILES),
    "x.tar.gz": tarred(FILES, "w:gz"),
    "x.tgz": tarred(FILES, "w:gz"),
    "x.tar.bz2": tarred(FILES, "w:bz2"),
    "x.tar.xz": tarred(FILES, "w:xz"),
}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("is_alone", [False, True])
def test_members_of_kinds_that_are_read_are_documents(tmp_path, monkeypatch, name, is_alone):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "notes" / name, ARCHIVES[name])
    source, prefix = (f"notes/{name}", f"notes/{name}") if is_alone else ("notes", name)
    reader = CorpusReader(source, archives=True, on_error="skip-files")
    documents = {document.id: document for document in reader}
    assert sorted(documents) == [f"{prefix}!{member}" for member in EXPECTED]
    assert documents[f"{prefix}!docs/b.txt"].text == "text of b"
    assert documents[f"{prefix}!a.md"].title == "A"
    assert documents[f"{prefix}!a.md"].metadata["modified"] == "2024-03-01T10:00:00"
    assert dict(reader.files_left_out) == {
        "hidden": 1,
        "possible secrets": 1,
        ".png": 1,
        "archives in archives": 1,
    }
    assert reader.skipped == 0


def test_archives_are_left_out_unless_asked_for(tmp_path):
    write(tmp_path / "x.zip", ARCHIVES["x.zip"])
    write(tmp_path / "a.md", "text")
    reader = CorpusReader(tmp_path)
    assert [document.id for document in reader] == ["a.md"]
    assert reader.files_left_out == {".zip": 1}


def test_patterns_choose_members_as_files_of_a_folder(tmp_path):
    write(tmp_path / "x.zip", ARCHIVES["x.zip"])

    def ids(**rules):
        return [document.id for document in CorpusReader(tmp_path, archives=True, **rules)]

    assert ids(include=["*.md"]) == ["x.zip!a.md"]
    assert ids(exclude=["docs/"]) == ["x.zip!a.md"]
    assert ids(exclude=["*.pdf"]) == ["x.zip!a.md", "x.zip!docs/b.txt"]
    write(tmp_path / "b.md", "text")
    assert ids(exclude=["*.zip"]) == ["b.md"]


@pytest.mark.parametrize("name", ["../up.md", "/root.md", "a/../../up.md", "C:/x.md", "a\\b.md"])
def test_paths_that_lead_out_are_left_out(tmp_path, name):
    write(tmp_path / "x.tar", tarred({name: b"text", "a.md": b"text"}))
    reader = CorpusReader(tmp_path, archives=True)
    assert [document.id for document in reader] == ["x.tar!a.md"]
    assert reader.files_left_out == {"paths that lead out of the archive": 1}


def test_links_and_devices_are_passed_over(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"{kind[0]}.md")
            info.type = kind
            info.linkname = "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo("a.md")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"text"))
    write(tmp_path / "x.tar", buffer.getvalue())
    assert [document.id for document in CorpusReader(tmp_path, archives=True)] == ["x.tar!a.md"]


def read_faults(tmp_path, content, name="x.zip"):
    write(tmp_path / name, content)
    write(tmp_path / "z.md", "neighbor")
    reader = CorpusReader(tmp_path, archives=True, on_error="skip-files")
    ids = [document.id for document in reader]
    assert ids[-1] == "z.md"
    return ids[:-1], reader.problems


def test_an_encrypted_and_a_second_member_are_named(tmp_path):
    content = bytearray(zipped({"a.md": b"text", "b.md": b"text"}))
    first = content.index(b"PK\x01\x02")
    content[first + 8] |= 1
    ids, problems = read_faults(tmp_path, bytes(content))
    assert ids == ["x.zip!b.md"]
    assert "x.zip!a.md: encrypted" in problems[0]
    ids, problems = read_faults(tmp_path, tarred({"a.md": b"one", "./a.md": b"two"}), "y.tar")
    assert "y.tar!a.md" in ids
    assert any("a second member with this name" in problem for problem in problems)


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_damaged_archive_gives_what_stands_before_and_one_line(tmp_path, name):
    content = ARCHIVES[name]
    ids, problems = read_faults(tmp_path, content[: len(content) * 2 // 3], name)
    assert len(problems) == 1
    assert f"{name}: a damaged archive" in problems[0]
    chance = random.Random(0)
    for _ in range(20):
        damaged = bytearray(content)
        for _ in range(5):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        ids, _ = read_faults(tmp_path, bytes(damaged), name)
        assert len(ids) <= len(FILES)


def test_a_bomb_is_left_out_in_little_time(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MOST_BYTES", 10**7)
    zeros = b"0" * 10**6
    files = {f"{number}.txt": zeros for number in range(50)}
    for name, content in (
        ("x.zip", zipped(files, compression=zipfile.ZIP_DEFLATED)),
        ("y.tar.gz", tarred({"skipped.png": b"0" * 10**8, "a.md": b"text"}, "w:gz")),
    ):
        started = time.monotonic()
        _, problems = read_faults(tmp_path, content, name)
        assert any("unpacks to more than" in problem for problem in problems)
        assert time.monotonic() - started < 20
        (tmp_path / name).unlink()


def test_members_beyond_the_limit_are_left_out_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MOST_MEMBERS", 100)
    files = {f"{number:03}.md": b"text" for number in range(150)}
    ids, problems = read_faults(tmp_path, zipped(files))
    assert len(ids) == 100
    assert "more than 100 members" in problems[0]


def mail(files, subject="Report"):
    message = EmailMessage()
    message["From"] = "Ada <ada@example.org>"
    message["Subject"] = subject
    message["Date"] = "Fri, 1 Mar 2024 10:00:00 +0000"
    message.set_content("See the files.")
    for name, content in files:
        message.add_attachment(
            content, maintype="application", subtype="octet-stream", filename=name
        )
    return bytes(message)


def test_attachments_of_kinds_that_are_read_are_documents(tmp_path):
    files = [
        ("book.pdf", book_pdf()),
        ("note.md", b"# Note\n\nbees"),
        ("note.md", b"# Other\n\nwasps"),
        ("old.doc", b"\xd0\xcf\x11\xe0"),
        ("picture.png", b"\x89PNG"),
        ("dir/name.txt", b"text"),
    ]
    write(tmp_path / "m.eml", mail(files))
    reader = CorpusReader(tmp_path, on_error="skip-files")
    documents = {document.id: document for document in reader}
    assert list(documents) == [
        "m.eml",
        "m.eml!book.pdf",
        "m.eml!note.md",
        "m.eml!note (2).md",
        "m.eml!dir_name.txt",
    ]
    assert len(documents["m.eml"].metadata["attachments"]) == 6
    note = documents["m.eml!note (2).md"]
    assert (note.title, note.text) == ("Other", "wasps")
    assert note.metadata["from"] == "Ada <ada@example.org>"
    assert note.metadata["date"] == "2024-03-01T10:00:00"
    labels = [mark.label for mark in note.outline if mark.kind == "label"]
    assert labels == ["Report", "m.eml/note (2)"]
    assert reader.skipped == 0


def test_attachments_of_a_mailbox_and_of_a_mail_in_an_archive(tmp_path):
    content = mail([("note.md", b"# Note\n\nbees")])
    write(tmp_path / "box.mbox", b"From ada Fri Mar  1 10:00:00 2024\n" + content)
    write(tmp_path / "x.zip", zipped({"m.eml": content}))
    ids = [document.id for document in CorpusReader(tmp_path, archives=True)]
    assert ids == [
        *("box.mbox#1", "box.mbox#1!note.md"),
        *("x.zip!m.eml", "x.zip!m.eml!note.md"),
    ]


def test_a_damaged_attachment_is_named_and_its_neighbors_are_read(tmp_path):
    write(tmp_path / "m.eml", mail([("a.pdf", b"%PDF-1.4 nothing"), ("b.md", b"bees")]))
    reader = CorpusReader(tmp_path, on_error="skip-files")
    assert [document.id for document in reader] == ["m.eml", "m.eml!b.md"]
    assert "m.eml!a.pdf" in reader.problems[0]


def test_ten_thousand_attachments_take_little_time(tmp_path):
    part = "--b\nContent-Disposition: attachment; filename=a.txt\n\nwords\n"
    write(
        tmp_path / "m.eml",
        "From: a@b.c\nContent-Type: multipart/mixed; boundary=b\n\n" + part * 10**4,
    )
    started = time.monotonic()
    reader = CorpusReader(tmp_path, on_error="skip-files")
    ids = [document.id for document in reader]
    assert len(ids) == 1000
    assert "attachments after the first 1,000" in reader.files.named[0]
    assert time.monotonic() - started < 60


def test_refresh_follows_members_and_attachments(tmp_path, fake_encoder):
    notes = tmp_path / "notes"
    write(notes / "x.zip", zipped({"a.md": b"one", "b.md": b"two"}))
    write(notes / "m.eml", mail([("note.md", b"three"), ("gone.md", b"four")]))
    with Index.create(tmp_path / "my.index") as index:
        index.add(CorpusReader(notes, archives=True), remember=True)
        write(notes / "x.zip", zipped({"a.md": b"changed", "c.md": b"new"}))
        write(notes / "m.eml", mail([("note.md", b"three")]))
        report = index.refresh()
        # The mail's list of attachments has changed, and perhaps the time of its file.
        assert (report.added, report.removed) == (1, 2)
        assert report.changed >= 2
        texts = {document.id: document.text for document in index}
        assert texts == {
            "m.eml": "See the files.",
            "m.eml!note.md": "three",
            "x.zip!a.md": "changed",
            "x.zip!c.md": "new",
        }
        os.unlink(notes / "x.zip")
        assert index.refresh().removed == 2
