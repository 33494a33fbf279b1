"""An error is one line on stderr and an exit code, and loses nothing of the index."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import sqlite3
from pathlib import Path

import pytest

from indexes.files import aside_of
from indexes.folder.connection import write_setting
from tests.cli.conftest import GOOD, assert_refused, printed_json

NEW = b'{"id": "new", "text": "New text."}\n'
NO_INDEX = "nowhere: no index here; make one with `retriever index"
FILES = {
    "bad.jsonl": NEW + b"{oops\n",
    "long.jsonl": b'{"id": "long", "text": "%s"}\n' % (b"word " * 99),
    "spaced.jsonl": b'{"id": "two words", "text": "Plums"}\n',
    "new.jsonl": NEW,
    "folder/notes.txt": b"mine",
}
# What the library refuses is tested with it; here is one refusal of each kind.
REFUSED = [
    ("index bad.jsonl", "bad.jsonl:2: not JSON"),
    ("index nowhere.jsonl", "nowhere.jsonl: no such file or folder"),
    ("query --queries nowhere.txt", "nowhere.txt: no such file"),
    ("query --queries spaced.jsonl --mode bm25 --run out.run", "'two words'"),
    ("query --queries new.jsonl --run r --facets year", "--facets has no effect with --run"),
    ("query x --where", "Option '--where' requires an argument"),
    ("delete --where 'yeer > 3'", "'yeer'"),
    ("index long.jsonl --on-long error", "32 tokens"),
    ("query x -i nowhere", NO_INDEX),
    ("reindex --on-long error -i nowhere", "--on-long error"),
    ("delete a -i folder", "folder: this folder is not an index"),
    ("index good.jsonl -i folder --recreate", "'notes.txt'"),
    ("index good.jsonl --language klingon -i new", "german"),
    ("query apples --model ::max-length=16", "made with fake"),
    ("index new.jsonl --existing -i nowhere", NO_INDEX),
    ("index new.jsonl --existing --recreate", "--existing: --recreate makes a new index"),
    ("query x --alpha 2", "alpha"),
    ("query x --fusion concat", "'convex', 'rrf'"),
    ("query caf\udce9", "lone surrogate"),
    ("quary", "No such command 'quary'; did you mean `query`? (see `retriever --help`)"),
    ("zzz", "No such command 'zzz' (see `retriever --help`)"),
    ("layers", "No such command 'layers'; did you mean `eval layers` or `inspect layers`?"),
    ("eval stz", "No such command 'stz'; did you mean `sts`? (see `retriever eval --help`)"),
    ("query x --explian", "No such option '--explian'; did you mean `--explain`"),
    ("query x -z", "No such option '-z' (see `retriever query --help`)"),
    ("query x --rrf-k 3", "rrf_k: it belongs to rrf fusion, found fusion convex"),
    ("query x --rrf-k many --fusion rrf", "expected a number, found 'many'"),
    ("index x --max-length 9", "give it as `--model MODEL::max-length=VALUE`"),
    ("index x --preset last4", "give it as `--model MODEL::NAME`"),
    ("index x --dtype int4", "Invalid value for '--dtype'"),
    ("query x --mode sparse", "'sparse' is not one of"),
    ("query x -k 0", "0 is not in the range"),
    ("query", "give TEXT or --queries FILE"),
    ("delete", "give either ids or --where"),
    ("index", "Missing argument 'SOURCE...'"),
    ("eval compare new.jsonl", "Missing option '--qrels'"),
]


def test_a_refusal_is_one_line_and_writes_nothing(retriever, good_index, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for line, message in REFUSED:
        assert_refused(retriever(*shlex.split(line)), message)
        names = {path.name for path in tmp_path.iterdir()} - {".retriever", "cache"}
        assert names == {"folder", "good.jsonl", *FILES} - {"folder/notes.txt"}, line


def test_bad_records_are_counted_and_those_before_the_first_are_kept(
    retriever, good_index, write_jsonl
):
    bad = [{"id": "x"}, {"id": None, "text": "x"}, {"id": 1, "text": 1}]
    source = write_jsonl({"id": "new", "text": "x"}, *bad * 5, {"id": "z", "text": "z"})
    assert_refused(retriever("index", source), f"{source}:2:")
    assert printed_json(retriever("info", "--json"))["documents"] == 3
    done = retriever("index", source, "--on-error", "skip")
    assert "1 added, 0 updated, 1 unchanged, 15 skipped" in done.out
    notes = done.err.splitlines()
    assert [note.split(": ")[:2] for note in notes[:10]] == [
        ["skipped", f"{source}:{line}"] for line in range(2, 12)
    ]
    assert notes[10:] == ["skipped: 5 more records"]


def test_empty_documents_are_named_and_skipped(retriever, good_index, write_jsonl):
    texts = ["new", "", *[" "] * 12]
    source = write_jsonl(*({"id": f"n{i}", "text": text} for i, text in enumerate(texts)))
    places = ", ".join(f"{source}:{line}" for line in range(2, 12))
    warning = f"warning: 13 documents without text skipped: {places} and 3 more\n"
    done = retriever("index", source, "--on-error", "fail")
    assert "1 added, 0 updated, 0 unchanged, 0 skipped, 13 empty; 1 passage " in done.out
    assert done.err == warning
    again = printed_json(retriever("index", source, "--json"))
    assert again.items() >= {"unchanged": 1, "skipped": 0, "empty": 13}.items()
    assert retriever("encode", source, "-o", "v.npy").err == warning
    assert Path("v.ids.jsonl").read_text() == '"n0"\n'


def test_a_filter_that_does_not_parse_is_shown_with_a_caret(retriever, good_index):
    for command in (["query", "x", "--mode", "bm25"], ["delete"]):
        for where, column in (("year > 3 and", 13), ("", 1)):
            done = retriever(*command, "--where", where)
            assert (done.code, done.out) == (2, "")
            output, caret, message = done.err.splitlines()
            assert (output, caret) == (where, " " * (column - 1) + "^")
            assert message.startswith(f"retriever: filter, character {column}: expected a field")


def test_an_index_of_a_newer_release_is_refused(retriever, fake_encoder, write_jsonl):
    source = write_jsonl(*GOOD)
    retriever("index", source)
    with contextlib.closing(sqlite3.connect(".retriever/index.sqlite")) as database:
        database.execute("PRAGMA user_version=99")
    for command in (["query", "x"], ["info"], ["verify"], ["delete", "a"], ["index", source]):
        assert_refused(retriever(*command), "format version 99", "upgrade")


@pytest.mark.parametrize("damage", ["missing", "altered", "database"])
def test_a_damaged_index_exits_with_three_and_names_the_file(
    retriever, fake_encoder, write_jsonl, monkeypatch, damage
):
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
    retriever("index", write_jsonl(*GOOD))
    [path] = Path(".retriever").glob("segments/*/vectors.npy")
    if damage == "missing":
        path.unlink()
    elif damage == "altered":
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\x80\x7f")
    else:
        path = Path(".retriever/index.sqlite")
        path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40_000)
    done = retriever("verify")
    assert (done.code, done.out, str(path) in done.err) == (3, "", True)
    if damage == "missing":
        report = {"sound": False, "problems": done.err.splitlines()}
        assert json.loads(retriever("verify", "--json").out) == report
    if damage != "altered":
        assert_refused(retriever("query", "apples"), str(path), code=3)
    # Indexing again is the remedy that the message names.
    assert retriever("index", write_jsonl(*GOOD), "--recreate").code == 0
    assert retriever("verify").code == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("languages", value) for value in (5, ["english"], None, {"english": "x"}, {"a": -1})),
        *(("fit", value) for value in ("x", [], None, {"weight": "x"}, {"weight": 7})),
        ("fit", {"strange_weight": [1]}),
        ("fit", {"languages": ["english"]}),
        *(("calibration", value) for value in (1.5, [1], {"hybrid": 1}, {"hybrid": {}})),
        *(("computed", 5), ("created", {}), ("probes", "x"), ("stop_list", [1])),
        *(("generation", "x"), ("next_passage", []), ("next_segment", None)),
        *((key, 5) for key in ("encoder", "analyzer", "passages", "structures")),
    ],
)
def test_a_setting_of_another_type_is_damage_whatever_its_checksum(
    retriever, fake_encoder, write_jsonl, key, value
):
    source = write_jsonl(*GOOD)
    retriever("index", source)
    with contextlib.closing(sqlite3.connect(".retriever/index.sqlite")) as database, database:
        write_setting(database, key, value)
    commands = [["info"], ["info", "--json"], ["index", source], ["delete", "a"], ["compact"]]
    for command in [*commands, ["query", "apples"]]:
        assert_refused(retriever(*command), "index.sqlite", code=3)
    verified = retriever("verify")
    assert (verified.code, verified.out, "index.sqlite" in verified.err) == (3, "", True)
    assert retriever("index", source, "--recreate").code == 0
    assert retriever("verify").code == 0


def test_remains_of_interrupted_replacement_are_named_and_compact_removes_them(
    retriever, good_index
):
    """A crash may interrupt the removal of the replaced folder."""
    aside = aside_of(Path(".retriever"))
    shutil.copytree(".retriever", aside)
    (aside / "index.sqlite").unlink()
    message = f"{aside}: left by a replacement; `retriever compact` removes it"
    assert message in retriever("info").out
    assert message in retriever("verify").err
    assert retriever("compact").code == 0
    assert not aside.exists()
