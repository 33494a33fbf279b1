"""Columns in SQLite: what a commit changes, what is given up, what compacting renews, damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from column_samples import (
    allowed,
    allowed_by_rows,
    column,
    numbered,
    rows_refused,
    small_chunks,
)
from index_samples import SETTINGS, commit, document, make_index

from indexes.filters.columns import Limits
from indexes.segments.maintenance import compact
from indexes.verify import verify
from indexes.writer import Writer


def test_every_distinct_value_has_a_row_from_code_one_on(tmp_path: Path) -> None:
    folder = make_index(
        tmp_path / "index",
        [document(f"d{i}", f"t{i}", {"kind": ["x", "y"][i % 2]}) for i in range(4)],
        [document("e", "t", {"kind": None}), document("f", "t")],
    )
    assert column(folder, "kind") == (
        1,
        ["{}", '{"kind":"x"}', '{"kind":"y"}', '{"kind":null}'],
        1,
    )
    assert column(folder, "other") == (None, [], 0)


def test_metadata_that_changes_alone_changes_the_column(tmp_path: Path) -> None:
    folder = make_index(
        tmp_path / "index", [document("a", "one two", {"n": 1, "m": 1}, passages=2)]
    )
    with Writer(folder) as writer:
        commit(writer, metadata={"a": {"n": 2}, "unknown": {"x": 1}})
    with rows_refused():
        assert allowed(folder, "n = 2 and m = null") == [1, 2]
        assert allowed(folder, "n = 1 or m = 1 or x = 1") == []
    assert column(folder, "x") == (None, [], 0)
    assert verify(folder) == []


def test_metadata_of_a_document_of_the_same_commit_counts_last(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "index", numbered(2))
    with Writer(folder) as writer:
        commit(writer, *numbered(1), metadata={"d0": {"n": 5, "m": 1}})
    with rows_refused():
        assert allowed(folder, "n = 5 and m = 1") == [3]
        assert allowed(folder, "n = 0") == []
    assert verify(folder) == []


def test_a_commit_that_fails_leaves_the_columns_as_they_were(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "index", numbered(2))
    with Writer(folder) as writer, pytest.raises(ValueError, match="JSON"):
        commit(writer, *numbered(1, first=2), metadata={"d0": {"n": 8}, "d1": {"x": float("nan")}})
    assert column(folder, "n") == (1, ["{}", '{"n":0}', '{"n":1}'], 1)
    assert verify(folder) == []


@pytest.mark.parametrize(
    ("limits", "given_up"),
    [(Limits(values=3), True), (Limits(values=4), False), (Limits(length=6), True)],
)
def test_a_field_beyond_the_limits_is_given_up_and_filtered_by_its_documents(
    tmp_path: Path, limits: Limits, given_up: bool
) -> None:
    folder = tmp_path / "index"
    with Writer(folder, SETTINGS, limits) as writer:
        commit(writer, *numbered(3))
        assert column(folder, "n")[0] == int(limits.length > 6)
        commit(writer, *numbered(1, first=3))
        if given_up:
            assert column(folder, "n") == (0, [], 0)
            # It is not tried again by a commit.
            commit(writer, *numbered(1, first=4))
            assert column(folder, "n") == (0, [], 0)
        else:
            assert column(folder, "n") == (1, ["{}", *(f'{{"n":{i}}}' for i in range(4))], 1)
    assert allowed(folder, "n = 3 or other = 1") == [4]
    with rows_refused():
        if given_up:
            with pytest.raises(AssertionError, match="every document"):
                allowed(folder, "n = 3 or other = 1")
        assert allowed(folder, "other = 1") == []
    assert verify(folder) == []


def test_a_value_that_is_too_long_gives_its_field_up_and_no_other(tmp_path: Path) -> None:
    folder = make_index(
        tmp_path / "index", [document("a", "one", {"abstract": "x" * 2000, "n": 1})]
    )
    assert column(folder, "abstract")[0] == 0
    assert column(folder, "n")[0] == 1


def test_fields_beyond_so_many_are_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with Writer(folder, SETTINGS, Limits(fields=2)) as writer:
        commit(writer, document("a", "one", {"p": 1, "q": 1}), document("b", "two", {"r": 1}))
        commit(writer, document("c", "three", {"q": 2, "r": 1, "s": 1}))
    assert [column(folder, field)[0] for field in "pqrs"] == [1, 1, 0, 0]
    for text in ("q = 2", "r = 1", "s = 1", "p = 1 or s = 1"):
        assert allowed(folder, text) == allowed_by_rows(folder, text) != []
    assert verify(folder) == []


def test_more_values_than_the_usual_limit_are_filtered_by_documents(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "index", numbered(4096))
    assert column(folder, "n")[0] == 1
    with rows_refused():
        assert allowed(folder, "n = 4095") == [4096]
    with Writer(folder) as writer:
        commit(writer, *numbered(1, first=4096))
    assert column(folder, "n") == (0, [], 0)
    assert allowed(folder, "n >= 4095") == [4096, 4097]
    assert verify(folder) == []


def test_compacting_numbers_values_anew_and_tries_fields_again(tmp_path: Path) -> None:
    folder, limits = tmp_path / "index", Limits(values=3)
    with Writer(folder, SETTINGS, limits) as writer:
        commit(writer, *(document(f"d{i}", f"t{i}", {"n": i, "m": i % 3}) for i in range(5)))
        writer.delete(["d0", "d1", "d3"])
        assert column(folder, "n")[0] == 0
        assert len(column(folder, "m")[1]) == 4
        compact(writer)
    assert column(folder, "n") == (1, ["{}", '{"n":2}', '{"n":4}'], 1)
    assert column(folder, "m") == (1, ["{}", '{"m":2}', '{"m":1}'], 1)
    with rows_refused():
        assert allowed(folder, "n > 2") == [5]
    assert verify(folder) == []


def test_compacting_forgets_fields_that_no_document_has(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "index", [document("a", "one", {"old": 1})], numbered(1))
    with Writer(folder) as writer:
        writer.delete(["a"])
        compact(writer)
    assert column(folder, "old") == (None, [], 0)
    assert column(folder, "n")[0] == 1


def test_chunks_of_which_no_passage_is_left_go_with_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch)
    folder = make_index(tmp_path / "index", numbered(8))
    with Writer(folder) as writer:
        for _ in range(3):
            commit(writer, *numbered(8))
        assert column(folder, "n")[2] == 9
        writer.replace(writer.segments())
    # The last eight of 32 passages from number 1 on.
    assert column(folder, "n")[2] == 3
    with rows_refused():
        assert allowed(folder, "n = 7 or n = 0") == [25, 32]
    assert verify(folder) == []


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    folder = tmp_path / "index"
    with Writer(folder, SETTINGS, Limits(values=3)) as writer:
        commit(
            writer,
            *(document(f"d{i}", f"t{i} u", {"n": i % 2, "up": i}, passages=2) for i in range(5)),
            document("e", "last", {"gone": 1}),
        )
        writer.delete(["e"])
    assert verify(folder) == []
    with closing(sqlite3.connect(folder / "index.sqlite", isolation_level=None)) as connection:
        yield connection


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "UPDATE field_codes SET codes = x'00', chunk = 0 WHERE field = 'n'",
            "'n' in chunk 0 were",
        ),
        ("UPDATE field_codes SET checksum = 'x' WHERE field = 'n'", "'n' in chunk 0 were altered"),
        ("UPDATE field_codes SET chunk = 1 WHERE field = 'n'", "'n' in chunk 1 were altered"),
        (
            "DELETE FROM field_codes WHERE field = 'n'",
            "field 'n': the column has another value than the document for passage 1 of document "
            "'d0' (10 passages in all)",
        ),
        (
            "UPDATE field_values SET metadata = '{\"n\":7}' WHERE metadata = '{\"n\":1}'",
            "field 'n': the column has another value than the document for passage 3 of document "
            "'d1' (4 passages in all)",
        ),
        (
            "UPDATE field_values SET metadata = '{\"n\": 1}' WHERE field = 'n' AND code = 2",
            "code 2",
        ),
        ("UPDATE field_values SET metadata = '{' WHERE field = 'gone' AND code = 1", "code 1 was"),
        ("UPDATE field_values SET metadata = '{\"n\":0}' WHERE field = 'n' AND code = 0", "code 0"),
        (
            "UPDATE field_values SET type = 'real' WHERE field = 'n' AND code = 1",
            "'n': the value with code 1 was altered",
        ),
        ("UPDATE field_values SET value = 7 WHERE field = 'n' AND code = 1", "code 1 was altered"),
        ("UPDATE field_values SET value = 0 WHERE field = 'n' AND code = 0", "code 0 was altered"),
        ("UPDATE field_values SET code = 3 WHERE field = 'n' AND code = 1", "code 3 was altered"),
        ("UPDATE field_values SET code = 'x' WHERE field = 'n' AND code = 1", "code 'x' was"),
        ("DELETE FROM field_values WHERE field = 'gone' AND code = 0", "code 1 was altered"),
        ("UPDATE field_values SET field = 'm' WHERE field = 'n'", "'m': values of a field that is"),
        (
            "INSERT INTO field_values VALUES ('up', 1, '{\"up\":1}', 'integer', 1)",
            "'up': values of a field",
        ),
        ("INSERT INTO field_codes VALUES ('up', 0, x'', 0)", "'up': codes of a field"),
        ("DELETE FROM fields WHERE field = 'n'", "field 'n': no column, found in passage 1 of"),
        ("DELETE FROM fields WHERE field = 'up'", "field 'up': no column, found in passage 1 of"),
        ("UPDATE fields SET kept = 1 WHERE field = 'up'", "field 'up': the column has another"),
        ("UPDATE fields SET kept = 0 WHERE field = 'n'", "'n': values of a field that is not kept"),
        (
            "UPDATE fields SET kept = 5 WHERE field = 'up'",
            "'up': expected 0 or 1 for kept, found 5",
        ),
        ("UPDATE documents SET metadata = '{}' WHERE id = 'd3'", "for passage 7 of document 'd3'"),
        ("UPDATE documents SET metadata = '{' WHERE id = 'd3'", "'d3' was altered"),
    ],
)
def test_verifying_finds_columns_that_disagree_with_the_documents(
    tmp_path: Path, database: sqlite3.Connection, statement: str, words: str
) -> None:
    assert database.execute(statement).rowcount > 0
    problems = verify(tmp_path / "index")
    assert any(words in problem for problem in problems), problems
    for problem in problems:
        assert problem.startswith(f"{tmp_path / 'index' / 'index.sqlite'}: ")
        assert "\n" not in problem
