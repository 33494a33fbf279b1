"""What the command line says of sources: types of columns, what was left out, and foreign text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.error_cases import refused

pytestmark = pytest.mark.usefixtures("in_a_folder")
ESCAPE = "\x1b]0;title\x07\n\x9b31m"


def ids(retriever, where):
    done = retriever("query", "text", "--where", where, "--mode", "bm25", "--json")
    return [json.loads(line)["id"] for line in done.out.splitlines()]


def test_types_of_columns_are_said_and_can_be_given(retriever):
    Path("c.csv").write_text(
        "id,text,zip,born,ok\n"
        "1,text,90210,2019-12-31,true\n"
        "2,text,01234,2020-01-01T01:00:00+02:00,false\n"
        "3,text,10115,2020-01-01,true\n"
    )
    done = retriever("index", "c.csv")
    types = "zip string, born date, ok boolean"
    assert done.err == f"note: c.csv: types of columns: {types} (--types gives others)\n"
    assert ids(retriever, 'zip = "90210"') == ["1"]
    assert ids(retriever, 'born >= "2020-01-01"') == ["3"]
    assert ids(retriever, 'born >= "2019-12-31T22:00" and ok = false') == ["2"]
    done = retriever("index", "c.csv", "--types", "zip=number,born=string", "--json")
    summary = json.loads(done.out)
    assert summary["columns"] == {"c.csv": {"zip": "number", "born": "string", "ok": "boolean"}}
    assert (summary["updated"], summary["passages"]) == (3, 0)
    assert "type number: cells that do not fit and stay text: 1, the first at c.csv:3: '01234'" in (
        done.err
    )
    assert ids(retriever, "zip > 10115") == ["1"]
    assert ids(retriever, 'zip = "01234"') == ["2"]
    assert ids(retriever, 'born = "2020-01-01T01:00:00+02:00"') == ["2"]


def test_a_column_of_different_types_in_two_sources_is_named(retriever):
    Path("a.csv").write_text("id,text,zip\n1,text,90210\n")
    Path("b.csv").write_text("id,text,zip\n2,text,01234\n")
    done = retriever("index", "a.csv", "b.csv")
    warning = "warning: the column 'zip' is number in a.csv, string in b.csv; "
    assert warning + "give it one type with --types zip=TYPE\n" in done.err
    done = retriever("index", "a.csv", "b.csv", "--types", "zip=string")
    assert "warning" not in done.err
    assert ids(retriever, 'zip in ("90210", "01234")') == ["1", "2"]


@pytest.mark.parametrize("given", ["zip", "=string", "zip=", "zip=string,zip=date", "zip=string,,"])
def test_malformed_types_are_refused(retriever, given):
    Path("c.csv").write_text("id,text,zip\n1,text,90210\n")
    refused(retriever("index", "c.csv", "--types", given), "--types: expected NAME=TYPE", given)
    refused(retriever("index", "c.csv", "--types", "zip=int"), "column 'zip'", "date", "'int'")
    assert not Path(".retriever").exists()


def test_types_need_columns_that_are_kept(retriever):
    Path("c.csv").write_text("id,text,zip\n1,text,90210\n")
    types = ("--types", "zip=string")
    refused(retriever("encode", "c.csv", "-o", "v.npy", *types), "--types: needs --shards")
    refused(retriever("import", "c.csv", *types), "types are for columns of CSV and TSV")
    Path("c.jsonl").write_text('{"id": 1, "text": "x", "zip": 1}\n')
    refused(retriever("index", "c.jsonl", *types), "c.jsonl: expected CSV or TSV", "found jsonl")


def test_a_name_with_a_comma_gets_a_type(retriever):
    Path("c.csv").write_text('id,text,"a,b",c=d\n1,text,5,6\n')
    done = retriever("index", "c.csv", "--types", "a,b=string,c=d=date", "--json")
    assert json.loads(done.out)["columns"] == {"c.csv": {"a,b": "string", "c=d": "date"}}


def test_shards_and_imports_say_what_metadata_lacks(retriever):
    Path("c.jsonl").write_text('{"id": 1, "text": "x", "n": 1e999}\n')
    done = retriever("encode", "c.jsonl", "--shards", "shards", "-q")
    left_out = "the field 'n' left out of 1 document, the first at c.jsonl:1: holds inf"
    assert done.err.startswith(f"warning: {left_out}")
    assert retriever("encode", "c.jsonl", "-o", "v.npy", "-q").err == ""
    with pytest.warns(UserWarning, match=left_out):
        done = retriever("import", "c.jsonl", "--vectors", "v.npy", "--model", "fake", "-q")
    assert done.code == 0


def test_files_that_cannot_be_opened_are_skipped_on_demand(retriever):
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("text")
    Path("texts/b.txt").symlink_to("nowhere.txt")
    Path("c.csv").symlink_to("nowhere.csv")
    refused(retriever("index", "texts"), "texts/b.txt: no such file")
    refused(retriever("index", "texts", "c.csv"), "no such file")
    refused(retriever("index", "c.csv", "--on-error", "skip"), "c.csv: no such file")
    assert not Path(".retriever").exists()
    done = retriever("index", "c.csv", "texts", "--on-error", "skip")
    assert (done.code, done.err.splitlines()[1:]) == (
        0,
        [f"skipped: {name}: no such file or folder" for name in ("c.csv", "texts/b.txt")],
    )
    assert "1 added, 0 updated, 0 unchanged, 2 skipped" in done.out


def printed(retriever, *arguments):
    """What a command prints; no character of it steers the terminal."""
    done = retriever(*arguments)
    for text in (done.out, done.err):
        assert not {one for one in text if not one.isprintable()} - {"\n"}
    return done


def test_names_of_files_and_fields_cannot_steer_the_terminal(retriever):
    name = f"c{ESCAPE}.csv"
    Path(name).write_text("id,body\n1,text\n")
    refused(printed(retriever, "index", name), "no text column")
    Path(name).write_text(f'id,text,"n{ESCAPE}"\n1,text,5\n1,text,6\n')
    done = printed(retriever, "index", name, "--on-error", "skip")
    assert done.err.count("\n") == 2
    Path("c.jsonl").write_text(json.dumps({"id": 1, "text": "x", ESCAPE: 1e999}))
    assert printed(retriever, "index", "c.jsonl").err.count("\n") == 1
    folder = f"i{ESCAPE}"
    assert printed(retriever, "index", "c.jsonl", "-i", folder).code == 0
    assert printed(retriever, "info", "-i", folder).out.count("\n") > 5
    assert printed(retriever, "verify", "-i", folder).out.count("\n") == 1
    refused(printed(retriever, "info", "-i", f"none{ESCAPE}"), "no index here")
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


def test_a_name_that_is_not_utf_8_is_printed(retriever):
    Path("c.jsonl").write_text('{"id": 1, "text": "x"}\n')
    name = os.fsdecode(b"i\xff")
    try:
        Path(name).mkdir()
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    assert printed(retriever, "index", "c.jsonl", "-i", name).out.startswith("i\ufffd: 1 added")
