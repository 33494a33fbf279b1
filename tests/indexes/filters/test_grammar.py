"""The syntax tree of a filter, errors that point at a character, limits, and types that differ."""

from datetime import date, timedelta
from operator import ge, gt, le, lt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.errors import FilterError
from indexes.filters.grammar import (
    MAX_COMPARISONS,
    MAX_NESTING,
    MAX_PATH,
    Field,
    FieldComparison,
    Joined,
    Not,
    compile_where,
    point_at,
    type_mismatch,
)
from tests.indexes.where_reference import (
    DOCUMENTS,
    KEYWORDS,
    LARGEST,
    LEAVES,
    evaluate,
    is_number,
    render,
)

COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge}
A, B, C = (Field((name,)) for name in "abc")


def exists(field):
    return FieldComparison(field, "exists")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a exists", exists(A)),
        ("a != null", exists(A)),
        ("a = null", Not(exists(A))),
        ("a == 'x'", FieldComparison(A, "in", ("x",))),
        ("a in (null)", Not(exists(A))),
        ("a in ('x', null, 2)", Joined("or", (FieldComparison(A, "in", ("x", 2)), Not(exists(A))))),
        ("not a = null", exists(A)),
        ("a <> 1.5", FieldComparison(A, "!=", (1.5,))),
        ("a like 'x%'", FieldComparison(A, "like", ("x%",))),
        ("a contains 'x'", FieldComparison(A, "contains", ("x",))),
        ("a.b >= 'x'", FieldComparison(Field(("a", "b")), ">=", ("x",))),
        ("id < 'x'", FieldComparison(Field(("id",), own=True), "<", ("x",))),
        ("`id` < 'x'", FieldComparison(Field(("id",)), "<", ("x",))),
        ("title.a exists", exists(Field(("title", "a")))),
        ("not a exists", Not(exists(A))),
        ("not not a exists", exists(A)),
        ("not (not (a exists))", exists(A)),
        (
            "a exists and (b exists or c exists) and not a exists",
            Joined("and", (exists(A), Joined("or", (exists(B), exists(C))), Not(exists(A)))),
        ),
        (
            "a exists or b exists and c exists",
            Joined("or", (exists(A), Joined("and", (exists(B), exists(C))))),
        ),
        ("a = -" + "0" * 5000 + "7", FieldComparison(A, "in", (-7,))),
        ("not " * 10_001 + "a exists", Not(exists(A))),
    ],
)
def test_filter_text_is_parsed_into_its_syntax_tree(text, expected):
    assert compile_where(text).expression == expected


@pytest.mark.parametrize(("literal", "kind"), [("true", bool), ("1", int), ("1.0", float)])
def test_literal_keeps_its_type(literal, kind):
    for operator in ("=", "!=", "contains"):
        comparison = compile_where(f"a {operator} {literal}").expression
        assert type(comparison.values[0]) is kind


def test_fields_of_a_filter_are_its_metadata_fields_and_id():
    where = compile_where("a.b = 1 or not (c = 2 and id = 'x' and `id` = 1 and title exists)")
    assert where.fields == {"a", "c", "id"}


DATES = st.dates(date(2019, 11, 1), date(2021, 2, 28)).map(str)
# A year, a month or a day.
PERIODS = st.builds(lambda day, length: day[:length], DATES, st.sampled_from([4, 7, 10]))


@given(DATES, PERIODS, PERIODS)
def test_partial_date_covers_all_its_days(day, first, last):
    def ordered(text):
        expression = compile_where(text).expression
        parts = expression.parts if isinstance(expression, Joined) else (expression,)
        return all(COMPARED[comparison.operator](day, *comparison.values) for comparison in parts)

    def days(period):
        begin = date.fromisoformat(period + "-01-01"[len(period) - 4 :])
        return [
            day
            for day in map(str, (begin + timedelta(n) for n in range(400)))
            if day.startswith(period)
        ]

    assert ordered(f"born before '{first}'") == (day < days(first)[0])
    assert ordered(f"born after '{first}'") == (day > days(first)[-1])
    among = days(first)[0] <= day <= days(last)[-1]
    assert ordered(f"born between '{first}' and '{last}'") == among


def test_operator_words_can_be_field_names():
    where = compile_where("before before '2020' and is is null and between between 1 and 2")
    assert where.fields == {"before", "is", "between"}


@given(
    st.one_of(
        st.text(),
        st.text(alphabet="ab.`'\"\\()=<>!,and or not in like 01-+e%\n\x00\ud800"),
        st.lists(
            st.sampled_from([*KEYWORDS, "a", "b.c", "`x`", "'s'", "1", "-2.5", *"=<>!,()."])
        ).map(" ".join),
    )
)
def test_arbitrary_text_is_parsed_or_refused_with_a_position(text):
    try:
        compile_where(text)
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


@pytest.mark.parametrize(
    ("text", "position", "expected", "offending"),
    [
        ("", 0, "a field name", "the end of the filter"),
        ("year", 4, "an operator", "the end of the filter"),
        ("year > true", 7, "a number or a string", "'true'"),
        ("year = lang", 7, "a value", "'lang'"),
        ("year = 1 lang = 2", 9, "'and', 'or' or the end", "'lang'"),
        ("(year = 1", 9, "')'", "the end of the filter"),
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
        ("a is 1", 5, "null or not null", "'1'"),
        ("a is not 1", 9, "null", "'1'"),
        ("a between 1 or 2", 12, "'and' after the first value", "'or'"),
        ("a between 1 and 'x'", 16, "a number after 'and'", "\"'x'\""),
        ("a before 2020", 9, "a date in quotes", "'2020'"),
        ("a after 'May 2020'", 8, 'a date such as "2020-03-01"', "\"'May 2020'\""),
        ("a ! 1", 2, "an operator", "'!'"),
        ("a = 'x\0'", 6, "NUL", r"'\x00'"),
        ("a = '\ud800'", 5, "surrogates", r"'\ud800'"),
    ],
)
def test_an_error_points_at_the_character_and_says_what_was_expected(
    text, position, expected, offending
):
    with pytest.raises(FilterError) as caught:
        compile_where(text)
    message = str(caught.value)
    assert caught.value.position == position
    assert message.startswith(f"filter, character {position + 1}: expected ")
    stated_expected, stated_found = message.split(", found ")
    assert expected in stated_expected
    assert offending in stated_found
    assert len(message) < 200


def test_point_at_puts_the_caret_below_the_character():
    assert point_at("year = lang", 7) == "year = lang\n       ^"
    assert point_at("a =\n\tb", 5) == "a =  b\n     ^"
    assert point_at("名e\u0301 = x", 6) == "名e\u0301 = x\n      ^"


@pytest.mark.parametrize(
    ("beyond", "refused"),
    [
        ("(" * 20_000, f"at most {MAX_NESTING} nested"),
        (f"(a = 1) and {'(' * (MAX_NESTING + 1)}a = 1", f"at most {MAX_NESTING} nested"),
        (" or ".join(["a = 1"] * (MAX_COMPARISONS + 1)), r"x in \(a, b\)"),
        (".".join(["a"] * (MAX_PATH + 1)) + " = 1", "names in a path"),
        (f"a in ({'1, ' * 10_000}1)", "at most 10000 values"),
        (f"a like '{'é' * 9_999}'", "characters in a pattern"),
    ],
)
def test_filters_beyond_their_limits_are_refused(beyond, refused):
    for most in LARGEST:
        compile_where(most)
    with pytest.raises(FilterError, match=refused):
        compile_where(beyond)


TYPES = {"boolean": bool, "string": str, "array": list, "object": dict}


def mismatch(documents, text):
    """Return the type mismatch of a filter over the metadata of some documents."""

    def has_type(name, types):
        values = [document.get(name) for document in documents]
        return any(
            is_number(value) if type_ == "number" else isinstance(value, TYPES[type_])
            for value in values
            for type_ in types
        )

    return type_mismatch(compile_where(text).expression, has_type)


@pytest.mark.parametrize(
    ("value", "text", "types"),
    [
        (2020, "not f != '2020'", "numbers and no strings: write the value without quotes, 2020"),
        (2020, "f < '2020'", "numbers and no strings: write the value without quotes, 2020"),
        (2020, "f like '20%'", "numbers and no strings"),
        (2020, "f contains '2020'", "numbers and no strings or lists"),
        (2020, "f contains 2020", "numbers and no lists"),
        (2020, "f in (1, '2', 3)", "numbers and no strings"),
        (True, "f > 0", "booleans and no numbers"),
        (["geo"], "f = 'geo'", 'lists and no strings: write f contains "geo"'),
        (["geo"], "f != 'geo'", "lists and no strings"),
        ("2020", "f >= 2020", 'strings and no numbers: write the value in quotes, "2020"'),
        ({"g": 1}, "f = 1", "objects and no numbers"),
        ("x", "f.g.h like 'x%'", "strings and no objects"),
        ("x", "f = true or f = 1", "strings and no booleans"),
        (1, "f exists and f.g exists and f = null and f in (null, 1) and g = 'x'", None),
    ],
)
def test_type_mismatch_names_the_types_and_the_remedy(value, text, types):
    expected = types and f"the field 'f' has {types}"
    assert mismatch([{"f": value, "g": None}], text) == expected


def test_type_mismatch_covers_several_types_control_characters_and_id():
    several = [{"f": 1}, {"f": ["a"]}]
    assert mismatch(several, "f = 'a'") == "the field 'f' has numbers and lists and no strings"
    assert mismatch([{"\x1b": 1}], "`\x1b` = 'x'") == r"the field '\x1b' has numbers and no strings"
    assert mismatch([{"id": 1}], "id = 7") == (
        "the field 'id' has strings and no numbers: write the value in quotes, \"7\""
    )
    assert mismatch([], "id = 'x' and title like 'x'") is None


@given(LEAVES, DOCUMENTS, st.randoms(use_true_random=False))
def test_filter_with_a_type_mismatch_matches_no_document(node, documents, rng):
    metadata = [document["metadata"] for document in documents]
    message = mismatch(metadata, render(node, rng))
    operator, (kind, path), literal = node
    literals = literal if operator == "in" else [literal]
    if message is not None and operator not in ("!=", "<>", "in"):
        assert not any(evaluate(node, document) for document in documents)
    if operator in ("=", "in") and kind == "path" and len(path) == 1:
        present = [document[path[0]] for document in metadata if document.get(path[0]) is not None]
        alike = [any(type(x) is type(y) or (is_number(x) and is_number(y)) for x in present)
                 for y in literals if y is not None]  # fmt: skip
        assert (message is None) == (not present or all(alike))
