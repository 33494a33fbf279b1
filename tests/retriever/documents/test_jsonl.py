"""JSON Lines: fields, ids, errors, and what comes back of what was written."""

from __future__ import annotations

import gzip
import json
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexes.errors import ConfigError, SourceError
from retriever.documents import Document, Fields
from retriever.documents.reader import CorpusReader

UNICODE = st.text(st.characters(exclude_categories=["Cs"]))
VISIBLE = UNICODE.filter(lambda text: text.strip() != "")
# What filters compare.
COMPARED = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | COMPARED
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(COMPARED, inner, max_size=3)
)
ROLES = {"id", "_id", "text", "title"}
RECORDS = st.lists(
    st.tuples(
        COMPARED.filter(lambda text: text.strip() != ""),
        VISIBLE,
        st.none() | COMPARED,
        st.dictionaries(COMPARED.filter(lambda name: name not in ROLES), VALUES, max_size=4),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda record: record[0],
)


def write(folder: Path, *lines: str | bytes, name: str = "c.jsonl") -> Path:
    path = folder / name
    path.write_bytes(
        b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    )
    return path


def read(path: Path, **options: object) -> list[Document]:
    return list(CorpusReader([path], **options))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(records=RECORDS, ascii_only=st.booleans(), zipped=st.booleans())
def test_what_json_writes_comes_back_equal(tmp_path, records, ascii_only, zipped):
    path = tmp_path / "c.jsonl"
    with (gzip.open if zipped else open)(path, "wt", encoding="utf-8", newline="\n") as file:
        for doc_id, text, title, metadata in records:
            values = {**metadata, "id": doc_id, "text": text, "title": title}
            file.write(json.dumps(values, ensure_ascii=ascii_only) + "\n")
    reader = CorpusReader([path])
    assert list(reader) == [Document(i, text, title, meta) for i, text, title, meta in records]
    assert reader.bytes_read == reader.total_bytes == path.stat().st_size
    assert reader.generated_ids is None


def test_byte_order_mark_blank_lines_and_carriage_returns_are_accepted(tmp_path):
    path = write(
        tmp_path, b'\xef\xbb\xbf{"id": "a", "text": "x"}\r', "", " \r", '{"id":7,"text":"y"}'
    )
    assert read(path) == [Document("a", "x"), Document("7", "y")]


def test_unicode_line_separators_do_not_end_a_line(tmp_path):
    path = write(tmp_path, '{"id": "a", "text": "x\u2028y\x85z"}')
    assert read(path) == [Document("a", "x\u2028y\x85z")]


@pytest.mark.parametrize(
    ("values", "text", "rest"),
    [
        ({"contents": "c", "passage": "p"}, "c", {"passage": "p"}),
        ({"sentence": "s", "passage": "p"}, "p", {"sentence": "s"}),
        ({"text": "t", "contents": "c"}, "t", {"contents": "c"}),
    ],
)
def test_the_first_default_name_holds_the_text_and_the_others_are_metadata(
    tmp_path, values, text, rest
):
    path = write(tmp_path, json.dumps({"_id": "a", **values}))
    assert read(path) == [Document("a", text, None, rest)]


def test_id_goes_before_underscore_id(tmp_path):
    path = write(tmp_path, '{"_id": "m", "id": "a", "text": "x"}')
    assert read(path) == [Document("a", "x", None, {"_id": "m"})]


def test_named_fields_are_used_and_the_defaults_become_metadata(tmp_path):
    path = write(tmp_path, '{"id": 1, "key": " k ", "body": "b", "text": "t", "head": "h"}')
    documents = read(path, fields=Fields(id="key", text="body", title="head"))
    assert documents == [Document(" k ", "b", "h", {"id": 1, "text": "t"})]


def test_a_default_name_that_is_given_another_role_is_not_used_twice(tmp_path):
    path = write(tmp_path, '{"id": "all there is", "title": "t"}')
    (document,) = read(path, fields=Fields(text="id"))
    assert (document.text, document.title, document.metadata) == ("all there is", "t", {})
    with pytest.raises(ConfigError, match="two roles"):
        CorpusReader([path], Fields(id="id", text="id"))


def test_generated_ids_hash_title_and_text_and_identical_records_are_one(tmp_path):
    lines = ['{"text": "x", "title": "t"}', '{"text": "x"}', '{"title": "t", "text": "x", "n": 1}']
    reader = CorpusReader([write(tmp_path, *lines)])
    expected = [blake2b(key.encode()).hexdigest()[:16] for key in ("t\x1fx", "\x1fx")]
    assert [document.id for document in reader] == expected
    assert (reader.duplicates, reader.skipped) == (1, 0)
    assert reader.generated_ids is not None
    assert "hash of title and text" in reader.generated_ids


def test_numbered_ids_count_records_over_all_sources_and_over_skipped_ones(tmp_path):
    first = write(tmp_path, '{"text": "x"}', "", "bad", '{"text": "x"}')
    second = write(tmp_path, '{"text": "y"}', name="d.jsonl")
    reader = CorpusReader([first, second], number_ids=True, on_error="skip")
    assert [document.id for document in reader] == ["1", "3", "4"]
    assert reader.duplicates == 0


BAD = {
    "not json": ('{"id": "b", "text": }', r"not JSON.*at column 21"),
    "cut short": ('{"id": "b",', r"not JSON.*at column 12"),
    "array": ("[1]", "expected a JSON object, found an array"),
    "null": ("null", "found null"),
    "no text": ('{"id": "b", "body": "x"}', r"no text field 'text'; the record has 'id', 'body'"),
    "text number": ('{"id": "b", "text": 5}', "'text' is the number 5, expected a string"),
    "text null": ('{"id": "b", "text": null}', "'text' is null"),
    "title list": ('{"id": "b", "text": "x", "title": []}', r"'title' is a list \[\]"),
    "no id": ('{"text": "x"}', "no id field 'id'; the record has 'text'"),
    "id null": ('{"id": null, "text": "x"}', "id is null"),
    "id true": ('{"id": true, "text": "x"}', "id is true"),
    "id float": ('{"id": 1.5, "text": "x"}', "id is the number 1.5"),
    "id list": ('{"id": ["b"], "text": "x"}', "id is a list"),
    "id blank": ('{"id": " ", "text": "x"}', "id is empty"),
    "id with nul": ('{"id": "b\\u0000c", "text": "x"}', r"id holds a NUL character \(\\u0000\)"),
    "id again": ('{"id": "a", "text": "x"}', r"'a' was given before, at .*c\.jsonl:1;"),
    "huge int": ('{"id": "b", "text": "x", "n": %s}' % ("9" * 5000), "thousands of digits"),
    "surrogate in text": (r'{"id": "b", "text": "\ud800"}', r"text holds the lone surrogate"),
    "surrogate in id": (r'{"id": "\udc00", "text": "x"}', r"id holds the lone surrogate"),
    "nul in title": (r'{"id": "b", "text": "x", "title": "\u0000"}', "title holds a NUL"),
    "key twice": ('{"id": "b", "text": "x", "text": "y"}', "'text' occurs twice"),
    "inner key twice": ('{"id": "b", "text": "x", "m": {"k": 1, "k": 1}}', "'k' occurs twice"),
    "deep": ('{"id": "b", "text": "x", "m": ' + "[" * 10**5 + "]" * 10**5 + "}", "nested"),
    "not utf-8": (b'{"id": "b", "text": "\xff"}', r"invalid UTF-8: byte 0xff .*line 2"),
    "nul": (b'{"id": "b", "text": "\0"}', "NUL byte"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_record_is_named_with_its_line_or_skipped(tmp_path, line, message):
    path = write(tmp_path, '{"id": "a", "text": "x"}', line, '{"id": "z", "text": "y"}')
    with pytest.raises(SourceError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "\n" not in str(caught.value)
    reader = CorpusReader([path], on_error="skip")
    assert [document.id for document in reader] == ["a", "z"]
    assert reader.skipped == 1
    assert reader.problems == [str(caught.value)]


LEFT_OUT = {
    "overflow": ('"n": -1e999', "n", "holds -inf"),
    "int64": ('"n": 9223372036854775808', "n", "beyond 64 bits"),
    "surrogate": (r'"n": "\ud800"', "n", r"surrogate \ud800"),
    "surrogate in name": (r'"\ud800": 1', "\ud800", r"surrogate \ud800"),
    "surrogate in inner name": (r'"n": {"\udfff": 1}', "n", r"surrogate \udfff"),
    "nul": (r'"n": "a\u0000b"', "n", "NUL"),
    "nul in name": (r'"n": {"\u0000": 1}', "n", "NUL"),
    "deep": ('"n": ' + "[" * 102 + "]" * 102, "n", "nested deeper"),
}


@pytest.mark.parametrize(("member", "name", "fault"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_field_that_no_index_can_store_is_left_out_named_and_counted(
    tmp_path, member, name, fault
):
    line = '{"id": "%s", "text": "x", "kept": 1, ' + member + "}"
    path = write(tmp_path, '{"id": "a", "text": "x"}', line % "b", line % "c")
    reader = CorpusReader([path])
    assert [(one.id, one.metadata) for one in reader] == [
        ("a", {}),
        ("b", {"kept": 1}),
        ("c", {"kept": 1}),
    ]
    assert (list(reader.left_out), reader.left_out[name].records) == ([name], 2)
    assert reader.left_out[name].first.startswith(f"{path}:2: ")
    assert fault in reader.left_out[name].first
    assert (reader.skipped, reader.problems) == (0, [])


def test_nan_is_null_wherever_it_stands(tmp_path):
    path = write(tmp_path, '{"id": "a", "text": "x", "n": NaN, "m": [1, {"k": [NaN]}], "o": 2}')
    reader = CorpusReader([path])
    [document] = reader
    assert document.metadata == {"n": None, "m": [1, {"k": [None]}], "o": 2}
    assert reader.left_out == {}


def test_names_of_fields_that_are_left_out_do_not_fill_memory(tmp_path):
    lines = [json.dumps({"id": i, "text": "x", f"n{i}": float("inf")}) for i in range(1000)]
    reader = CorpusReader([write(tmp_path, *lines)])
    assert len(list(reader)) == 1000
    assert len(reader.left_out) == 101
    assert sum(count.records for count in reader.left_out.values()) == 1000


@pytest.mark.parametrize(
    "record",
    [{"ID": "a", "Title": "t", "Text": "x"}, {"Id": "a", "TITLE": "t", "Passage": "x"}],
)
def test_default_names_count_in_any_case(tmp_path, record):
    path = write(tmp_path, json.dumps(record))
    assert read(path) == [Document("a", "x", "t")]
    table = tmp_path / "c.csv"
    table.write_text(",".join(record) + "\n" + ",".join(record.values()) + "\n")
    assert read(table) == [Document("a", "x", "t")]
    # The same table, whose name does not tell its format.
    assert read(table.rename(tmp_path / "table")) == [Document("a", "x", "t")]


def test_a_default_name_as_it_is_goes_before_one_in_another_case(tmp_path):
    path = write(tmp_path, '{"ID": "b", "_id": "a", "Text": "y", "contents": "x", "Title": "t"}')
    assert read(path) == [Document("a", "x", "t", {"ID": "b", "Text": "y"})]


def test_a_line_beyond_the_bound_is_refused_or_skipped_however_small_its_file_is(tmp_path, longest):
    name = "c.jsonl.gz"
    path = tmp_path / name
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"text": "before"}\n{"text": "')
        file.write(b"x" * longest)
        file.write(b'"}\n{"text": "after"}\n')
    with pytest.raises(SourceError, match=r"c\.jsonl\.gz:2: longer than 64 MiB"):
        read(path)
    assert [one.text for one in read(path, on_error="skip")] == ["before", "after"]


def test_a_late_id_is_an_error_that_names_both_lines(tmp_path):
    path = write(tmp_path, '{"text": "x"}', '{"text": "y"}', '{"_id": "a", "text": "z"}')
    with pytest.raises(SourceError, match=r"c\.jsonl:3: .*'_id'.*first record \(.*c\.jsonl:1\)"):
        read(path)


@pytest.mark.parametrize("role", ["id", "text", "title"])
def test_a_named_field_must_be_in_every_record(tmp_path, role):
    path = write(tmp_path, '{"id": "a", "text": "x"}')
    with pytest.raises(SourceError, match=f":1: no {role} field 'other'; the record has 'id'"):
        read(path, fields=Fields(**{role: "other"}))


def test_only_the_first_ten_problems_are_kept(tmp_path):
    path = write(tmp_path, *["bad"] * 25, '{"text": "x"}')
    reader = CorpusReader([path], on_error="skip")
    assert len(list(reader)) == 1
    assert reader.skipped == 25
    assert [problem.split(": ")[0] for problem in reader.problems] == [
        f"{path}:{line}" for line in range(1, 11)
    ]
    list(reader)
    assert reader.skipped == 25


def test_a_title_alone_is_enough(tmp_path):
    path = write(tmp_path, '{"id": "q", "text": "", "title": "t"}')
    assert read(path) == [Document("q", "", "t")]
