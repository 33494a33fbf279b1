"""An error is one line on stderr and an exit code, and leaves the index unchanged."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.cli.error_cases import GOOD, NEW, line, refused

pytestmark = pytest.mark.usefixtures("in_a_folder")


# What the readers refuse is tested with them.
BAD_SOURCES = {
    "empty": ("c.jsonl", b"", "c.jsonl: holds no records"),
    "not json": ("c.jsonl", NEW + b"{oops\n", "c.jsonl:2: not JSON"),
    "same id": ("c.jsonl", NEW + b"\n" + NEW, "c.jsonl:3: the id 'new' was given before, at c"),
    "utf-8": ("c.jsonl", NEW + b'{"id": "x", "text": "\xff"}\n', "c.jsonl:2: invalid UTF-8"),
    "cut gzip": ("c.jsonl.gz", gzip.compress(NEW * 9)[:30], "c.jsonl.gz: the gzip data ends too"),
    "csv quote": ("c.csv", b'id,text\n1,"x\n', "c.csv:2: a quote"),
    "no parquet": ("c.parquet", b"not parquet", "c.parquet: not a readable Parquet"),
}


@pytest.mark.parametrize(("name", "content", "said"), BAD_SOURCES.values(), ids=BAD_SOURCES)
def test_a_bad_source_is_refused_and_makes_no_vectors(
    retriever, standing, tmp_path, name, content, said
):
    (tmp_path / name).write_bytes(content)
    refused(retriever("index", name), said)
    refused(retriever("encode", name, "-o", "v.npy"), said)
    assert not list(tmp_path.glob("v.*"))


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


def test_empty_documents_are_named_and_skipped_whatever_else_is_refused(
    retriever, standing, write_jsonl
):
    texts = ["new", "", *[" "] * 12]
    source = write_jsonl(*({"id": f"n{i}", "text": text} for i, text in enumerate(texts)))
    warning = "warning: 13 documents without text skipped: "
    done = retriever("index", source, "--on-error", "fail")
    assert done.code == 0
    assert "1 added, 0 updated, 0 unchanged, 0 skipped, 13 empty; 1 passage " in done.out
    places = ", ".join(f"{source}:{line}" for line in range(2, 12))
    assert done.err == f"{warning}{places} and 3 more\n"
    again = retriever("index", source, "--json")
    assert json.loads(again.out).items() >= {"unchanged": 1, "skipped": 0, "empty": 13}.items()
    encoded = retriever("encode", source, "-o", "v.npy")
    assert encoded.err.startswith(warning)
    assert Path("v.ids.jsonl").read_text() == '"n0"\n'


def test_an_empty_query_of_a_file_is_an_error(retriever, standing, write_jsonl):
    source = write_jsonl({"id": "q1", "text": "apples"}, {"id": "q2", "text": " "})
    refused(
        retriever("query", "--queries", source),
        f"{source}:2: expected a text or a title, found neither",
    )


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
    refused(retriever(*command, "-i", "folder"), "folder: this folder is not an index")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "notes.txt"]


def test_an_index_is_not_made_over_other_files(retriever, write_jsonl, tmp_path):
    source = write_jsonl(*GOOD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    for options in ([], ["--recreate"]):
        refused(retriever("index", source, "-i", source, *options), "found a file")
        refused(retriever("index", source, "-i", "folder", *options), "folder: ", "'notes.txt'")
        refused(retriever("index", source, "-i", "/", *options), "/: ")
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
    shorter = {"query": ["--model", "::max-length=16"], "index": ["--model", "::max-length=16"]}
    for command in (["query", "apples"], ["index", "good.jsonl"]):
        refused(retriever(*command, "--model", model), "made with fake", model)
        refused(retriever(*command, *shorter[command[0]]), "max-length=32", "max-length=16")


def test_a_model_that_is_not_there_is_refused(retriever, write_jsonl):
    from retriever.encoders.model_folders import find_model

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
    "option",
    [["--language", "german"], ["--set", "stemming=no"], ["--on-long", "truncate"]],
    ids=str,
)
def test_other_settings_than_the_index_has_are_refused(retriever, standing, option):
    refused(retriever("index", "good.jsonl", *option), ".retriever: the index was made with")


@pytest.mark.parametrize(
    "option",
    [["--alpha", "2"], ["--set", "k1=-1"], ["--set", "b=nan"], ["--set", "rrf-k=0"]],
    ids=str,
)
def test_impossible_ranking_settings_are_refused(retriever, standing, option):
    key = option[-1].partition("=")[0] if option[0] == "--set" else option[0].strip("-")
    refused(retriever("query", "x", *option), key.replace("-", "_"))


@pytest.mark.parametrize(
    ("fusion", "option"),
    [
        ("rrf", ("--alpha", "0.6")),
        ("rrf", ("--set", "normalization=min-max")),
        ("convex", ("--set", "rrf-k=60")),
    ],
    ids=str,
)
def test_an_option_of_another_fusion_is_refused(retriever, standing, fusion, option):
    key = option[-1].partition("=")[0] if option[0] == "--set" else option[0].strip("-")
    said = f"{key.replace('-', '_')}: it belongs to "
    refused(retriever("query", "x", "--fusion", fusion, *option), said, f"found fusion {fusion}")


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
    refused(retriever("eval", "compare", "folder.npy", "--qrels", queries), "expected")
    refused(retriever("eval", "compare", queries, "--qrels", "folder.npy"), "npy: cannot be read")
    refused(retriever("eval", "compare", queries, "--qrels", "none"), "none: no such file")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["quary"], "No such command 'quary'; did you mean `query`? (see `retriever --help`)"),
        (["zzz"], "No such command 'zzz' (see `retriever --help`)"),
        (["layers"], "No such command 'layers'; did you mean `eval layers` or `inspect layers`?"),
        (["eval", "stz"], "No such command 'stz'; did you mean `sts`? (see `retriever eval --he"),
        (["query", "x", "--explian"], "No such option '--explian'; did you mean `--explain`?"),
        (["query", "x", "-z"], "No such option '-z' (see `retriever query --help`)"),
        (["query", "x", "-k"], "Option '-k' requires an argument"),
        (["query", "x", "--mode", "sparse"], "'sparse' is not one of"),
        (["query", "x", "-k", "0"], "0 is not in the range"),
        (["query"], "give TEXT or --queries FILE"),
        (["query", "x", "--queries", "f"], "give either TEXT or --queries"),
        (["query", "x", "--run", "f"], "--run needs --queries"),
        (["delete"], "give either ids or --where"),
        (["delete", "a", "--where", "n = 1"], "give either ids or --where"),
        (["index"], "Missing argument 'SOURCE...'"),
        (["encode", "f"], "expected either --output or --shards"),
        (["eval", "compare", "f"], "Missing option '--qrels'"),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_two_and_says_what_is_wrong(retriever, standing, arguments, said):
    refused(retriever(*arguments), said)
