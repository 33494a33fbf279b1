"""Files whose suffix names no kind: which are read, as what, and which are never read."""

from __future__ import annotations

import gzip
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from cli.output.progress import left_out_line
from retriever import CorpusReader, Index, SourceError
from retriever.documents.file_heads import is_binary
from retriever.documents.file_kinds import KINDS, is_document, kind_of_file
from retriever.documents.folder_rules import FolderRules
from retriever.documents.folders import files_below
from retriever.index import RefreshReport
from tests.retriever.documents.source_samples import read, refuses, write

MAIL = (
    "Return-Path: <ida@example.org>\nFrom: Ida <ida@example.org>\nSubject: Lighthouse\n"
    "Date: Mon, 03 Jun 2024 10:00:00 +0000\n\nThe lamp is lit at nine.\n"
)
MAILBOX = f"From ida@example.org Mon Jun  3 10:00:00 2024\n{MAIL}\n" * 2
TEXTS = {
    "README": "A lamp.",
    "readme.de": "Eine Lampe.",
    "LICENSE-MIT": "Permission is granted.",
    "CHANGELOG.gz": gzip.compress(b"A new lamp."),
    "NEWS": "Die Lampe hei\u00dft Gr\u00fcn.".encode("cp1252"),
    "Dockerfile": "FROM debian",
    "Dockerfile.dev": "FROM debian:sid",
    "Makefile.am": "bin_PROGRAMS = lamp",
    "Jenkinsfile": "pipeline {}",
    "Gemfile": "gem 'lamp'",
    "go.mod": "module lamp",
    "TODO": "Light it.",
    "lit": "#!/usr/bin/env python3\nprint('lit')",
    "diary": "Day one: the lamp is lit.",
    "Notes of 3. June": "The keeper came.",
    "lamp.mkd": "# Lamp",
    "lamp.ini": "[lamp]\nlit = yes",
    "lamp.patch": "--- a\n+++ b",
    "lamp.srt": "1\n00:00:01,000 --> 00:00:02,000\nLight.",
    "lamp.bib": "@book{lamp}",
    "lamp.service": "[Unit]\nDescription=Lamp",
    "lamp.nix": "{ lamp = 1; }",
}
LEFT_OUT = {
    "lamp.json": "{}",
    "lamp.log": "lit",
    "lamp.csv": "a,b",
    "lamp.xml": "<lamp/>",
    "README.json": "{}",
    "changelog.log": "lit",
    "state": '{\n "lit": true}',
    "list": '[{"lit": 1}]',
    "feed": "<?xml version='1.0'?><lamp/>",
    "blob": "QUJD" * 1000,
    "tool": b"\x7fELF\x02\x01\x01" + bytes(50),
    "picture": b"\x89PNG\r\n\x1a\n\0\0",
    "archive": b"PK\x03\x04\x14\0\0\0",
    "README.png": b"\x89PNG\r\n\x1a\n\0\0",
    "latin": "Gr\u00fc\u00dfe".encode("cp1252"),
    "diary~": "Day one",
    "nothing": "",
}
SECRETS = {
    ".env": "TOKEN=1",
    ".netrc": "machine a login b password c",
    "id_ed25519": "no key, by its name",
    "credentials": "[default]\nkey = 1",
    "env": "TOKEN=1",
    "bash_history": "ls",
    "prod.env": "TOKEN=1",
    "README.pem": "x",
    "deploy": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\n",
    "login": "machine example.org\n  login ida\n  password x\n",
    "commands": ": 1717400000:0;ls\n: 1717400001:0;cd\n",
}


def ids(folder: Path, **options: object) -> list[str]:
    return [document.id for document in CorpusReader(folder, on_error="skip-files", **options)]


def test_texts_without_a_suffix_of_a_kind_are_read_and_nothing_else(tmp_path):
    for name, content in (TEXTS | LEFT_OUT | SECRETS).items():
        write(tmp_path / name, content)
    reader = CorpusReader(tmp_path, on_error="skip-files")
    documents = {document.id: document for document in reader}
    assert documents.keys() == TEXTS.keys()
    assert reader.problems == []
    assert documents["NEWS"].text == "Die Lampe hei\u00dft Gr\u00fcn."
    assert documents["CHANGELOG.gz"].text == "A new lamp."
    assert documents["lamp.mkd"].title == "Lamp"
    assert reader.files_left_out["possible secrets"] == 7
    assert reader.files_left_out["hidden"] == 2


def test_a_named_file_is_a_document_where_its_name_or_first_line_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (TEXTS | {"table": "id,text\na,x\n", "lines": "one\ntwo\n"}).items():
        write(tmp_path / name, content)
    for name in TEXTS.keys() - {"diary", "Notes of 3. June"}:
        assert [document.id for document in read(name)] == [name]
    assert [document.text for document in read("lines")] == ["one", "two"]
    assert [document.id for document in read("table")] == ["a"]
    assert not any(map(is_document, ["lines", "table", "diary", "nowhere"]))


def test_binaries_of_system_are_not_read_as_text():
    texts = binaries = 0
    for folder in ("/usr/bin", "/usr/sbin", os.path.dirname(sys.executable)):
        if not os.path.isdir(folder):
            continue
        left_out: Counter[str] = Counter()
        for entry in files_below(Path(folder), FolderRules(), left_out):
            path = Path(folder, entry.path)
            if entry.status is not None and kind_of_file(path) == "text":
                texts += 1
                with path.open("rb") as file:
                    assert b"\0" not in file.read(1 << 14), path
        binaries += left_out["binary without a suffix"]
    assert binaries > 10
    assert texts > 10


THUNDERBIRD = "Mail/Local Folders"


def test_mail_folders_of_programs_are_read(tmp_path):
    files = {
        f"{THUNDERBIRD}/Inbox": MAILBOX,
        f"{THUNDERBIRD}/Inbox.msf": "// <!-- <mdb:mork:z v=1.4/> -->",
        f"{THUNDERBIRD}/Archives.sbd/2024": MAILBOX,
        "Maildir/cur/1717400000.M1P2.host.example.pl:2,RS": MAIL,
        "Maildir/new/1717400001.M3P4.mail.example.md": MAIL,
        "Maildir/tmp/1717400002.M5P6.mail.example.pl": MAIL,
        "Maildir/tmp/1717400003.M5P6.a-host-with-a-long-name": MAIL,
        "new/plan.md": "# Plan",
        "mh/17": MAIL,
        "V10/INBOX.mbox/Messages/5.emlx": f"{len(MAIL)}\n{MAIL}<?xml version='1.0'?><plist/>",
        "tale": "From the pier we saw\nthe lamp: it was lit.\n",
    }
    for name, content in files.items():
        write(tmp_path / name, content)
    reader = CorpusReader(tmp_path, on_error="skip-files")
    documents = {document.id: document for document in reader}
    assert list(documents) == [
        f"{THUNDERBIRD}/Archives.sbd/2024#1",
        f"{THUNDERBIRD}/Archives.sbd/2024#2",
        f"{THUNDERBIRD}/Inbox#1",
        f"{THUNDERBIRD}/Inbox#2",
        "Maildir/cur/1717400000.M1P2.host.example.pl:2,RS",
        "Maildir/new/1717400001.M3P4.mail.example.md",
        "V10/INBOX.mbox/Messages/5.emlx",
        "mh/17",
        "new/plan.md",
        "tale",
    ]
    for id_, document in documents.items():
        is_mail = id_ not in ("new/plan.md", "tale")
        assert (document.title == "Lighthouse") == is_mail, id_
        assert not is_mail or document.text == "The lamp is lit at nine."
    assert reader.files_left_out == {".msf": 1, "unfinished mails": 2}
    [*alone] = CorpusReader([tmp_path / THUNDERBIRD / "Inbox"])
    assert [document.title for document in alone] == ["Lighthouse"] * 2


def test_a_pattern_that_names_a_suffix_or_a_file_reads_it_as_text(tmp_path):
    files = {"a.log": "lit", "b.json": '{"lit": 1}', "docs/c.log": "dark", "docs/d.md": "x"}
    for name, content in files.items():
        write(tmp_path / name, content)
    write(tmp_path / "e.bin", b"\0\x01")
    assert ids(tmp_path) == ["docs/d.md"]
    assert ids(tmp_path, include=["*.log"]) == ["a.log", "docs/c.log"]
    assert ids(tmp_path, include=["*.log", "*.json"]) == ["a.log", "b.json", "docs/c.log"]
    assert ids(tmp_path, include=["*", "/b.json"]) == ["b.json", "docs/d.md"]
    assert ids(tmp_path, include=["*.log", "!a.log"]) == ["docs/c.log"]
    # Neither names a file or a suffix.
    assert ids(tmp_path, include=["docs/"]) == ["docs/d.md"]
    assert ids(tmp_path, include=["docs/*"]) == ["docs/d.md"]
    [document] = read(tmp_path, include=["*.json"])
    assert (document.text, document.outline[-1].kind) == ('{"lit": 1}', "line")
    reader = CorpusReader(tmp_path, on_error="skip-files", include=["*.bin", "*.log"])
    assert [document.id for document in reader] == ["a.log", "docs/c.log"]
    assert reader.skipped == 1
    message = f"{tmp_path}/e.bin: a binary file, not text; leave it out with --exclude"
    assert reader.problems == [message]


def test_files_left_out_are_named_with_include_option(tmp_path, capsys):
    write(tmp_path / "a.log", "lit")
    write(tmp_path / "b.zip", "x")
    message = refuses(tmp_path, "no file of a kind that is read")
    assert message.endswith(
        "(left out: 1 .log, 1 .zip); --include '*.log' reads only these, as text; "
        "add --include '*' to read all kinds"
    )
    with pytest.raises(SourceError, match=re.escape("check the patterns of --include")):
        CorpusReader(tmp_path, include=["*.mdd"])
    line = left_out_line({".zip": 3, ".log": 1})
    assert "3 .zip, 1 .log; --include '*.log' reads only these" in line
    assert left_out_line({".zip": 3}) == ("left out     3 .zip; --archives reads the files in .zip")


def test_links_without_a_suffix_that_lead_out_are_counted(tmp_path):
    write(tmp_path / "outside/tool", "#!/bin/sh")
    write(tmp_path / "notes/a.md", "x")
    (tmp_path / "notes/tool").symlink_to("../outside/tool")
    (tmp_path / "notes/gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "notes/pipe")
    reader = CorpusReader(tmp_path / "notes")
    assert [document.id for document in reader] == ["a.md"]
    assert reader.skipped == 0
    assert reader.files_left_out == {
        "links out of the folder": 1,
        "unreadable without a suffix": 1,
        "not plain files": 1,
    }


def test_refresh_follows_files_without_a_suffix(tmp_path, fake_encoder):
    notes = tmp_path / "notes"
    write(notes / "README", "A lamp.")
    write(notes / "Inbox", MAILBOX)
    write(notes / "tool", b"\x7fELF\0")
    with Index.create(tmp_path / "my.index") as index:
        index.add(CorpusReader([notes], include=["*", "*.log"]), remember=True)
        assert {document.id for document in index} == {"README", "Inbox#1", "Inbox#2"}
        assert index.refresh() == RefreshReport(
            unchanged=3, files_left_out={"binary without a suffix": 1}
        )
        write(notes / "README", "A dark lamp.")
        write(notes / "a.log", "lit")
        write(notes / "Inbox", MAILBOX[: len(MAILBOX) // 2])
        write(notes / "tool", "#!/bin/sh\nlight\n")
        report = index.refresh()
        assert (report.added, report.changed, report.removed) == (2, 1, 1)
        assert {document.id for document in index} == {"README", "Inbox#1", "a.log", "tool"}


def test_a_private_key_of_a_folder_is_skipped_and_a_text_that_shows_one_is_read(tmp_path):
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n"
    write(tmp_path / "id.txt", key)
    write(tmp_path / "guide.md", f"A key begins so:\n\n{key}")
    reader = CorpusReader(tmp_path, on_error="skip-files")
    assert [document.id for document in reader] == ["guide.md"]
    assert "a private key" in reader.problems[0]
    assert [document.id for document in CorpusReader(tmp_path, as_kinds=["text=id.*"])] == [
        "guide.md",
        "id.txt",
    ]


TEXT_SUFFIXES = {
    suffix: name for name, kind in KINDS.items() if kind.is_text for suffix in kind.suffixes.split()
}


@pytest.mark.parametrize("root", ["/etc", pytest.param("/usr", marks=pytest.mark.soak)])
def test_no_binary_of_the_system_has_a_suffix_of_text(root):
    """Terminal descriptions, whose names may look so, are the one exception."""
    count = 0
    binaries = []
    for place, _, names in os.walk(root):
        for name in names:
            path = os.path.join(place, name)
            if os.path.splitext(name.lower())[1] not in TEXT_SUFFIXES or os.path.islink(path):
                continue
            try:
                with open(path, "rb") as file:
                    head = file.read(4096)
            except OSError:
                continue
            count += 1
            # Samples of encodings are text.
            if is_binary(head) and "chardet" not in path and "terminfo" not in path:
                binaries.append(path)
    if count < 100:
        pytest.skip(f"{root} has only {count} files of text")
    assert binaries == []
