"""What goes wrong is one line on stderr and an exit code, and the index stands as it was."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import traceback
import warnings
from pathlib import Path

import pytest

from indexes.lock import WriterLock

GOOD = [{"id": "a", "text": "Apples are red.", "n": 1}, {"id": "b", "text": "Pears are green."}]


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch, fake_encoder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)


@pytest.fixture
def standing(retriever, write_jsonl):
    """An index that still answers, is sound and holds what it held when the test is over."""
    assert retriever("index", write_jsonl(*GOOD, name="good.jsonl"), "--quiet").code == 0
    yield
    hits = retriever("query", "apples", "--mode", "bm25", "--json").out
    assert json.loads(hits)["id"] == "a"
    assert retriever("verify") == (0, ".retriever: sound\n", "")


def refused(outcome, *parts, code=2):
    """The command ended with `code` and one line on stderr that holds `parts`."""
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.startswith("retriever: ")
    assert outcome.err.endswith("\n")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err


def line(record):
    return json.dumps(record).encode() + b"\n"


def parquet(**columns):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


NEW = line({"id": "new", "text": "New text."})
BAD_SOURCES = {
    "empty": ("c.jsonl", b"", ["c.jsonl: holds no records"]),
    "blank": ("c.jsonl", b"\n\n", ["c.jsonl: holds no records"]),
    "not json": ("c.jsonl", NEW + b"{oops\n", ["c.jsonl:2: not JSON"]),
    "no object": ("c.jsonl", NEW + b"[1]\n", ["c.jsonl:2: expected a JSON object"]),
    "no text": ("c.jsonl", line({"id": "x", "n": 1}), ["c.jsonl:1: no text field", "'n'"]),
    "text number": ("c.jsonl", NEW + line({"id": "x", "text": 5}), ["c.jsonl:2:", "number 5"]),
    "null id": ("c.jsonl", NEW + line({"id": None, "text": "x"}), ["c.jsonl:2: id is null"]),
    "same id": ("c.jsonl", NEW + b"\n" + NEW, ["c.jsonl:3:", "'new'", "c.jsonl:1"]),
    "nul id": ("c.jsonl", NEW + line({"id": "a\0", "text": "x"}), ["c.jsonl:2:", "NUL"]),
    "utf-8": ("c.jsonl", NEW + b'{"id": "x", "text": "\xff"}\n', ["c.jsonl:2: invalid UTF-8"]),
    "nan": ("c.jsonl", NEW + b'{"id": "x", "text": "x", "m": NaN}\n', ["c.jsonl:2:", "'m'", "nan"]),
    "array": ("c.json", b'[{"text": "x"}]', ["c.json:", "jq -c"]),
    "cut gzip": ("c.jsonl.gz", gzip.compress(NEW * 9)[:30], ["c.jsonl.gz: the gzip data ends too"]),
    "bad gzip": ("c.jsonl.gz", b"\x1f\x8b junk", ["c.jsonl.gz: the gzip data"]),
    "csv column": ("c.csv", b"id,body\n1,x\n", ["c.csv:1: no text column", "'body'"]),
    "csv cells": ("c.csv", b"id,text\n1,x,y\n", ["c.csv:2: expected 2 cells"]),
    "csv quote": ("c.csv", b'id,text\n1,"x\n', ["c.csv:2: a quote"]),
    "no parquet": ("c.parquet", b"not parquet", ["c.parquet: not a readable Parquet"]),
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_a_bad_source_is_refused_naming_file_and_line(retriever, standing, tmp_path, case):
    name, content, parts = BAD_SOURCES[case]
    (tmp_path / name).write_bytes(content)
    refused(retriever("index", name), *parts)


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_a_bad_source_makes_no_vectors(retriever, tmp_path, case):
    name, content, parts = BAD_SOURCES[case]
    (tmp_path / name).write_bytes(content)
    refused(retriever("encode", name, "-o", "v.npy"), *parts)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_parquet_of_the_wrong_type_names_the_column(retriever, standing, tmp_path):
    (tmp_path / "c.parquet").write_bytes(parquet(id=["1"], text=[5]))
    refused(retriever("index", "c.parquet"), "c.parquet:", "'text' is of type int64", "strings")


def test_a_missing_source_is_refused(retriever, standing):
    refused(retriever("index", "nowhere.jsonl"), "nowhere.jsonl: no such file or folder")
    refused(retriever("encode", "nowhere.jsonl", "-o", "v.npy"), "nowhere.jsonl: no such file")
    refused(retriever("query", "--queries", "nowhere.txt"), "nowhere.txt: no such file")


def test_a_folder_without_texts_is_refused(retriever, standing, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "."):
        refused(retriever("index", name), f"{name}: the folder holds no .txt or .md file")


def test_what_was_read_before_a_bad_line_is_kept(retriever, standing, tmp_path):
    good = b"".join(line({"id": f"n{i}", "text": f"text {i}"}) for i in range(700))
    (tmp_path / "c.jsonl").write_bytes(good + b"oops\n")
    refused(retriever("index", "c.jsonl"), "c.jsonl:701:")
    assert json.loads(retriever("info", "--json").out)["documents"] == 702


def test_bad_records_can_be_skipped_and_are_counted(retriever, standing, tmp_path):
    bad = [
        b"oops\n",
        line({"id": "x"}),
        line({"id": None, "text": "x"}),
        line({"id": 1, "text": 1}),
    ]
    (tmp_path / "c.jsonl").write_bytes(NEW + b"".join(bad * 4) + line({"id": "z", "text": "z"}))
    done = retriever("index", "c.jsonl", "--on-error", "skip")
    assert done.code == 0
    assert "2 added, 0 updated, 0 unchanged, 16 skipped" in done.out
    notes = done.err.splitlines()
    assert [note.split(": ")[:2] for note in notes[:2]] == [
        ["skipped", "c.jsonl:2"],
        ["skipped", "c.jsonl:3"],
    ]
    assert len(notes) == 11
    assert notes[-1] == "skipped: 6 more records"


@pytest.mark.parametrize(
    ("where", "column", "expected"),
    [
        ("year >", 7, "expected a number or a string"),
        ("year > 3 and", 13, "expected a field name"),
        ("year ~ 3", 6, "found '~'"),
        ('title = "open', 9, 'a closing "'),
        ("", 1, "expected a field name"),
        ("n = 1; drop table documents", 6, "found ';'"),
    ],
)
@pytest.mark.parametrize("command", [["query", "x", "--mode", "bm25"], ["delete"]], ids=str)
def test_a_filter_that_does_not_parse_is_shown_with_a_caret(
    retriever, standing, command, where, column, expected
):
    done = retriever(*command, "--where", where)
    assert (done.code, done.out) == (2, "")
    shown, caret, message = done.err.splitlines()
    assert shown == where
    assert caret == " " * (column - 1) + "^"
    assert message.startswith(f"retriever: filter, character {column}: ")
    assert expected in message


@pytest.mark.parametrize(
    "command", [["query", "x"], ["info"], ["verify"], ["delete", "a"]], ids=str
)
def test_a_place_without_an_index_is_refused_by_every_command(retriever, tmp_path, command):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    refused(retriever(*command), ".retriever: no index here; make one with `retriever index")
    refused(retriever(*command, "-i", "file"), "file: expected an index folder, found a file")
    refused(retriever(*command, "-i", "folder"), "folder: this folder is no index")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "notes.txt"]


def test_an_index_is_not_made_over_other_files(retriever, write_jsonl, tmp_path):
    source = write_jsonl(*GOOD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    for options in ([], ["--recreate"]):
        refused(retriever("index", source, "-i", source, *options), "found a file")
        refused(retriever("index", source, "-i", "folder", *options), "folder: ", "'notes.txt'")
    assert (tmp_path / "folder" / "notes.txt").read_text() == "mine"


def test_an_index_of_a_newer_release_is_refused(retriever, write_jsonl):
    source = write_jsonl(*GOOD)
    retriever("index", source)
    with contextlib.closing(sqlite3.connect(".retriever/index.sqlite")) as database:
        database.execute("PRAGMA user_version=99")
    for command in (["query", "x"], ["info"], ["verify"], ["delete", "a"], ["index", source]):
        refused(retriever(*command), "format version 99", "upgrade")


def test_another_model_is_refused_naming_both(retriever, standing, tiny_models):
    model = str(tiny_models["bert"])
    for command in (["query", "apples"], ["index", "good.jsonl"]):
        refused(retriever(*command, "--model", model), "made with fake", model)
        refused(retriever(*command, "--max-length", "16"), "max-length=32", "max-length=16")


def test_a_model_that_is_not_there_is_refused(retriever, write_jsonl):
    from retriever.encoders.models import find_model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "retriever.encoders.encoder.Encoder.load",
            lambda settings, **_: find_model(settings.model),
        )
        refused(
            retriever("index", write_jsonl(*GOOD), "--model", "no/such"),
            "no model 'no/such'",
            "bundled models: all-MiniLM-L6-v2",
        )


@pytest.mark.parametrize(
    "option", [["--language", "german"], ["--no-stemming"], ["--on-long", "truncate"]], ids=str
)
def test_other_settings_than_the_index_has_are_refused(retriever, standing, option):
    refused(retriever("index", "good.jsonl", *option), ".retriever: the index was made with")


@pytest.mark.parametrize(
    "option",
    [["--alpha", "2"], ["--k1", "-1"], ["--b", "nan"], ["--rrf-k", "0"]],
    ids=str,
)
def test_impossible_ranking_settings_are_refused(retriever, standing, option):
    refused(retriever("query", "x", *option), option[0].strip("-").replace("-", "_"))


def test_an_unknown_language_lists_the_known_ones(retriever, write_jsonl):
    refused(retriever("index", write_jsonl(*GOOD), "--language", "klingon"), "klingon", "german")


def test_a_text_beyond_the_window_is_refused_on_demand(retriever, standing, write_jsonl):
    source = write_jsonl({"id": "long", "text": "word " * 99})
    refused(retriever("index", source, "--on-long", "error"), "'long'", "32 word pieces")
    refused(
        retriever("encode", source, "-o", "v.npy", "--on-long", "error"), "'long'", "32 word pieces"
    )


@pytest.mark.parametrize("text", ["", "  "])
def test_a_blank_query_is_refused(retriever, standing, text):
    refused(retriever("query", text), "query 1 is empty")


def test_a_query_that_is_not_utf_8_is_refused(retriever, standing):
    refused(retriever("query", os.fsdecode(b"caf\xe9")), "lone surrogate")


@pytest.mark.parametrize("option", ["--queries", "--run"])
def test_an_id_with_white_space_cannot_go_into_a_run(retriever, standing, write_jsonl, option):
    source = write_jsonl({"id": "two words", "text": "Plums"}, name="spaced.jsonl")
    name = source if option == "--queries" else write_jsonl({"id": "q", "text": "plums"})
    if option == "--run":
        retriever("index", source, "--quiet")
    done = retriever("query", "--mode", "bm25", "--queries", name, "--run", "out.run")
    refused(done, "'two words'", "white space")
    assert not Path("out.run").exists()


def test_files_where_folders_are_meant_and_the_other_way_round(retriever, standing, write_jsonl):
    queries = write_jsonl({"id": "q", "text": "apples"})
    Path("folder.npy").mkdir()
    refused(retriever("encode", "good.jsonl", "-o", "folder.npy"), "folder.npy: expected a file")
    refused(retriever("encode", "good.jsonl", "-o", "no/v.npy"), "no/v.npy: expected a file in")
    refused(retriever("encode", "good.jsonl", "-o", "good.jsonl"), "good.jsonl: expected a file")
    run = ["query", "--queries", queries, "--mode", "bm25", "--run"]
    refused(retriever(*run, "folder.npy"), "folder.npy: cannot write the run")
    refused(retriever(*run, "no/out.run"), "no/out.run: cannot write the run")
    refused(retriever("eval", "run", "folder.npy", "--qrels", queries), "expected")
    refused(retriever("eval", "run", queries, "--qrels", "folder.npy"), "folder.npy: expected a re")
    refused(retriever("eval", "run", queries, "--qrels", "none"), "none: expected a readable file")


def test_another_writer_is_named(retriever, standing):
    with WriterLock(Path(".retriever")):
        for command in (["index", "good.jsonl"], ["index", "good.jsonl", "--recreate"]):
            refused(retriever(*command), f"process {os.getpid()}", "wait until it has finished")
        refused(retriever("delete", "a"), "another writer")
        assert retriever("query", "apples", "--mode", "bm25").code == 0
        assert retriever("verify").code == 0


@pytest.mark.parametrize("place", ["save_array", "fsync_tree"])
def test_a_disk_that_fills_up_is_one_line_and_loses_nothing(
    retriever, standing, write_jsonl, monkeypatch, place
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    source = write_jsonl({"id": "new", "text": "New."})
    with monkeypatch.context() as patch:
        patch.setattr(f"indexes.segment.{place}", full)
        refused(retriever("index", source), "the disk is full", "run the same command again")
        refused(retriever("index", source, "--recreate"), "the disk is full")
    assert retriever("index", source).code == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if mount is None or subprocess.run([mount, *options], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_really_full_disk_is_one_line_and_loses_nothing(retriever, write_jsonl, small_disk):
    folder = small_disk / "index"
    first = [{"id": f"a{i}", "text": f"Apples number {i}."} for i in range(50)]
    assert retriever("index", write_jsonl(*first), "-i", folder).code == 0
    much = [{"id": f"b{i}", "text": f"Pears {i} " * 20} for i in range(3000)]
    source = write_jsonl(*much, name="much.jsonl")
    refused(retriever("index", source, "-i", folder), "the disk is full")
    refused(retriever("index", source, "-i", folder, "--recreate"), "the disk is full")
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 1024)
    refused(retriever("index", source, "-i", folder), "the disk is full")
    refused(retriever("encode", source, "-o", small_disk / "v.npy"), "the disk is full")
    (small_disk / "filler").unlink()
    assert retriever("verify", "-i", folder).code == 0
    hits = retriever("query", "apples", "-i", folder, "--mode", "bm25", "--json", "-k", "99").out
    assert len(hits.splitlines()) == 50


@pytest.fixture
def shared_folder():
    """A folder that every user can reach, which those that pytest makes are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def as_an_ordinary_user(retriever, *arguments):
    """Run the command line in a copy of this process that is not the superuser."""
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        # Python warns of forking with threads about; the child does next to nothing.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        outcome = (-1, "", "")
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            outcome = retriever(*arguments)
        except BaseException:
            outcome = (-1, "", traceback.format_exc())
        finally:
            os.write(sender, json.dumps(outcome).encode())
            os._exit(0)
    os.close(sender)
    with open(receiver) as file:
        code, out, err = json.load(file)
    os.waitpid(child, 0)
    return type(retriever("--version"))(code, out, err)


def test_files_and_folders_without_permission_are_refused(retriever, standing, shared_folder):
    source, folder = shared_folder / "c.jsonl", shared_folder / "index"
    source.write_bytes(NEW)
    source.chmod(0o644)
    assert retriever("index", source, "-i", folder).code == 0
    secret = shared_folder / "secret.jsonl"
    secret.write_bytes(NEW)
    secret.chmod(0)
    anyone = shared_folder / "anyone"
    anyone.mkdir()
    anyone.chmod(0o777)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    shared_folder.chmod(0o555)
    try:
        # Once as the superuser, so that everything is imported that may be.
        retriever("delete", "nobody", "-i", folder)
        for command, part in (
            (["index", secret, "-i", anyone / "i"], "secret.jsonl: cannot be read: Permission den"),
            (["query", "--queries", secret, "-i", folder], "secret.jsonl: cannot be read"),
            (["index", source, "-i", folder], "permission denied"),
            (["index", source, "-i", folder, "--recreate"], "permission denied"),
            (["index", source, "-i", shared_folder / "other"], "permission denied"),
            (["delete", "new", "-i", folder], "permission denied"),
            (["encode", source, "-o", shared_folder / "v.npy"], "permission denied"),
            (
                ["query", "--queries", source, "-i", folder, "--run", shared_folder / "run"],
                "cannot write the run (Permission denied)",
            ),
        ):
            refused(as_an_ordinary_user(retriever, *command), part)
        found = as_an_ordinary_user(retriever, "query", "text", "-i", folder, "--json")
        assert json.loads(found.out)["id"] == "new"
        assert as_an_ordinary_user(retriever, "verify", "-i", folder).code == 0
    finally:
        for path in [shared_folder, folder, *folder.rglob("*")]:
            path.chmod(0o755)


@pytest.mark.parametrize("damage", ["missing", "short", "altered", "database"])
def test_a_damaged_index_exits_with_three_and_names_the_file(retriever, write_jsonl, damage):
    retriever("index", write_jsonl(*GOOD))
    [path] = Path(".retriever").glob("segments/*/vectors.npy")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(content[:-4])
    elif damage == "altered":
        path.write_bytes(content[:-4] + b"\0\0\x80\x7f")
    else:
        path = Path(".retriever/index.sqlite")
        path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40_000)
    done = retriever("verify")
    assert done.code == 3
    assert str(path) in done.err
    assert done.out == ""
    if damage != "altered":
        refused(retriever("query", "apples"), str(path), code=3)
    if damage == "missing":
        problems = json.loads(retriever("verify", "--json").out)
        assert not problems["sound"]
        assert str(path) in problems["problems"][0]
    # Indexing again is the remedy that the message names.
    assert retriever("index", write_jsonl(*GOOD), "--recreate").code == 0
    assert retriever("verify").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["quary"], "No such command 'quary'"),
        (["query", "x", "--mode", "sparse"], "'sparse' is not one of"),
        (["query", "x", "-k", "0"], "0 is not in the range"),
        (["query"], "give TEXT or --queries FILE"),
        (["query", "x", "--queries", "f"], "give either TEXT or --queries"),
        (["query", "x", "--run", "f"], "--run needs --queries"),
        (["delete"], "give either ids or --where"),
        (["delete", "a", "--where", "n = 1"], "give either ids or --where"),
        (["index"], "Missing argument 'SOURCE...'"),
        (["encode", "f"], "Missing option '--output'"),
        (["eval", "run", "f"], "Missing option '--qrels'"),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_two_and_says_what_is_wrong(retriever, standing, arguments, said):
    done = retriever(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err.splitlines()[-1]
