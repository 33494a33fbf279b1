"""A comparison with a type that its field does not have is named, with a form that can match."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from where_reference import DOCUMENTS, LEAVES, evaluate, is_number, render

from indexes.filters.grammar import type_mismatch
from indexes.filters.sql import compile_where

TYPES = {"boolean": bool, "string": str, "array": list, "object": dict}


def is_type(value, type_):
    return is_number(value) if type_ == "number" else isinstance(value, TYPES[type_])


def doubt(documents, text):
    """What is said of a filter over the metadata of some documents."""

    def has_type(name, types):
        return any(is_type(one.get(name), type_) for one in documents for type_ in types)

    return type_mismatch(compile_where(text).expression, has_type)


@pytest.mark.parametrize(
    ("value", "text", "types", "form"),
    [
        (2020, "f = '2020'", "numbers and no strings", "f = 2020"),
        (2020, "f = ' 2020'", "numbers and no strings", "f = NUMBER"),
        (2020, "not f != '2020.5'", "numbers and no strings", "f != 2020.5"),
        (2020, "f < '2020'", "numbers and no strings", "f < 2020"),
        (2020, "f like '20%'", "numbers and no strings", "f = NUMBER"),
        (2020, "f contains '2020'", "numbers and no strings or lists", "f = 2020"),
        (2020, "f contains 2020", "numbers and no lists", "f = 2020"),
        (2020, "f = true", "numbers and no booleans", "f = NUMBER"),
        (2020, "f in (1, '2', 3)", "numbers and no strings", "f in (1, 2, 3)"),
        ("2020", "f = 2020", "strings and no numbers", 'f = "2020"'),
        ("2020", "f >= -2.5", "strings and no numbers", 'f >= "-2.5"'),
        ("yes", "f = true", "strings and no booleans", 'f = "true"'),
        ("2020", "f contains 2", "strings and no lists", 'f contains "2"'),
        (True, "f = 'TRUE'", "booleans and no strings", "f = true"),
        (True, "f != 0", "booleans and no numbers", "f != false"),
        (True, "f > 0", "booleans and no numbers", "f = false"),
        (True, "f = 'x'", "booleans and no strings", "f = BOOLEAN"),
        (["geo"], "f = 'geo'", "lists and no strings", 'f contains "geo"'),
        (["geo"], "f != 'geo'", "lists and no strings", 'not f contains "geo"'),
        (["geo"], "f like '%geo%'", "lists and no strings", 'f contains "geo"'),
        ([5], "f = 5", "lists and no numbers", "f contains 5"),
        ([5], "f < 5", "lists and no numbers", "f contains 5"),
        (["a"], "f in ('a', 'b')", "lists and no strings", '(f contains "a" or f contains "b")'),
        ({"g": 1}, "f = 1", "objects and no numbers", "f.FIELD = 1"),
        ({"g": 1}, "f contains 'a'", "objects and no strings or lists", 'f.FIELD contains "a"'),
        ("x", "f.g = 'x'", "strings and no objects", 'f = "x"'),
        ("x", "f.g.h like 'x%'", "strings and no objects", 'f like "x%"'),
        (1, "f in ('1', '2', '3', '4')", "numbers and no strings", "f in (1, 2, 3, …)"),
        ("x", "f = true or f = 1", "strings and no booleans", 'f = "true"'),
    ],
)
def test_the_types_and_the_form_that_can_match_are_named(value, text, types, form):
    assert doubt([{"f": value}], text) == f"the field 'f' has {types}; write {form}"


@pytest.mark.parametrize(
    ("documents", "text", "said"),
    [
        ([{"f": 1}, {"f": ["a"]}], "f = 'a'", "numbers and lists and no strings; write f contains"),
        ([{"f": 1}, {"f": ["a"]}], "f = '7'", "numbers and lists and no strings; write f = 7"),
        (
            [{"a b": 1}],
            "`a b` = '7'",
            "the field 'a b' has numbers and no strings; write `a b` = 7",
        ),
        ([{"id": 1}], "`id` = '7'", "the field 'id' has numbers and no strings; write `id` = 7"),
        ([], "id = 7", "the field 'id' has strings and no numbers; write id = \"7\""),
        ([], "title contains true", "the field 'title' has strings and no lists"),
        ([{"\x1b[2J": 1}], "`\x1b[2J` = '7'", r"the field '\x1b[2J' has numbers"),
    ],
)
def test_several_types_and_odd_names(documents, text, said):
    assert said in (doubt(documents, text) or "")


@pytest.mark.parametrize(
    "text",
    ["f exists", "f = null", "f.g exists", "f.g = null", "f = 1.5", "f in (null, 1)", "g = 'x'",
     "h = 'x'", "not f > 7", "id = 'x' and title like 'x'"],
)  # fmt: skip
def test_nothing_is_said_of_what_can_match_or_of_fields_without_values(text):
    assert doubt([{"f": 1, "g": None}], text) is None


@given(LEAVES, DOCUMENTS, st.randoms(use_true_random=False))
def test_what_is_named_matches_nothing_and_what_is_not_could(node, documents, rng):
    metadata = [one["metadata"] for one in documents]
    said = doubt(metadata, render(node, rng))
    operator, (kind, path), literal = node
    literals = literal if operator == "in" else [literal]
    if said is not None and operator not in ("!=", "<>", "in"):
        assert not any(evaluate(node, one) for one in documents)
    if operator in ("=", "in") and kind == "path" and len(path) == 1:
        present = [one[path[0]] for one in metadata if one.get(path[0]) is not None]
        alike = [any(type(x) is type(y) or (is_number(x) and is_number(y)) for x in present)
                 for y in literals if y is not None]  # fmt: skip
        assert (said is None) == (not present or all(alike))
    if said is not None:
        form = said.partition("; write ")[2]
        if not re.search("NUMBER|BOOLEAN|FIELD|…|\N{REPLACEMENT CHARACTER}", form):
            compile_where(form)
