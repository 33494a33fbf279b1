"""JSON Lines: fields, ids, errors, and what comes back of what was written."""

from __future__ import annotations

import gzip
import json
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retriever import ConfigError, CorpusReader, Document, Fields, SourceError
from tests.retriever.documents.source_samples import names_or_skips, read, write

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


def written(folder: Path, *lines: str | bytes, name: str = "c.jsonl") -> Path:
    encoded = (line if isinstance(line, bytes) else line.encode() for line in lines)
    return write(folder / name, b"".join(line + b"\n" for line in encoded))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(records=RECORDS, ascii_only=st.booleans(), zipped=st.booleans())
def test_records_written_as_json_are_read_back_equal(tmp_path, records, ascii_only, zipped):
    path = tmp_path / "c.jsonl"
    with (gzip.open if zipped else open)(path, "wt", encoding="utf-8", newline="\n") as file:
        for doc_id, text, title, metadata in records:
            values = {**metadata, "id": doc_id, "text": text, "title": title}
            file.write(json.dumps(values, ensure_ascii=ascii_only) + "\n")
    reader = CorpusReader([path])
    assert list(reader) == [Document(i, text, title, meta) for i, text, title, meta in records]
    assert reader.bytes_read == reader.total_bytes == path.stat().st_size
    assert reader.generated_ids is None


def test_byte_order_marks_blank_lines_and_carriage_returns_are_no_part_of_a_record(tmp_path):
    lines = ['{"id": "a", "text": "x\u2028y\x85z"}\r', "", " \r", '{"id":7,"text":"y"}']
    path = written(tmp_path, b"\xef\xbb\xbf" + lines[0].encode(), *lines[1:])
    assert read(path) == [Document("a", "x\u2028y\x85z"), Document("7", "y")]


@pytest.mark.parametrize(
    ("values", "document"),
    [
        ({"contents": "c", "passage": "p"}, Document("a", "c", None, {"passage": "p"})),
        ({"sentence": "s", "passage": "p"}, Document("a", "p", None, {"sentence": "s"})),
        ({"text": "t", "contents": "c"}, Document("a", "t", None, {"contents": "c"})),
        ({"id": "b", "text": "x"}, Document("b", "x", None, {"_id": "a"})),
        # As they are, before those in another case.
        (
            {"ID": "b", "Text": "y", "contents": "x", "Title": "t"},
            Document("a", "x", "t", {"ID": "b", "Text": "y"}),
        ),
        ({"text": "", "title": "t"}, Document("a", "", "t")),
    ],
)
def test_the_first_default_name_has_the_role_and_the_others_are_metadata(
    tmp_path, values, document
):
    assert read(written(tmp_path, json.dumps({"_id": "a", **values}))) == [document]


def test_named_fields_have_their_roles_and_the_default_names_become_metadata(tmp_path):
    path = written(tmp_path, '{"id": 1, "key": " k ", "body": "b", "text": "t", "head": "h"}')
    documents = read(path, Fields(id="key", text="body", title="head"))
    assert documents == [Document(" k ", "b", "h", {"id": 1, "text": "t"})]
    path = written(tmp_path, '{"id": "all there is", "title": "t"}')
    (document,) = read(path, Fields(text="id"))
    assert (document.text, document.title, document.metadata) == ("all there is", "t", {})
    for role in ("id", "text", "title"):
        with pytest.raises(SourceError, match=f":1: no {role} field 'other'; .* has 'id', 'title'"):
            read(path, Fields(**{"text": "title"} | {role: "other"}))
    with pytest.raises(SourceError, match=r":1: no text field \(looked for .* has 'n': name"):
        read(written(tmp_path, '{"n": "x"}'))
    with pytest.raises(ConfigError, match="two roles"):
        Fields(id="id", text="id")


def test_generated_ids_hash_title_and_text_and_identical_records_are_one(tmp_path):
    lines = ['{"text": "x", "title": "t"}', '{"text": "x"}', '{"title": "t", "text": "x", "n": 1}']
    reader = CorpusReader([written(tmp_path, *lines)])
    expected = [blake2b(key.encode()).hexdigest()[:16] for key in ("t\x1fx", "\x1fx")]
    assert [document.id for document in reader] == expected
    assert (reader.duplicates, reader.skipped) == (1, 0)
    assert reader.generated_ids.startswith("ids are generated from a hash of title and text")


def test_numbered_ids_count_records_over_all_sources_and_over_skipped_ones(tmp_path):
    first = written(tmp_path, '{"text": "x"}', "", "bad", '{"text": "x"}')
    second = written(tmp_path, '{"text": "y"}', name="d.jsonl")
    reader = CorpusReader([first, second], number_ids=True, on_error="skip")
    assert [document.id for document in reader] == ["1", "3", "4"]
    assert reader.duplicates == 0
    assert reader.generated_ids == "ids are generated from the order of the records: 1, 2, 3, ..."


BAD = {
    "not json": ('{"id": "b", "text": }', r"not JSON.*at column 21"),
    "cut short": ('{"id": "b",', r"not JSON.*at column 12"),
    "array": ("[1]", r"expected a JSON object, found \[1\]"),
    "null": ("null", "found null"),
    "no text": ('{"id": "b", "body": "x"}', r"no text field 'text'; the record has 'id', 'body'"),
    "text number": ('{"id": "b", "text": 5}', "'text' is 5, expected a string"),
    "title list": ('{"id": "b", "text": "x", "title": []}', r"'title' is \[\]"),
    "no id": ('{"text": "x"}', "no id field 'id'; the record has 'text'"),
    "id null": ('{"id": null, "text": "x"}', "id is None"),
    "id true": ('{"id": true, "text": "x"}', "id is True"),
    "id list": ('{"id": ["b"], "text": "x"}', r"id is \['b'\]"),
    "id blank": ('{"id": " ", "text": "x"}', "id is empty"),
    "id with nul": ('{"id": "b\\u0000c", "text": "x"}', r"id holds a NUL character \(\\u0000\)"),
    "id again": ('{"id": "a", "text": "x"}', r"'a' was given before, at .*c\.jsonl:1;"),
    "huge int": ('{"id": "b", "text": "x", "n": %s}' % ("9" * 5000), "thousands of digits"),
    "surrogate in text": (r'{"id": "b", "text": "\ud800"}', r"text holds the lone surrogate"),
    "surrogate in id": (r'{"id": "\udc00", "text": "x"}', r"id holds the lone surrogate"),
    "nul in title": (r'{"id": "b", "text": "x", "title": "\u0000"}', "title holds a NUL"),
    "deep": ('{"id": "b", "text": "x", "m": ' + "[" * 10**5 + "]" * 10**5 + "}", "nested"),
    "not utf-8": (b'{"id": "b", "text": "\xff"}', r"invalid UTF-8: byte 0xff .*line 2"),
    "nul": (b'{"id": "b", "text": "\0"}', "NUL byte"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_record_is_named_with_its_line_or_skipped(tmp_path, line, message):
    path = written(tmp_path, '{"id": "a", "text": "x"}', line, '{"id": "z", "text": "y"}')
    names_or_skips(path, ":2", message, ["x", "y"])


LEFT_OUT = {
    "overflow": ('"o": -1e999', "o", "holds -inf"),
    "int64": ('"o": 9223372036854775808', "o", "beyond 64 bits"),
    "surrogate": (r'"o": "\ud800"', "o", r"surrogate \ud800"),
    "surrogate in name": (r'"\ud800": 1', "\ud800", r"surrogate \ud800"),
    "surrogate in inner name": (r'"o": {"\udfff": 1}', "o", r"surrogate \udfff"),
    "nul": (r'"o": "a\u0000b"', "o", "NUL"),
    "nul in name": (r'"o": {"\u0000": 1}', "o", "NUL"),
    "deep": ('"o": ' + "[" * 102 + "]" * 102, "o", "nested deeper"),
}


@pytest.mark.parametrize(("member", "name", "fault"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_field_that_no_index_can_store_is_left_out_named_and_counted(
    tmp_path, member, name, fault
):
    line = '{"id": "%s", "text": "x", "n": NaN, "m": [1, {"k": [NaN]}], ' + member + "}"
    path = written(tmp_path, '{"id": "a", "text": "x"}', line % "b", line % "c")
    reader = CorpusReader([path])
    # NaN is null.
    kept = {"n": None, "m": [1, {"k": [None]}]}
    assert [(document.id, document.metadata) for document in reader] == [
        ("a", {}),
        ("b", kept),
        ("c", kept),
    ]
    assert (list(reader.left_out), reader.left_out[name].records) == ([name], 2)
    assert reader.left_out[name].first.startswith(f"{path}:2: ")
    assert fault in reader.left_out[name].first
    assert (reader.skipped, reader.problems) == (0, [])


@pytest.mark.parametrize(
    "record", [{"ID": "a", "Title": "t", "Text": "x"}, {"Id": "a", "TITLE": "t", "Passage": "x"}]
)
def test_default_names_count_in_any_case(tmp_path, record):
    path = written(tmp_path, json.dumps(record))
    assert read(path) == [Document("a", "x", "t")]
    table = tmp_path / "c.csv"
    table.write_text(",".join(record) + "\n" + ",".join(record.values()) + "\n")
    assert read(table) == [Document("a", "x", "t")]
    # The same table, whose name does not tell its format.
    assert read(table.rename(tmp_path / "table")) == [Document("a", "x", "t")]


def test_a_line_beyond_the_bound_is_refused_or_skipped_however_small_its_file_is(tmp_path, longest):
    content = b'{"text": "before"}\n{"text": "' + b"x" * longest + b'"}\n{"text": "after"}\n'
    path = write(tmp_path / "c.jsonl.gz", gzip.compress(content, 1))
    names_or_skips(path, ":2", "longer than 64 MiB", ["before", "after"])


def test_id_after_records_without_one_is_error_naming_both_lines(tmp_path):
    path = written(tmp_path, '{"text": "x"}', '{"text": "y"}', '{"_id": "a", "text": "z"}')
    with pytest.raises(SourceError, match=r"c\.jsonl:3: .*'_id'.*first record \(.*c\.jsonl:1\)"):
        read(path)


def test_the_first_ten_problems_and_places_of_empty_records_are_kept(tmp_path):
    path = written(tmp_path, *["bad"] * 25, *['{"text": " "}'] * 25, '{"text": "x"}')
    reader = CorpusReader([path], on_error="skip")
    # Each time that it is read.
    for _ in range(2):
        assert len(list(reader)) == 1
        assert (reader.skipped, reader.empty) == (25, 25)
        assert [problem.split(": ")[0] for problem in reader.problems] == [
            f"{path}:{line}" for line in range(1, 11)
        ]
        assert reader.empty_at == [f"{path}:{line}" for line in range(26, 36)]
