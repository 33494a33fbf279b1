"""CSV and TSV: headers, cells, errors, and what comes back of what was written."""

from __future__ import annotations

import csv
import gzip
import json
import re
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retriever import ConfigError, CorpusReader, Document, Fields, SourceError
from retriever.documents.dates import iso_date
from retriever.documents.text import SAMPLE_ROWS
from tests.retriever.documents.source_samples import names_or_skips, read, refuses, write

# A NUL byte cannot be in a text file.
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VISIBLE = CELLS.filter(lambda text: text.strip() != "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(
        st.tuples(VISIBLE, VISIBLE, CELLS, CELLS),
        min_size=1,
        max_size=5,
        unique_by=lambda row: row[0],
    ),
    tab=st.booleans(),
    unix=st.booleans(),
)
def test_records_written_as_csv_are_read_back_equal(tmp_path, rows, tab, unix):
    path = tmp_path / ("c.tsv" if tab else "c.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        # With "\n" as line end the csv module leaves a carriage return unquoted: quote all.
        writer = csv.writer(
            file,
            delimiter="\t" if tab else ",",
            lineterminator="\n" if unix else "\r\n",
            quoting=csv.QUOTE_ALL if unix else csv.QUOTE_MINIMAL,
        )
        writer.writerows([("id", "text", "title", "note"), *rows])
    assert read(path, Fields(types={"note": "string"})) == [
        Document(doc_id, text, title or None, {"note": note} if note else {})
        for doc_id, text, title, note in rows
    ]


NUMBERS = ["2020", "-1", "0", "1e5", "1.50", "-0.5E-3", "9223372036854775807"]
LONG = ["9223372036854775808", "-9223372036854775809", "5e999", "-1e400", "9" * 5000]
NO_NUMBERS = ["007", "+1", "1.", ".5", "0x10", "1_000", " 1", "٣", "null", "NaN", "-", "1/2/2020"]


@pytest.mark.parametrize("cell", [*NUMBERS, *LONG, *NO_NUMBERS, "2020-13"])
def test_a_metadata_cell_that_is_a_json_number_becomes_one(tmp_path, cell):
    (document,) = read(write(tmp_path / "c.csv", f"text,n\nx,{cell}\n"))
    expected = json.loads(cell) if cell in NUMBERS else cell
    assert document.metadata == {"n": expected}
    assert type(document.metadata["n"]) is type(expected)


def columns(path: Path, **types: str) -> tuple[list[object], CorpusReader]:
    """The values of the column `c`, and the reader."""
    reader = CorpusReader([path], Fields(types=types))
    return [document.metadata.get("c") for document in reader], reader


def one_column(folder: Path, cells: list[str]) -> Path:
    lines = (f"t{i},{cell}\n" for i, cell in enumerate(cells))
    return write(folder / "c.csv", "text,c\n" + "".join(lines))


COLUMNS = {
    "postal codes": (["90210", "01234"], "string", ["90210", "01234"]),
    "years": (["2020", "", "1999"], "number", [2020, None, 1999]),
    "numbers": (["1", "2.5", "1e3"], "number", [1, 2.5, 1000.0]),
    "with a word": (["1", "n/a"], "string", ["1", "n/a"]),
    "long numbers": (["1", "123456789012345678901"], "string", ["1", "123456789012345678901"]),
    "booleans": (["true", "False", "TRUE"], "boolean", [True, False, True]),
    "dates": (["2020-03-31", "2020-04-01"], "date", ["2020-03-31", "2020-04-01"]),
    "dates and years": (["2020", "2020-04-01"], "date", ["2020", "2020-04-01"]),
    "times": (["2020-04-01 12:30", "2020-04-01"], "date", ["2020-04-01T12:30:00", "2020-04-01"]),
    "no dates": (["2020-02-30", "2020-04-01"], "string", ["2020-02-30", "2020-04-01"]),
}


@pytest.mark.parametrize(("cells", "kind", "values"), COLUMNS.values(), ids=COLUMNS.keys())
def test_a_column_has_one_type_that_all_of_its_cells_fit(tmp_path, cells, kind, values):
    path = one_column(tmp_path, cells)
    found, reader = columns(path)
    assert found == values
    assert list(map(type, found)) == list(map(type, values))
    assert reader.columns == {str(path): {"c": kind}}
    assert reader.misfits == {str(path): {}}


@pytest.mark.parametrize("first", ["7", ""])
def test_cell_unfit_for_inferred_type_stays_string_and_is_counted(tmp_path, first):
    # Where the sample has no cell, the type is that of the first one.
    path = one_column(tmp_path, [first] * (SAMPLE_ROWS - 1) + ["", "7", "n/a", "8", "01234"])
    found, reader = columns(path)
    assert found == [7 if first else None] * (SAMPLE_ROWS - 1) + [None, 7, "n/a", 8, "01234"]
    assert reader.columns == {str(path): {"c": "number"}}
    misfit = reader.misfits[str(path)]["c"]
    assert (misfit.records, misfit.first) == (2, f"{path}:{SAMPLE_ROWS + 3}: 'n/a'")


@pytest.mark.parametrize(
    ("kind", "values"),
    [("string", ["7", "20200331"]), ("number", [7, 20200331]), ("date", ["7", "2020-03-31"])],
)
def test_column_has_its_explicit_type(tmp_path, kind, values):
    assert columns(one_column(tmp_path, ["7", "20200331"]), c=kind)[0] == values


def test_types_of_columns_without_metadata_are_refused(tmp_path):
    path = one_column(tmp_path, ["7"])
    for name in ("d", "text"):
        with pytest.raises(SourceError, match=rf"c\.csv:1: no column '{name}' of metadata .* 'c'"):
            columns(path, **{name: "date"})
    with pytest.raises(ConfigError, match=r"column 'c': expected one of the types string, .*'int'"):
        columns(path, c="int")
    for name, content in (("c.jsonl", '{"text": "x"}\n'), ("c.txt", "x\n"), ("d/a.txt", "x")):
        source = write(tmp_path / name, content)
        with pytest.raises(SourceError, match="expected CSV or TSV, whose columns get types"):
            columns(source.parent if name == "d/a.txt" else source, c="date")


@given(
    moments=st.lists(
        st.datetimes(
            datetime(1900, 1, 1),
            datetime(2100, 1, 1),
            timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=30))]),
        ),
        min_size=2,
    )
)
def test_dates_as_strings_sort_chronologically(moments):
    assert sorted(moments) == sorted(moments, key=lambda one: iso_date(one.isoformat()))


@pytest.mark.parametrize("quoted", [True, False])
def test_a_row_beyond_the_bound_is_refused_however_small_its_file_is(tmp_path, longest, quoted):
    cell = b'"' + (b"x" * 1023 + b"\n") * (longest // 1024 + 1) if quoted else b"x" * (longest + 1)
    path = write(tmp_path / "c.csv", gzip.compress(b"text\n" + cell + b"\nafter\n", 1))
    said = "never closed, at least not within 1 MiB" if quoted else "longer than 64 MiB"
    with pytest.raises(SourceError, match=rf"c\.csv:2: .*{said}"):
        read(path)


def test_long_first_line_of_tsv_file_is_refused_in_little_time(tmp_path):
    line = "1\t" + "a" * 100_000 + "\t\n"
    started = time.perf_counter()
    with pytest.raises(SourceError, match="no text column"):
        read(write(tmp_path / "c.tsv", line))
    assert time.perf_counter() - started < 2


def test_cells_of_any_form_are_read_and_their_lines_counted(tmp_path):
    long = "x" * 500_000
    rows = f'7,8,9\n"a","one\ntwo\n\nthree",\n\nb,{long},\nc,"{long}",\n'
    path = write(tmp_path / "c.csv", f"\ufeffid,text,title\n{rows}")
    assert read(path) == [
        Document("7", "8", "9"),
        Document("a", "one\ntwo\n\nthree"),
        Document("b", long),
        Document("c", long),
    ]
    with pytest.raises(SourceError, match=r"c\.csv:10: id is empty"):
        read(write(path, f"id,text,title\n{rows},x,\n"))


HEADERS = {
    "no text": ("id,body\na,x\n", {}, r":1: no text column .*; the columns are 'id', 'body'"),
    "named": ("id,text\na,x\n", {"text": "body"}, r":1: no column 'body' .*text.* 'id', 'text'"),
    "named id": ("id,text\na,x\n", {"id": "key"}, r":1: no column 'key' .*id from"),
    "named title": ("id,text\na,x\n", {"title": "head"}, r":1: no column 'head' .*title from"),
    "twice": ("id,text,id\na,x,b\n", {}, r":1: two columns are called 'id'"),
    "not utf-8": (b"id,text,\xff\na,x,b\n", {}, r":1: invalid UTF-8: byte 0xff"),
    "open quote": ('id,text\na,x\nb,"y\nc,z\n', {}, r":3: a quote opened .* never closed"),
}


@pytest.mark.parametrize(("content", "fields", "message"), HEADERS.values(), ids=HEADERS.keys())
def test_unusable_file_raises_even_when_skipping(tmp_path, content, fields, message):
    path = write(tmp_path / "c.csv", content)
    refuses(path, re.escape(str(path)) + message, Fields(**fields))


ROWS = {
    "short": ("b", "expected 3 cells as in the header, found 1"),
    "long": ("b,x,1,2", "expected 3 cells as in the header, found 4"),
    "after quote": ('b,"x"y,1', "not a valid row"),
    "lone carriage return": ("b,x\ry,1", "not a valid row .* end lines with"),
    "not utf-8": (b'b,"x\n\xff\n",1', "byte 0xff .*line 4"),
    "nul": (b"b,x\0,1", "NUL byte"),
    "again": ("a,x,1", r"the id 'a' was given before, at .*c\.csv:2;"),
}


@pytest.mark.parametrize(("row", "message"), ROWS.values(), ids=ROWS.keys())
def test_a_bad_row_is_named_with_its_line_or_skipped(tmp_path, row, message):
    row = row if isinstance(row, bytes) else row.encode()
    path = write(tmp_path / "c.csv", b"id,text,n\na,x,1\n" + row + b"\nz,y,1\n")
    names_or_skips(path, ":3", message, ["x", "y"])


def test_tsv_without_header_has_id_and_text_per_line(tmp_path):
    content = "7\tThe \"first passage.\n\n8\tSecond: 5 o'clock\r\n9\tThird"
    found = [(document.id, document.text) for document in read(write(tmp_path / "c.tsv", content))]
    assert found == [("7", 'The "first passage.'), ("8", "Second: 5 o'clock"), ("9", "Third")]
    for line, cells in (("8\tb\tc", 3), ("b", 1)):
        path = write(tmp_path / "c.tsv", f"7\ta\n{line}\n9\td\n")
        names_or_skips(path, ":2", f"as in the first line, found {cells} cells", ["a", "d"])
