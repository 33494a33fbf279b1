"""Every command's happy path: what is printed for a person, what as JSON, and the exit code."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import pytrec_eval

from tests.cli.error_cases import refused

RECORDS = [
    {"id": "a", "text": "Apples are red fruit.", "year": 2020},
    {"id": "b", "title": "On pears", "text": "Pears are green fruit.", "year": 2021, "tags": ["x"]},
    {"id": "c", "text": "Stones are grey.", "year": 1999},
    {"id": "d", "text": "Red apples and red stones.", "year": 2005},
]


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch, fake_encoder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(*RECORDS)


@pytest.fixture
def indexed(retriever, corpus):
    assert retriever("index", corpus).code == 0


def lines_of_json(text):
    return [json.loads(line) for line in text.splitlines()]


def test_index_tells_what_it_did_and_nothing_else(retriever, corpus, tmp_path):
    done = retriever("index", corpus)
    assert (done.code, done.err) == (0, "")
    summary = r"4 added, 0 updated, 0 unchanged, 0 skipped; 4 passages encoded in \d+\.\d s; "
    assert re.fullmatch(rf"\.retriever: {summary}[\d.]+ kB on disk\n", done.out)
    assert (tmp_path / ".retriever" / "index.sqlite").is_file()


def test_index_json_is_one_object_of_counts(retriever, corpus, write_jsonl):
    retriever("index", corpus)
    changed = write_jsonl({**RECORDS[0], "text": "new"}, *RECORDS[1:3], {"id": "e", "text": "E"})
    done = retriever("index", changed, "--json")
    [summary] = lines_of_json(done.out)
    counts = {"added": 1, "updated": 1, "unchanged": 2, "deleted": 0, "skipped": 0, "passages": 2}
    assert summary.items() >= counts.items()
    assert {"seconds", "bytes", "pieces", "split", "truncated", "identical"} <= set(summary)
    assert done.err == ""


def test_recreating_drops_what_the_sources_do_not_hold(retriever, indexed, write_jsonl):
    done = retriever("index", write_jsonl(RECORDS[0], name="less.jsonl"), "--recreate")
    assert "1 added, 0 updated, 0 unchanged, 0 deleted, 0 skipped" in done.out
    assert json.loads(retriever("info", "--json").out)["documents"] == 1


def test_the_index_folder_is_an_option_a_variable_or_the_default(
    retriever, corpus, tmp_path, monkeypatch
):
    retriever("index", corpus, "-i", "by-option")
    monkeypatch.setenv("RETRIEVER_INDEX", str(tmp_path / "by-variable"))
    retriever("index", corpus)
    monkeypatch.delenv("RETRIEVER_INDEX")
    retriever("index", corpus)
    made = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert made == {"by-option", "by-variable", ".retriever"}
    monkeypatch.setenv("RETRIEVER_INDEX", "by-variable")
    assert retriever("info").out.split()[1] == str(tmp_path / "by-variable")
    assert retriever("info", "-i", "by-option").out.split()[1] == str(tmp_path / "by-option")


def test_standard_input_is_a_source(retriever, monkeypatch):
    content = b'{"text": "Apples are red."}\n{"text": "Stones are grey."}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    done = retriever("index", "-", "--json")
    assert json.loads(done.out)["added"] == 2
    assert done.err.startswith("note: ids are")


@pytest.fixture
def database(tmp_path):
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection, connection:
        connection.execute("CREATE TABLE fruit (id INTEGER PRIMARY KEY, body, year)")
        connection.execute("INSERT INTO fruit VALUES (1, 'Apples.', 1999), (2, 'Pears.', 2020)")
    return "data.db"


def test_a_table_or_a_query_of_a_sqlite_database_is_indexed(retriever, database):
    done = retriever("index", f"{database}::fruit", "--text-field", "body")
    assert (done.code, done.err) == (0, "")
    [hit] = lines_of_json(retriever("query", "apples", "--json", "--mode", "bm25").out)
    assert (hit["id"], hit["metadata"]) == ("1", {"year": 1999})
    sql = "SELECT 'n' || id AS id, body AS text FROM fruit WHERE year > 2000"
    assert json.loads(retriever("index", database, "--sql", sql, "--json").out)["added"] == 1
    refused(retriever("index", database), f"name one of its tables, as in {database}::fruit")


def test_fields_are_named_by_options(retriever, write_jsonl):
    path = write_jsonl({"key": "k", "body": "Apples", "head": "H", "text": "metadata"})
    fields = ["--id-field", "key", "--text-field", "body", "--title-field", "head"]
    assert retriever("index", path, *fields).code == 0
    [hit] = lines_of_json(retriever("query", "apples", "--json").out)
    assert (hit["id"], hit["title"], hit["metadata"]) == ("k", "H", {"text": "metadata"})


def test_query_shows_rank_score_id_and_title(retriever, indexed):
    done = retriever("query", "red", "fruits", "--mode", "bm25")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert re.fullmatch(r"  1  \d\.\d{4}  a", lines[0])
    assert lines[1] == "     Apples are red fruit."
    assert any(re.fullmatch(r"  3  \d\.\d{4}  b  On pears", line) for line in lines)
    assert "     Pears are green fruit." in lines


def test_query_json_is_one_object_a_hit_with_every_component(retriever, indexed):
    hits = lines_of_json(retriever("query", "red fruit", "--json", "-k", "3").out)
    assert [hit["rank"] for hit in hits] == [1, 2, 3]
    keys = ["rank", "score", "id", "title", "passage", "start", "stop", "dense", "dense_rank"]
    assert list(hits[0]) == [*keys, "bm25", "bm25_rank", "metadata"]
    assert hits[0]["metadata"] == {"year": 2020}


def test_explain_shows_how_the_score_was_made(retriever, indexed):
    done = retriever("query", "apples", "--explain", "--fusion", "rrf", "--set", "rrf-k=10")
    table = done.out[done.out.index("score = ") :].splitlines()
    assert table[0] == "score = 1/(10 + dense rank) + 1/(10 + bm25 rank)"
    assert table[1].split() == ["rank", "score", "dense", "rank", "bm25", "rank", "id"]
    assert table[2].split()[0] == "1"


def test_a_filter_narrows_the_hits(retriever, indexed):
    hits = lines_of_json(retriever("query", "red", "--json", "--where", "year >= 2005").out)
    assert {hit["id"] for hit in hits} == {"a", "b", "d"}


def test_facets_follow_the_hits_as_a_table_or_a_line_of_json(retriever, indexed):
    years = sorted(record["year"] for record in RECORDS if "year" in record)
    done = retriever("query", "red", "-k", "1", "--facets", "year")
    table = [line.split() for line in done.out.splitlines()[-len(set(years)) - 1 :]]
    assert table[0] == ["year", "matches", "documents"]
    assert sorted(int(row[0]) for row in table[1:]) == sorted(set(years))
    assert sum(int(row[2]) for row in table[1:]) == len(years)
    done = retriever("query", "red", "-k", "1", "--facets", "year", "--json")
    *_, last = lines_of_json(done.out)
    values = last["facets"]["fields"]["year"]["values"]
    assert [[str(one["value"]), str(one["matches"]), str(one["documents"])] for one in values] == (
        table[1:]
    )


def test_facets_of_what_is_no_field_are_refused(retriever, indexed):
    refused(retriever("query", "red", "--facets", "title"), "field 'title'", "`title`")
    refused(retriever("query", "--queries", "q.txt", "--run", "r", "--facets", "year"), "--facets")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["zebra", "--mode", "bm25"],
            "no hits: no document contains a word of the query; try --mode hybrid\n",
        ),
        (["the of", "--mode", "bm25"], "only stop words and punctuation\n"),
        (["red", "--where", "year = 1"], "no document matches the filter\n"),
    ],
)
def test_no_hits_is_success_and_says_why_on_stderr(retriever, indexed, arguments, why):
    done = retriever("query", *arguments)
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith(why)


def test_a_field_that_no_document_has_is_named_with_the_nearest(retriever, indexed):
    with pytest.warns(UserWarning, match="no document has the field 'yeer'; did you mean 'year'"):
        assert retriever("query", "red", "--where", "yeer > 3").out == ""
    refused(retriever("delete", "--where", "yeer > 3"), "'yeer'", "did you mean 'year'")


def test_an_empty_index_says_so(retriever, indexed):
    retriever("delete", "a", "b", "c", "d")
    assert retriever("query", "red") == (0, "", "no hits: the index is empty\n")


def test_what_a_document_holds_cannot_steer_the_terminal(retriever, write_jsonl):
    nasty = "\x1b]0;title\x07 zebra\r\n\x9b31m stripes"
    record = {"id": f"i{nasty}", "title": nasty, "text": nasty}
    assert retriever("index", write_jsonl(record)).code == 0
    done = retriever("query", "zebra", "--mode", "bm25", "--explain")
    assert "zebra" in done.out
    assert not set(done.out) & set("\x1b\x07\x9b\r")
    assert len(done.out.splitlines()) == 5
    [hit] = lines_of_json(retriever("query", "zebra", "--json").out)
    assert (hit["id"], hit["title"], hit["passage"]) == (f"i{nasty}", nasty, nasty)


QUERIES = ["red apples", "green pears", "grey stones", "zebra"]


@pytest.fixture
def queries(write_jsonl):
    return write_jsonl(
        *({"id": f"q{i}", "text": text} for i, text in enumerate(QUERIES)), name="queries.jsonl"
    )


def test_a_file_of_queries_is_answered_in_its_order(retriever, indexed, queries):
    hits = lines_of_json(retriever("query", "--queries", queries, "--json", "-k", "2").out)
    assert [hit["query"] for hit in hits] == [f"q{i}" for i in range(4) for _ in range(2)]
    alone = lines_of_json(retriever("query", "grey stones", "--json", "-k", "2").out)
    assert [{**hit, "query": "q2"} for hit in alone] == hits[4:6]
    text = retriever("query", "--queries", queries).out
    assert re.findall(r"^== (q\d): (.*)$", text, re.M) == [
        (f"q{i}", text) for i, text in enumerate(QUERIES)
    ]


def test_queries_a_line_get_numbers_as_ids(retriever, indexed, tmp_path):
    (tmp_path / "q.txt").write_text("red apples\n\ngrey stones\n")
    done = retriever("query", "--queries", "q.txt", "--json", "-k", "1")
    assert [hit["query"] for hit in lines_of_json(done.out)] == ["1", "2"]
    assert done.err.startswith("note: ids are generated from the order")


def test_a_run_is_read_by_trec_eval(retriever, indexed, queries):
    done = retriever("query", "--queries", queries, "--run", "out.run", "-k", "3")
    assert (done.code, done.out) == (0, "")
    assert done.err == "out.run: 4 queries, 12 hits\n"
    with open("out.run") as file:
        run = pytrec_eval.parse_run(file)
    hits = lines_of_json(retriever("query", "--queries", queries, "--json", "-k", "3").out)
    assert run == {
        f"q{i}": {hit["id"]: hit["score"] for hit in hits if hit["query"] == f"q{i}"}
        for i in range(4)
    }


def test_delete_by_id_and_by_filter(retriever, indexed):
    assert retriever("delete", "a") == (0, ".retriever: 1 document deleted\n", "")
    done = retriever("delete", "--where", "year < 2006", "--json")
    assert json.loads(done.out) == {"deleted": 2, "missing": []}
    hits = lines_of_json(retriever("query", "red", "--json").out)
    assert [hit["id"] for hit in hits] == ["b"]


def test_deleting_what_is_not_there_deletes_the_rest_and_says_so(retriever, indexed):
    done = retriever("delete", "a", "nobody")
    assert done.code == 2
    assert done.err == "retriever: .retriever: the index holds no document 'nobody'\n"
    assert done.out == ".retriever: 1 document deleted\n"


def test_info_names_what_the_index_is(retriever, indexed):
    text = retriever("info").out
    for part in (
        "documents    4\n",
        "4 in 0 segments, 4 waiting in the database, 0 deleted",
        "fake::max-length=32",
    ):
        assert part in text
    info = json.loads(retriever("info", "--json").out)
    assert (info["documents"], info["encoder"]["model"]) == (4, "fake")


def test_verify_says_that_an_index_is_sound(retriever, indexed):
    assert retriever("verify") == (0, ".retriever: sound\n", "")
    assert json.loads(retriever("verify", "--json").out) == {"sound": True, "problems": []}


def test_encode_writes_vectors_and_ids(retriever, corpus, fake_encoder):
    done = retriever("encode", corpus, "-o", "v.npy")
    assert (done.code, done.err) == (0, "")
    assert done.out == "v.npy: 4 vectors of 16 dimensions; ids in v.ids.jsonl\n"
    texts = [f"{r['title']} {r['text']}" if "title" in r else r["text"] for r in RECORDS]
    np.testing.assert_array_equal(np.load("v.npy"), fake_encoder.encode(texts))
    with open("v.ids.jsonl") as file:
        assert [json.loads(line) for line in file] == ["a", "b", "c", "d"]


def test_what_is_cut_off_is_counted_and_said(retriever, write_jsonl):
    long = {"id": "long", "text": "word " * 100}
    source = write_jsonl(long, RECORDS[0])
    done = retriever("index", source, "--on-long", "truncate")
    assert done.err.startswith("warning: 1 document truncated to the encoder's ")
    assert "window of 32 word pieces" in done.err
    done = retriever("encode", source, "-o", "v.npy")
    assert done.err.startswith("warning: 1 text truncated to the encoder's")
