"""`retriever index`: sources and what is said of them, empty documents, interruptions, copies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from retriever import Index
from retriever.index.indexing.run import CommitSettings
from tests.cli.conftest import GOOD, assert_refused, printed_json, printed_lines

pytestmark = pytest.mark.usefixtures("fake_encoder")
ESCAPE = "\x1b]0;title\x07\n\x9b31m"


def test_index_prints_column_types_and_takes_types_option(retriever):
    header, *rows = 'id,text,zip,"a,b",c=d', "1,text,90210,true,6", "2,text,01234,false,6"
    Path("c.csv").write_text("\n".join([header, *rows, ""]))
    done = retriever("index", "c.csv")
    types = "zip string, a,b boolean, c=d number"
    assert done.err == f"note: c.csv: types of columns: {types} (change them with --types)\n"
    arguments = ("--types", "zip=number,a,b=string", "--types", "c=d=date", "--json")
    done = retriever("index", "c.csv", *arguments)
    columns = {"zip": "number", "a,b": "string", "c=d": "date"}
    assert printed_json(done)["columns"] == {"c.csv": columns}
    assert "type number: cells that do not fit and stay text: 1, the first at c.csv:3: '01234'" in (
        done.err
    )
    hits = retriever("query", "text", "--where", "zip > 90", "--mode", "bm25", "--json")
    assert [hit["id"] for hit in printed_lines(hits)] == ["1"]
    names = [f"n{number:02}" for number in range(23)]
    Path("wide.csv").write_text(f"text,{','.join(names)}\nx,{','.join('1' * 23)}\n")
    many = ", ".join(f"{name} number" for name in names[:20])
    assert f"types of columns: {many}, 3 more (" in retriever("index", "wide.csv").err
    Path("wide.csv").write_text(f"text,{','.join(names)}\nx,{','.join('0' * 23)}\n")
    arguments = ("--types", ",".join(f"{name}=date" for name in names))
    report = retriever("index", "wide.csv", *arguments).err.splitlines()
    assert sum(line.startswith("warning: ") for line in report) == 21
    assert report[-1] == "warning: 3 more warnings about columns and fields"


def test_index_notes_guessed_encodings_and_takes_csv_settings(retriever):
    Path("notes").mkdir()
    Path("notes/a.md").write_bytes("naïve Müller".encode("cp1252"))
    remedy = "convert it to UTF-8, or give `--set encoding=NAME` if the command has that setting"
    message = "note: 1 file read as cp1252, not UTF-8, the first notes/a.md; if that is wrong, "
    assert message + remedy in retriever("index", "notes").err.splitlines()
    for wrong in (b"tw\xc3\n", b"n\0o\n", b"\xff\xfea"):
        Path("q.txt").write_bytes(wrong)
        assert_refused(retriever("query", "--queries", "q.txt"), "q.txt", remedy)
    Path("c.csv").write_bytes("7\tпривет\n8\tмир\n".encode("cp1251"))
    form = ("encoding=cp1251", "delimiter=tab", "no-header=yes")
    arguments = [part for one in form for part in ("--set", one)]
    fields = ("--id-field", "1", "--text-field", "2")
    done = retriever("index", "c.csv", "-i", "c", *fields, *arguments, "--json")
    assert printed_json(done)["added"] == 2
    hits = retriever("query", "привет", "-i", "c", "--mode", "bm25", "--json")
    assert [(hit["id"], hit["passage"]) for hit in printed_lines(hits)] == [("7", "привет")]
    arguments = ("index", "c.csv", "--set")
    assert_refused(retriever(*arguments, "encoding=no"), "encoding: expected a name", "'no'")
    assert_refused(retriever(*arguments, "delimiter=||"), "delimiter: expected one character")


def test_index_skips_and_names_file_without_reader_library(retriever, monkeypatch):
    Path("a.md").write_text("text")
    Path("b.pdf").write_text("%PDF-")
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    done = retriever("index", "a.md", "b.pdf", "--json")
    counts = printed_json(done)
    assert (counts["added"], counts["skipped"]) == (1, 1)
    assert "skipped: b.pdf: reading PDF files needs pypdfium2, which is not" in done.err
    alone = retriever("index", "b.pdf")
    assert alone.code == 2
    assert alone.err.splitlines()[-1].startswith("retriever: b.pdf: reading PDF files needs")


@pytest.mark.parametrize("types", ["zip", "=string", "zip=", "zip=string,zip=date", "zip=string,,"])
def test_index_refuses_malformed_types_option(retriever, types):
    Path("c.csv").write_text("id,text,zip\n1,text,90210\n")
    assert_refused(
        retriever("index", "c.csv", "--types", types), "--types: expected NAME=TYPE", types
    )
    assert_refused(
        retriever("index", "c.csv", "--types", "zip=int"), "column 'zip'", "date", "'int'"
    )
    assert not Path(".retriever").exists()


def test_shards_and_imports_say_what_metadata_lacks(retriever):
    Path("c.jsonl").write_text('{"id": 1, "text": "x", "n": 1e999}\n')
    done = retriever("encode", "c.jsonl", "--shards", "shards", "-q")
    left_out = "the field 'n' left out of 1 document, the first at c.jsonl:1: holds inf"
    assert done.err.startswith(f"warning: {left_out}")
    assert retriever("encode", "c.jsonl", "-o", "v.npy", "-q").err == ""
    with pytest.warns(UserWarning, match=left_out):
        done = retriever("import", "c.jsonl", "--vectors", "v.npy", "--model", "fake", "-q")
    assert done.code == 0


def test_index_skips_unreadable_files_of_folder_and_reads_others(retriever):
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("text")
    Path("texts/b.txt").symlink_to("nowhere.txt")
    Path("texts/c.pdf").write_text("no PDF")
    message = [
        "texts/b.txt: no such file or folder",
        "texts/c.pdf: no PDF file, whatever its name; rename it",
    ]
    assert_refused(retriever("index", "texts", "--on-error", "fail"), message[0])
    for arguments in ((), ("--on-error", "skip")):
        done = retriever("index", "texts", "--recreate", *arguments)
        assert done.err.splitlines()[1:] == [
            *(f"skipped: {note}" for note in message),
            "files        1 read: 1 text",
            "skipped      2 files",
        ]
        assert "1 added, 0 updated, 0 unchanged, 0 deleted, 2 skipped" in done.out
    # What is named itself, and a folder in which nothing can be read.
    for number, arguments in [
        (0, ("index", "texts", "--exclude", "a.txt")),
        (1, ("index", "texts/c.pdf")),
        (1, ("index", "texts/a.txt", "texts/c.pdf")),
        *[(1, ("query", "x", "--in", "texts/c.pdf"))] * 2,
    ]:
        done = retriever(*arguments)
        assert done.code == 2
        # From the memory of its sources the second time, which has whole paths.
        assert done.err.splitlines()[-1].endswith(message[number])


def printed(retriever, *arguments):
    """Return the output of a command after checking that it has no control characters."""
    done = retriever(*arguments)
    for text in (done.out, done.err):
        assert not {one for one in text if not one.isprintable()} - {"\n"}
    return done


def test_control_characters_of_file_and_field_names_are_escaped_at_terminal(retriever):
    name = f"c{ESCAPE}.csv"
    Path(name).write_text("id,body\n1,text\n")
    assert_refused(printed(retriever, "index", name), "no text column")
    Path(name).write_text(f'id,text,"n{ESCAPE}"\n1,text,5\n1,text,6\n')
    done = printed(retriever, "index", name, "--on-error", "skip")
    assert done.err.count("\n") == 2
    Path("c.jsonl").write_text(json.dumps({"id": 1, "text": "x", ESCAPE: 1e999}))
    folder = f"i{ESCAPE}"
    assert printed(retriever, "index", "c.jsonl", "-i", folder).err.count("\n") == 1
    assert printed(retriever, "info", "-i", folder).out.count("\n") > 5
    assert printed(retriever, "verify", "-i", folder).out.count("\n") == 1
    # In a process of its own, which formats warnings.
    command = [sys.executable, "-m", "cli.main", "query", "x", "--mode", "bm25"]
    warned = subprocess.run(
        [*command, "--where", f"`{ESCAPE}x` = 1"], capture_output=True, text=True, check=False
    )
    assert warned.stderr.startswith("warning: filter: no document has the field")
    assert warned.stderr.count("\n") == 2
    assert warned.stderr.replace("\n", "").isprintable()
    Path("queries.txt").write_text("x\x1b[31m\n")
    assert printed(retriever, "query", "--queries", "queries.txt").code == 0
    name = os.fsdecode(b"i\xff")
    assert printed(retriever, "index", "c.jsonl", "-i", name).out.startswith("i\ufffd: 1 added")


def test_an_empty_document_deletes_the_one_with_its_id(retriever, fake_encoder, write_jsonl):
    source = write_jsonl({"id": "a", "text": "x"}, {"id": "b", "text": "y"})
    retriever("index", source)
    write_jsonl({"id": "a", "text": " "}, {"id": "b", "text": "y"})
    done = retriever("index", source)
    assert done.out.startswith(".retriever: 0 added, 0 updated, 1 unchanged, 1 deleted, ")
    assert done.err == (
        f"warning: 1 document without text skipped: {source}:1\n"
        "note: 1 document deleted, whose new version is empty\n"
    )


def test_interrupted_index_run_prints_committed_documents(
    retriever, write_jsonl, fake_encoder, monkeypatch
):
    source = write_jsonl(*({"id": f"d{i}", "text": f"text number n{i}"} for i in range(20)))
    encode, windows = fake_encoder.encode_pieces, iter(range(2))

    def interrupted(pieces, done):
        if next(windows, None) is None:
            raise KeyboardInterrupt
        return encode(pieces, done)

    small = CommitSettings(window_passages=4)
    monkeypatch.setattr("retriever.index.indexing.indexer.CommitSettings", lambda: small)
    with monkeypatch.context() as patch:
        patch.setattr(fake_encoder, "encode_pieces", interrupted)
        done = retriever("index", source)
    message = ".retriever: 8 documents committed; vectors in progress are lost; run the "
    message += "same command again to resume\n\nretriever: interrupted\n"
    assert (done.code, done.err) == (130, message)
    with Index.open(".retriever") as index:
        assert len(index) == 8
    assert "12 added, 0 updated, 8 unchanged" in retriever("index", source).out


def test_index_existing_option_keeps_settings_of_index(retriever, fake_encoder, write_jsonl):
    arguments = (
        "index",
        write_jsonl({"id": "new", "text": "New text."}, name="new.jsonl"),
        "--existing",
    )
    retriever("index", write_jsonl(*GOOD), "--language", "german", "-q")
    assert printed_json(retriever(*arguments, "--json"))["added"] == 1
    assert_refused(retriever(*arguments, "--language", "french"), "made with")
    info = printed_json(retriever("info", "--json"))
    assert (info["documents"], info["analyzer"]["language"]) == (3, "german")


def test_exact_copies_are_counted(retriever, fake_encoder, write_jsonl):
    texts = {"a": "one", "b": "one", "c": "two", "d": "one"}
    source = write_jsonl(
        *({"id": id_, "text": text, "n": id_} for id_, text in texts.items()),
        {"id": "e", "text": "one", "title": "another"},
    )
    assert "; exact copies of others: 2; " in retriever("index", source).out
    retriever("delete", "a")
    info = retriever("info").out
    assert "documents    4, 1 of them exact copies of others\n" in info
    source = write_jsonl({"id": "d", "text": "three"})
    assert printed_json(retriever("index", source, "--json"))["copies"] == 0
    assert printed_json(retriever("info", "--json"))["copies"] == 0
