"""The syntax tree of a filter, which every store but the folder makes its query from."""

import pytest

from indexes.filters.grammar import (
    Among,
    And,
    Contains,
    Differs,
    Exists,
    Field,
    Like,
    Not,
    Or,
    Ordered,
)
from indexes.filters.sql import compile_where

A, B, C = (Field((name,)) for name in "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a exists", Exists(A)),
        ("a != null", Exists(A)),
        ("a = null", Among(A, (None,))),
        ("a == 'x'", Among(A, ("x",))),
        ("a in ('x', null, 2)", Among(A, ("x", None, 2))),
        ("a <> 1.5", Differs(A, 1.5)),
        ("a like 'x%'", Like(A, "x%")),
        ("a contains 'x'", Contains(A, "x")),
        ("a.b >= 'x'", Ordered(Field(("a", "b")), ">=", "x")),
        ("id < 'x'", Ordered(Field(("id",), own=True), "<", "x")),
        ("`id` < 'x'", Ordered(Field(("id",)), "<", "x")),
        ("title.a exists", Exists(Field(("title", "a")))),
        ("not a exists", Not(Exists(A))),
        ("not not a exists", Exists(A)),
        ("not (not (a exists))", Exists(A)),
        (
            "a exists and (b exists or c exists) and not a exists",
            And((Exists(A), Or((Exists(B), Exists(C))), Not(Exists(A)))),
        ),
        ("a exists or b exists and c exists", Or((Exists(A), And((Exists(B), Exists(C)))))),
    ],
)
def test_the_syntax_tree(text, expected):
    assert compile_where(text).expression == expected


@pytest.mark.parametrize(("literal", "kind"), [("true", bool), ("1", int), ("1.0", float)])
def test_equal_values_of_different_types_stay_apart(literal, kind):
    for operator in ("=", "!=", "contains"):
        comparison = compile_where(f"a {operator} {literal}").expression
        value = comparison.values[0] if isinstance(comparison, Among) else comparison.value
        assert type(value) is kind
