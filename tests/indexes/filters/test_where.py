import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from where_reference import DOCUMENTS, FILTERS, KEYWORDS, evaluate, quoted, render

from indexes.errors import FilterError
from indexes.filters.grammar import MAX_COMPARISONS, MAX_NESTING, MAX_PATH, point_at
from indexes.filters.sql import Joint, Leaf, compile_where


def matching(documents, text):
    where = compile_where(text)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (id TEXT, title TEXT, metadata TEXT NOT NULL)")
    for number, document in enumerate(documents):
        metadata = json.dumps(document["metadata"], ensure_ascii=number % 2 == 0)
        row = (document["id"], document["title"], metadata)
        connection.execute("INSERT INTO documents VALUES (?, ?, ?)", row)
    # As in a real caller: the filter is inside a nested query, after other conditions.
    found = connection.execute(
        "SELECT id FROM documents WHERE rowid IN (SELECT d.rowid FROM documents d"
        f" WHERE d.id <> '' AND {where.sql} IS NOT NULL AND {where.sql}) ORDER BY rowid",
        where.parameters * 2,
    ).fetchall()
    nulls = f"SELECT count(*) FROM documents d WHERE {where.sql} IS NULL"
    assert connection.execute(nulls, where.parameters).fetchone() == (0,)
    connection.close()
    return [row[0] for row in found]


def document(key="d", metadata=None, title=None):
    return {"id": key, "title": title, "metadata": metadata or {}}


def matches(text, metadata=None, title=None):
    return matching([document("d", metadata, title)], text) == ["d"]


# ---- random filters and documents ----------------------------------------------------------------


@given(FILTERS, DOCUMENTS, st.randoms(use_true_random=False))
def test_compiled_sql_agrees_with_an_independent_evaluator(node, documents, rng):
    documents = [{**each, "id": f"{each['id']}-{i}"} for i, each in enumerate(documents)]
    text = render(node, rng)
    expected = [each["id"] for each in documents if evaluate(node, each)]
    assert matching(documents, text) == expected, text


def by_fields(node, document):
    """The condition, each leaf evaluated where there is nothing but its own field."""
    if isinstance(node, Joint):
        assert len(node.parts) > 1
        parts = [by_fields(part, document) for part in node.parts]
        return all(parts) if node.joint == "AND" else any(parts)
    metadata = document["metadata"]
    rows = "(SELECT ? AS id, ? AS title, '{}' AS metadata) AS d"
    row_of = (document["id"], document["title"])
    if node.field is not None:
        rows = (
            "(SELECT coalesce(max(type), 'null') AS type, max(value) AS value "
            "FROM json_each(?) WHERE key = ?) AS f0"
        )
        row_of = (json.dumps(metadata), node.field)
    with closing(sqlite3.connect(":memory:")) as connection:
        row = connection.execute(
            f"SELECT {node.sql} FROM {rows}", (*node.parameters, *row_of)
        ).fetchone()
    assert row[0] in (0, 1)
    return bool(row[0])


@given(FILTERS, DOCUMENTS, st.randoms(use_true_random=False))
def test_the_leaves_of_a_filter_each_look_at_one_field(node, documents, rng):
    where = compile_where(render(node, rng))
    for each in documents:
        assert by_fields(where.tree, each) == evaluate(node, each), where


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a = 1", ["a"]),
        ("a = 1 and not a.b = 2 or a exists", ["a"]),
        ("a = 1 and b = 2 and a != 3", ["a", "b"]),
        ("a.b = 1 or not (b.a = 2 and b = 1)", ["a", "b"]),
        ("id = 'x' and `id` = 1 and title = 'y'", [None, "id"]),
        ("a in (1, null)", ["a"]),
    ],
)
def test_comparisons_of_one_field_side_by_side_are_one_leaf(text, fields):
    tree = compile_where(text).tree
    leaves = [tree] if isinstance(tree, Leaf) else tree.parts
    assert [leaf.field for leaf in leaves] == fields


# ---- what each operator means --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year >= 2020 and lang = 'en'", True),
        ("not (tag = 'x' or year < 1990)", True),
        ('lang in ("en", "de")', True),
        ('lang in ("fr", 1, true)', False),
        ('title like "%PYTHON%"', True),
        ('tags contains "ml"', True),
        ('tags contains "m"', False),
        ('lang contains "n"', True),
        ('lang contains "N"', False),
        ("tags contains 3", True),
        ("year exists", True),
        ("absent exists", False),
        ('author.name = "x"', True),
        ('author = "x"', False),
        ("`field with space` = 1", True),
        ("id = 'd' and `id` = 7", True),
        ("id = 7", False),
        ("title != 5", True),
        ("nothing = null and absent = null and year != null", True),
        ("nothing exists", False),
        ("absent != 1", False),
        ("nothing != 1", False),
        ("lang != 1", True),
        ("year = '2021'", False),
        ("year = 2021.0", True),
        ("flag = true and flag != 1 and not flag = 1", True),
        ("not absent = 1", True),
        ("not not year = 2021", True),
        ("year = 1 and year = 2 or lang = 'en'", True),
        ("year = 1 and (year = 2 or lang = 'en')", False),
        ("YEAR exists", False),
        ("absent in (1, null)", True),
    ],
)
def test_examples_of_the_documentation(text, expected):
    metadata = {"year": 2021, "lang": "en", "tags": ["ml", 3], "flag": True}
    metadata |= {"author": {"name": "x"}, "field with space": 1, "id": 7, "nothing": None}
    assert matches(text, metadata, "About Python") is expected


@pytest.mark.parametrize("title", [None, "t"])
@pytest.mark.parametrize("test", ["= 't'", "!= 't'", "< 'u'", "like 't'", "contains 't'", "in (1)"])
def test_a_comparison_with_a_missing_title_is_false_and_its_negation_true(title, test):
    assert matches(f"title {test}", title=title) is not matches(f"not title {test}", title=title)
    if title is None:
        assert not matches(f"title {test}", title=None)


def test_a_condition_on_id_uses_the_index_of_the_table():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, title TEXT, metadata TEXT)")
    where = compile_where("id in ('a', 'b')")
    plan = connection.execute(
        f"EXPLAIN QUERY PLAN SELECT 1 FROM documents d WHERE {where.sql}", where.parameters
    ).fetchall()
    connection.close()
    assert any("SEARCH d" in row[3] for row in plan)


# ---- hostile input -------------------------------------------------------------------------------

HOSTILE = [
    "x' OR '1'='1",
    'x" OR 1=1 --',
    "'); DROP TABLE documents; --",
    "$.a') OR 1=1 --",
    "a') IS NULL OR ('1",
    "? OR 1",
    "{0} {value} %s",
    "\\' OR 1=1 --",
    '"].b["',
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_string_is_only_a_value(hostile):
    where = compile_where(f"a = {quoted(hostile, chr(34))}")
    assert where.sql == compile_where("a = 'harmless'").sql
    assert where.parameters == ("a", hostile)
    documents = [document("plain", {"a": "harmless"}), document("hostile", {"a": hostile})]
    assert matching(documents, f"a = {quoted(hostile, chr(39))}") == ["hostile"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_field_name_is_only_a_name(hostile):
    field = quoted(hostile, "`")
    where = compile_where(f"{field}.{field} = 1")
    assert where.sql == compile_where("a.b = 1").sql
    assert where.parameters == (hostile, hostile, 1)
    documents = [document("plain", {"a": {"b": 1}}), document("hostile", {hostile: {hostile: 1}})]
    assert matching(documents, f"{field}.{field} = 1") == ["hostile"]


@given(
    st.one_of(
        st.text(),
        st.text(alphabet="ab.`'\"\\()=<>!,and or not in like 01-+e%\n\x00\ud800"),
        st.lists(
            st.sampled_from([*KEYWORDS, "a", "b.c", "`x`", "'s'", "1", "-2.5", *"=<>!,()."])
        ).map(" ".join),
    )
)
def test_any_text_either_compiles_to_sql_that_runs_or_raises_a_filter_error(text):
    try:
        matching([document()], text)
    except FilterError as caught:
        error = caught
    else:
        return
    assert 0 <= error.position <= len(text)
    assert "\n" not in str(error)
    assert f"character {error.position + 1}:" in str(error)
    line, caret = point_at(text, error.position).split("\n")
    assert len(line) == len(text)
    assert caret.strip() == "^"


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position", "expected", "found"),
    [
        ("", 0, "a field name", "the end of the filter"),
        ("  ", 2, "a field name", "the end of the filter"),
        ("year", 4, "an operator", "the end of the filter"),
        ("year >", 6, "a number or a string", "the end of the filter"),
        ("year > true", 7, "a number or a string", "'true'"),
        ("year = lang", 7, "a value", "'lang'"),
        ("year = 1 lang = 2", 9, "'and', 'or' or the end", "'lang'"),
        ("(year = 1", 9, "')'", "the end of the filter"),
        ("year = 1)", 8, "'and', 'or' or the end", "')'"),
        ("a = 1 and", 9, "a field name", "the end of the filter"),
        ("a = 1 and or b = 2", 10, "a field name", "'or'"),
        ("content-type = 1", 7, "an operator", "'-type'"),
        ('"a" = 1', 0, "in backquotes", "'\"a\"'"),
        ("a in ()", 6, "a value", "')'"),
        ("a in 1", 5, "'('", "'1'"),
        ("a in (1 2)", 8, "',' or ')'", "'2'"),
        ("a not in (1)", 2, "an operator", "'not'"),
        ("a like 1", 7, "a string", "'1'"),
        ("a contains null", 11, "a string, a number", "'null'"),
        ("a. = 1", 3, "a field name", "'='"),
        ("a = 'x", 4, "a closing '", "the end of the filter"),
        (r"a = 'x\n'", 6, r"\'", r"'\\n'"),
        ("a = 12abc", 4, "a value", "'12abc'"),
        ("a = 9223372036854775808", 4, "64 bits", "9223372036854775808"),
        ("a = " + "9" * 5000, 4, "64 bits", "999"),
        ("a = 1e999", 4, "a float", "1e999"),
        ("a ! 1", 2, "an operator", "'!'"),
        ("a = 'x\0'", 6, "NUL", r"'\x00'"),
        ("a = '\ud800'", 5, "surrogates", r"'\ud800'"),
        ("a = 1 ; drop", 6, "'and', 'or' or the end", "';'"),
    ],
)
def test_an_error_points_at_the_character_and_says_what_was_expected(
    text, position, expected, found
):
    with pytest.raises(FilterError) as caught:
        compile_where(text)
    message = str(caught.value)
    assert caught.value.position == position
    assert message.startswith(f"filter, character {position + 1}: expected ")
    wanted, shown = message.split(", found ")
    assert expected in wanted
    assert found in shown
    assert len(message) < 200


def test_point_at_puts_the_caret_below_the_character():
    assert point_at("year = lang", 7) == "year = lang\n       ^"
    assert point_at("a =\n\tb", 5) == "a =  b\n     ^"
    assert point_at("year", 4) == "year\n    ^"
    assert point_at("名 = x", 4) == "名 = x\n     ^"


def test_leading_zeros_do_not_make_an_integer_too_long():
    assert compile_where("a = -" + "0" * 5000 + "7").parameters == ("a", -7)


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(", ")"),
        ("(", " and b.c in (1, 'x')) or b = 2"),
        ("(", " or b.c contains 'x') and b = 2"),
        ("b = 2 and (b.c contains 'x' or ", ")"),
        ("b = 2 or b = 3 and not (", " or b = 4)"),
        ("b = 2 or b = 3 and not (b = 4 and b = 5 or not ", ")"),
    ],
)
def test_nesting_runs_up_to_the_limit_and_is_refused_beyond(before, after):
    deepest = before * MAX_NESTING + "a.b contains 'x'" + after * MAX_NESTING
    assert matching([document(metadata={"b": 2})], deepest) in ([], ["d"])
    with pytest.raises(FilterError, match=f"at most {MAX_NESTING} nested"):
        compile_where(before * (MAX_NESTING + 1) + "a = 1" + after * (MAX_NESTING + 1))
    with pytest.raises(FilterError, match=f"at most {MAX_NESTING} nested"):
        compile_where(before * 20_000)


def test_bushy_nesting_up_to_both_limits_runs():
    def spine(levels):
        return "a = 1" if levels == 0 else f"b = 2 and (b = 3 or {spine(levels - 1)})"

    def bush(levels, splits):
        if splits == 0:
            return spine(levels)
        inner = bush(levels - 1, splits - 1)
        return f"b = 2 and (b = 4 or b = 5 and {inner} or b = 6 and {inner})"

    text = bush(MAX_NESTING - 2, 1)
    assert text.count("=") <= MAX_COMPARISONS
    assert matching([document(metadata={"b": 2})], text) == []


def test_nots_do_not_count_as_nesting():
    assert matches("not " * 10_001 + "a = 1", {"a": 2})


def test_a_chain_of_comparisons_runs_up_to_the_limit_and_is_refused_beyond():
    for joint in (" or ", " and not "):
        chain = joint.join(["a = 1"] * MAX_COMPARISONS)
        assert matching([document(metadata={"a": 2})], chain) == []
        with pytest.raises(FilterError, match=r"x in \(a, b\)"):
            compile_where(chain + joint + "a = 1")


def test_long_lists_paths_and_patterns_run_up_to_their_limits():
    values = ", ".join(map(str, range(10_000)))
    assert matches(f"a in ({values})", {"a": 9_999})
    path = ".".join(["a"] * MAX_PATH)
    assert matching([document()], f"{path} = 1") == []
    with pytest.raises(FilterError, match="names in a path"):
        compile_where(f"{path}.a = 1")
    with pytest.raises(FilterError, match="values"):
        compile_where(f"a in ({values}, 1)")
    assert not matches(f"a like '{'é' * 9_990}'", {"a": "x"})
    with pytest.raises(FilterError, match="pattern"):
        compile_where(f"a like '{'é' * 10_000}'")
