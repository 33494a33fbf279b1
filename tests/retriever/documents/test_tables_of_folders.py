"""CSV and JSON Lines of a folder are one document each, with the header before each part."""

from __future__ import annotations

import csv
import io
import json
import random
import time

import pytest

from retriever import CorpusReader, Index
from retriever.documents.kinds.delimited import read_csv, read_json_lines
from retriever.documents.outline import place
from tests.retriever.documents.source_samples import write


def written(rows, **options):
    buffer = io.StringIO()
    csv.writer(buffer, **options).writerows(rows)
    return buffer.getvalue()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_rows_are_those_of_the_csv_module_with_their_lines(delimiter):
    chance = random.Random(delimiter)
    words = ["bees", "a, b", "x;y", 'say "hi"', "two\nlines", "", "Zoë"]
    rows = [["name", "place", "note"], *(chance.choices(words, k=3) for _ in range(50))]
    parsed = read_csv(written(rows, delimiter=delimiter))
    expected = [" | ".join(" ".join(cell.split()) for cell in row) for row in rows if any(row)]
    header, rule, *body = parsed.text.split("\n")
    assert [header, *body] == expected
    assert rule == "--- | --- | ---"
    line = 1
    offset = 0
    shown = iter([header, rule, *body])
    for number, row in enumerate(rows):
        if not any(row):
            line += 1
            continue
        text = next(shown)
        span = (offset, offset + max(len(text), 1))
        assert place(parsed.outline, parsed.text, span).lines[0] == line, row
        offset += len(text) + 1
        if number == 0:
            offset += len(next(shown)) + 1
        line += 1 + sum(cell.count("\n") for cell in row)


def test_ragged_rows_and_a_file_that_is_no_csv_lose_nothing():
    parsed = read_csv("a,b\n1,2,3\n4\n")
    assert parsed.text == "a | b\n--- | ---\n1 | 2 | 3\n4"
    parsed = read_csv('a,b\n"open,2\n3,4\n')
    assert parsed.text == 'a,b\n"open,2\n3,4'
    assert parsed.losses[0].detail.startswith("read as text: line 3 is no row")


def test_records_have_their_names():
    lines = [{"name": "Ada", "born": 1815, "tags": ["math", "bees"], "x": None}, [1, 2]]
    parsed = read_json_lines("\n\n".join(map(json.dumps, lines)))
    assert parsed.text == "name: Ada | born: 1815 | tags: math, bees\n[1, 2]"
    assert [mark.label for mark in parsed.outline] == ["1", "3"]
    assert "no JSON" in read_json_lines('{"a": 1}\n{"a":').losses[0].detail


def test_tables_are_read_only_if_a_pattern_names_them(tmp_path):
    write(tmp_path / "a.csv", "name,text\nx,bees\ny,wasps\n")
    write(tmp_path / "b.jsonl", '{"id": "1", "text": "bees"}\n')
    write(tmp_path / "c.md", "text")
    assert [document.id for document in CorpusReader(tmp_path)] == ["c.md"]
    reader = CorpusReader(tmp_path, include=["*.csv", "*.jsonl"])
    assert {document.id: document.text for document in reader} == {
        "a.csv": "name | text\n--- | ---\nx | bees\ny | wasps",
        "b.jsonl": "id: 1 | text: bees",
    }
    assert reader.files.read == {"CSV": 1, "JSON Lines": 1}
    # Named alone, a document a row.
    assert len(list(CorpusReader(tmp_path / "a.csv"))) == 2


def test_each_part_of_a_long_table_has_the_header_before_it(tmp_path, minilm):
    rows = [["boat", "port"], *([f"walrus{number}", f"oslo{number}"] for number in range(400))]
    write(tmp_path / "notes/boats.csv", written(rows))
    with Index.create(tmp_path / "my.index", encoder=minilm) as index:
        index.add(CorpusReader(tmp_path / "notes", include=["*.csv"]))
        spans = index.spans("boats.csv")
        text = index["boats.csv"].text
        assert len(spans) > 5
        assert all(text[start:].startswith("walrus") for start, _ in spans[1:])
        # The words of the header are found in every part.
        hits = index.search("walrus399 boat", k=1, mode="bm25")
        assert "walrus399" in hits[0].passage
        assert hits[0].place.lines[1] == 401


@pytest.mark.parametrize("content", ["a,b\n" * 10**6, "a," * 10**6, '"' * 10**6, "|\n" * 10**6])
def test_large_tables_take_little_time(content):
    started = time.monotonic()
    read_csv(content)
    assert time.monotonic() - started < 20
