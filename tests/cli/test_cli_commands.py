"""Successful runs of the main commands: printed text, JSON and exit codes."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from tests.cli.conftest import printed_json, printed_lines

RECORDS = [
    {"id": "a", "text": "Apples are red fruit.", "year": 2020},
    {"id": "b", "title": "On pears", "text": "Pears are green fruit.", "year": 2021, "tags": ["x"]},
    {"id": "c", "text": "Stones are grey.", "year": 1999},
    {"id": "d", "text": "Red apples and red stones.", "year": 2005},
]
QUERIES = ["red apples", "green pears", "grey stones", "zebra"]


@pytest.fixture(autouse=True)
def _wide(monkeypatch, fake_encoder):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(*RECORDS)


@pytest.fixture
def indexed(retriever, corpus):
    assert retriever("index", corpus).code == 0


@pytest.fixture
def queries(write_jsonl):
    records = ({"id": f"q{i}", "text": text} for i, text in enumerate(QUERIES))
    return write_jsonl(*records, name="queries.jsonl")


def test_index_prints_counts_as_text_and_json(retriever, corpus, write_jsonl):
    done = retriever("index", corpus)
    assert (done.code, done.err) == (0, "")
    summary = r"4 added, 0 updated, 0 unchanged, 0 skipped; 4 passages encoded in \d+\.\d s; "
    assert re.fullmatch(rf"\.retriever: {summary}[\d.]+ kB on disk\n", done.out)
    changed = write_jsonl({**RECORDS[0], "text": "new"}, *RECORDS[1:3], {"id": "e", "text": "E"})
    counts = printed_json(retriever("index", changed, "--json"))
    assert (counts.pop("seconds") >= 0, counts.pop("bytes") > 10_000) == (True, True)
    assert counts.pop("files")["read"] == {}
    expected = {"added": 1, "updated": 1, "unchanged": 2, "passages": 2, "pieces": 6}
    assert {name: count for name, count in counts.items() if count} == expected
    done = retriever("index", write_jsonl(RECORDS[0]), "--recreate")
    assert "1 added, 0 updated, 0 unchanged, 0 deleted, 0 skipped" in done.out
    assert printed_json(retriever("info", "--json"))["documents"] == 1


def test_the_index_folder_is_an_option_a_variable_or_the_default(
    retriever, corpus, tmp_path, monkeypatch
):
    retriever("index", corpus, "-i", "by-option")
    retriever("index", corpus)
    monkeypatch.setenv("RETRIEVER_INDEX", str(tmp_path / "by-variable"))
    retriever("index", corpus)
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {"by-option", "by-variable", ".retriever"}
    assert retriever("info").out.split()[1] == str(tmp_path / "by-variable")
    assert retriever("info", "-i", "by-option").out.split()[1] == str(tmp_path / "by-option")


def test_a_table_or_a_query_of_a_sqlite_database_is_indexed(retriever):
    with closing(sqlite3.connect("data.db")) as connection, connection:
        connection.execute("CREATE TABLE fruit (key INTEGER PRIMARY KEY, body, head, year)")
        connection.execute("INSERT INTO fruit VALUES (1, 'Apples.', 'H', 9), (2, 'Pears.', 'I', 8)")
    fields = ("--id-field", "key", "--text-field", "body", "--title-field", "head")
    done = retriever("index", "data.db::fruit", *fields)
    assert (done.code, done.err) == (0, "")
    hit = printed_json(retriever("query", "apples", "--json", "--mode", "bm25"))
    assert (hit["id"], hit["title"], hit["metadata"]) == ("1", "H", {"year": 9})
    sql = "SELECT 'n' || key AS id, body AS text FROM fruit WHERE year > 8"
    assert printed_json(retriever("index", "data.db", "--sql", sql, "--json"))["added"] == 1


def test_query_shows_hits_and_how_their_scores_were_made(retriever, indexed):
    options = ("--fusion", "rrf", "--set", "rrf-k=10", "--where", "year >= 2005", "-k", "2")
    hits = printed_lines(retriever("query", "red", "fruits", "--json", *options))
    assert [hit["rank"] for hit in hits] == [1, 2]
    keys = ["rank", "score", "id", "title", "passage", "start", "stop", "dense", "dense_rank"]
    assert list(hits[0]) == [*keys, "bm25", "bm25_rank", "metadata"]
    for hit in hits:
        ranks = (hit["dense_rank"], hit["bm25_rank"])
        assert hit["score"] == pytest.approx(sum(1 / (10 + rank) for rank in ranks))
    done = retriever("query", "red", "fruits", "--explain", *options)
    assert (done.code, done.err) == (0, "")
    output = [f"  {n}  {hit['score']:.4f}  {hit['id']}" for n, hit in enumerate(hits, 1)]
    assert [row for row in done.out.splitlines() if row in output] == output
    assert "     Apples are red fruit." in done.out.splitlines()
    how, names, *rows = done.out[done.out.index("score = ") :].splitlines()
    assert how == "score = 1/(10 + dense rank) + 1/(10 + bm25 rank)"
    assert names.split() == ["rank", "score", "dense", "rank", "bm25", "rank", "id"]
    assert [row.split()[-1] for row in rows] == [hit["id"] for hit in hits]
    titled = retriever("query", "green", "--mode", "bm25").out
    assert re.fullmatch(r"  1  \d\.\d{4}  b  On pears\n     Pears are green fruit\.\n", titled)


def test_query_obeys_phrases_and_exclusions_and_suggests_corrections(retriever, indexed, queries):
    def ids(*arguments):
        return [hit["id"] for hit in printed_lines(retriever("query", *arguments, "--json"))]

    assert ids('"red apples" fruit -grey') == ["d"]
    assert set(ids("red -stones")) == {"a", "b"}
    assert set(ids("red -stones", "--raw")) == {"a", "b", "c", "d"}
    empty_query = retriever("query", '-"stones"')
    assert (empty_query.code, empty_query.out) == (2, "")
    assert "query 1 has only words to leave out: expected at least one" in empty_query.err
    done = retriever("query", "gery appels", "--mode", "bm25")
    assert done.err.splitlines()[-1] == "did you mean: grey apples"
    done = retriever("query", '"gery stones" red -fruit', "--json", "--mode", "bm25")
    assert done.out == ""
    reason, left_out, better = map(json.loads, done.err.splitlines())
    assert left_out["excluded"] == ["fruit"]
    assert "--raw searches" in left_out["note"]
    assert reason == {"no_hits": 'no document has "gery stones" as written: remove quotation marks'}
    assert better == {"did_you_mean": '"grey stones" red'}
    done = retriever("query", "gery stones", "--json")
    assert all("id" in hit for hit in printed_lines(done))
    assert json.loads(done.err) == {"did_you_mean": "grey stones"}
    assert "did_you_mean" not in retriever("query", "--queries", queries, "--json").err


def test_query_notes_excluded_words_beside_hits(retriever, indexed):
    done = retriever("query", 'red -stones -"green fruit"')
    assert done.out
    assert done.err == (
        'note: documents with "stones" or "green fruit" are left out, since the query has -stones, '
        '-"green fruit"; --raw searches for the query as it is\n'
    )
    assert retriever("query", "red -stones", "-q").err == ""
    assert retriever("query", "red -stones", "--raw").err == ""
    done = retriever("query", '"grey wolves"')
    assert done.err.splitlines()[-2:] == [
        'no hits: no document has "grey wolves" as written: remove quotation marks',
        "note: --raw searches for the query as it is",
    ]


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_query_reads_flags_within_text_as_words(retriever, indexed, mode):
    def run(*arguments):
        done = retriever("query", "--json", "--mode", mode, *arguments)
        assert "left out" not in done.err
        return done.out

    for text in ("red -v stones", "red -st", "what does -stones do in red", "red --stones"):
        assert run(text) == run(text, "--raw")


def test_a_query_may_begin_with_a_hyphen_where_no_option_does(retriever, indexed):
    for arguments in (
        ("-40 red apples",),
        ("-40", "red", "apples"),
        ("-k", "3", "-.5", "red", "--mode", "bm25"),
        ("-qk", "1", "red", "-40"),
        ("-v prints red", "-k1"),
        ("--no-cache of red", "-k", "1"),
        ("-q", "-k1", "--", "-40", "red"),
    ):
        done = retriever("query", *arguments)
        assert (done.code, "red" in done.out) == (0, True), done
    words = printed_lines(retriever("query", "red", "-40", "--json", "--mode", "bm25"))
    assert words == printed_lines(retriever("query", "--json", "--mode", "bm25", "--", "red -40"))
    for arguments, option in (
        (("-vk1", "red"), "-v"),
        (("red", "-grey"), "-g"),
        (("--mdoe", "bm25", "red"), "--mdoe"),
        (("--mdoe=bm25", "red"), "--mdoe"),
    ):
        done = retriever("query", *arguments)
        assert (done.code, done.out) == (2, "")
        assert f"No such option '{option}'" in done.err
        assert "write --raw -- before the query" in done.err
    done = retriever("query", "red", "--alpha", "-0.5")
    assert "-0.5 is not in the range 0<=x<=1" in done.err
    assert "--raw" not in retriever("info", "-40").err


def test_facets_follow_the_hits_as_a_table_or_a_line_of_json(retriever, indexed):
    years = sorted(record["year"] for record in RECORDS)
    table = retriever("query", "red", "-k", "1", "--facets", "year").out.splitlines()[-5:]
    assert table[0].split() == ["year", "matches", "documents"]
    *_, last = printed_lines(retriever("query", "red", "-k", "1", "--facets", "year", "--json"))
    values = last["facets"]["fields"]["year"]["values"]
    assert sorted(value["value"] for value in values) == years
    assert [row.split() for row in table[1:]] == [
        [str(value[name]) for name in ("value", "matches", "documents")] for value in values
    ]


def test_no_hits_is_success_and_says_why_on_stderr(retriever, indexed):
    for arguments, why in (
        (
            ["zebra", "--mode", "bm25"],
            "no document has a word of the query: check the spelling, or use the mode hybrid",
        ),
        (
            ["the of", "--mode", "bm25"],
            "the query has only stop words and punctuation, which as a phrase are in no title and "
            "in none of the texts of 4 documents: add another word, or use the mode hybrid",
        ),
        (
            ["red", "--where", "year = 1"],
            "no document passes the filter: change it or leave it out",
        ),
        (['"red green"'], 'no document has "red green" as written: remove quotation marks'),
    ):
        note = "note: --raw searches for the query as it is\n" if '"' in why else ""
        assert retriever("query", *arguments) == (0, "", f"no hits: {why}\n{note}")
        done = retriever("query", *arguments, "--json")
        assert (done.out, json.loads(done.err)) == ("", {"no_hits": why})
    with pytest.warns(UserWarning, match="no document has the field 'yeer'; did you mean 'year'"):
        assert retriever("query", "red", "--where", "yeer > 3").out == ""
    retriever("delete", "a", "b", "c", "d")
    assert retriever("query", "red") == (0, "", "no hits: the index is empty: add documents\n")


def test_control_characters_of_documents_are_escaped_at_terminal(retriever, write_jsonl):
    nasty = "\x1b]0;title\x07 zebra\r\n\x9b31m stripes"
    record = {"id": f"i{nasty}", "title": nasty, "text": nasty}
    assert retriever("index", write_jsonl(record)).code == 0
    done = retriever("query", "zebra", "--mode", "bm25", "--explain")
    assert "zebra" in done.out
    assert not set(done.out) & set("\x1b\x07\x9b\r")
    assert len(done.out.splitlines()) == 5
    hit = printed_json(retriever("query", "zebra", "--json"))
    assert (hit["id"], hit["title"], hit["passage"]) == (f"i{nasty}", nasty, nasty)


def test_a_file_of_queries_is_answered_in_its_order_or_written_as_a_run(
    retriever, indexed, queries, tmp_path
):
    hits = printed_lines(retriever("query", "--queries", queries, "--json", "-k", "3"))
    assert [hit["query"] for hit in hits] == [f"q{i}" for i in range(4) for _ in range(3)]
    alone = printed_lines(retriever("query", "grey stones", "--json", "-k", "3"))
    assert [{"query": "q2", **hit} for hit in alone] == hits[6:9]
    text = retriever("query", "--queries", queries).out
    assert re.findall(r"^== (q\d): (.*)$", text, re.M) == [
        (f"q{i}", text) for i, text in enumerate(QUERIES)
    ]
    done = retriever("query", "--queries", queries, "--run", "out.run", "-k", "3")
    assert done == (0, "", "out.run: 4 queries, 12 hits\n")
    with open("out.run") as file:
        assert pytrec_eval.parse_run(file) == {
            f"q{i}": {hit["id"]: hit["score"] for hit in hits if hit["query"] == f"q{i}"}
            for i in range(4)
        }
    (tmp_path / "q.txt").write_text("red apples\n\ngrey stones\n")
    done = retriever("query", "--queries", "q.txt", "--json", "-k", "1")
    assert [hit["query"] for hit in printed_lines(done)] == ["1", "2"]
    assert done.err.startswith("note: ids are generated from the order")
    (tmp_path / "one.txt").write_text("red\n")
    one = retriever("query", "--queries", "one.txt", "--run", "out.run", "-k", "1")
    assert one.err.endswith("out.run: 1 query, 1 hit\n")


def test_delete_by_id_and_by_filter(retriever, indexed):
    assert retriever("delete", "a") == (0, ".retriever: 1 document deleted\n", "")
    done = retriever("delete", "--where", "year < 2000", "--json")
    assert printed_json(done) == {"deleted": 1, "missing": []}
    message = "retriever: .retriever: the index holds no document "
    done = retriever("delete", "d", *(f"n{i}" for i in range(11)))
    names = ", ".join(f"'n{i}'" for i in sorted(range(11), key=str)[:10])
    assert done == (2, ".retriever: 1 document deleted\n", f"{message}{names}, ...\n")
    assert retriever("delete", "a") == (2, ".retriever: 0 documents deleted\n", f"{message}'a'\n")
    assert printed_json(retriever("query", "red", "--json"))["id"] == "b"
    assert retriever("delete", "b", "--erase").out == ".retriever: 1 document erased\n"
    assert b"Pears are" not in Path(".retriever/index.sqlite").read_bytes()


def test_info_and_verify_say_what_the_index_is_and_that_it_is_sound(retriever, indexed, tmp_path):
    info = printed_json(retriever("info", "--json"))
    assert (info["documents"], info["encoder"]["model"]) == (4, "fake")
    icu = ", ICU" if info["analyzer"]["division"] == "icu" else ""
    head, *rows = retriever("info").out.splitlines()
    assert head.startswith(f"index        {tmp_path}/.retriever (format {info['format_version']}, ")
    assert [row for row in rows if not row.startswith(("size", "beside"))] == [
        "documents    4",
        "passages     4 in 0 segments, 4 waiting in the database, 0 deleted",
        "index type   auto",
        "encoder      fake::max-length=32 (16 dimensions)",
        f"fingerprint  {info['encoder']['fingerprint']}",
        f"analyzer     auto (english){icu}, stemmed, stop words removed",
        "fit          0.0% of words unknown or broken into letters; weight of embeddings 0.6",
        "long texts   split, overlap 48 tokens",
        "context      headings",
    ]
    assert retriever("verify") == (0, ".retriever: sound\n", "")
    assert printed_json(retriever("verify", "--json")) == {"sound": True, "problems": []}


def test_encode_writes_vectors_and_ids(retriever, corpus, fake_encoder):
    done = retriever("encode", corpus, "-o", "v.npy")
    assert done == (0, "v.npy: 4 vectors of 16 dimensions; ids in v.ids.jsonl\n", "")
    texts = [f"{r['title']} {r['text']}" if "title" in r else r["text"] for r in RECORDS]
    np.testing.assert_array_equal(np.load("v.npy"), fake_encoder.encode(texts))
    with open("v.ids.jsonl") as file:
        assert [json.loads(line) for line in file] == ["a", "b", "c", "d"]


def test_truncated_texts_are_counted_in_warning(retriever, write_jsonl):
    source = write_jsonl({"id": "long", "text": "word " * 100}, RECORDS[0])
    ending = "truncated to the encoder's window of 32 tokens\n"
    done = retriever("index", source, "--on-long", "truncate")
    assert done.err == f"warning: 1 document {ending}"
    assert retriever("encode", source, "-o", "v.npy").err == f"warning: 1 text {ending}"
    split = retriever("index", source, "-i", "other")
    assert "(1 document split)" in split.out
