"""Expressions for layers: what they name, how they are written again, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders.settings import check_layers, format_layers, resolve_layers
from retriever.errors import ConfigError

DEPTHS = st.integers(1, 24)


@st.composite
def expressions(draw):
    """A depth, an expression and the hidden states that it names, in order."""
    depth = draw(DEPTHS)
    left, parts, named = list(range(depth + 1)), [], []
    for _ in range(draw(st.integers(1, 5))):
        if not left:
            break
        low = draw(st.sampled_from(left))
        high = low
        while high + 1 in left and draw(st.booleans()):
            high += 1
        states = list(range(low, high + 1))
        ends = [draw(st.sampled_from([end, end - depth - 1])) for end in (low, high)]
        parts.append(str(ends[0]) if low == high else f"{ends[0]}..{ends[1]}")
        named += states
        left = [layer for layer in left if layer not in states]
    return depth, ",".join(parts), tuple(named)


@st.composite
def choices(draw):
    """A depth and some of its hidden states, in any order."""
    depth = draw(DEPTHS)
    layers = draw(st.permutations(range(depth + 1)))
    return depth, tuple(layers[: draw(st.integers(1, depth + 1))])


def refused(expression, depth=12):
    with pytest.raises(ConfigError) as caught:
        resolve_layers(expression, depth)
    message = str(caught.value)
    assert message.startswith("layers: ")
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("last", (12,)),
        ("last1", (12,)),
        ("last4", (9, 10, 11, 12)),
        ("last13", tuple(range(13))),
        ("all", tuple(range(13))),
        ("0", (0,)),
        ("0,6", (0, 6)),
        ("6,0", (6, 0)),
        ("1..4", (1, 2, 3, 4)),
        ("3..3", (3,)),
        ("-1", (12,)),
        ("-13", (0,)),
        ("-1,1", (12, 1)),
        ("-4..-1", (9, 10, 11, 12)),
        ("0..-1", tuple(range(13))),
        ("-13..2", (0, 1, 2)),
        ("last2,0,4..6", (11, 12, 0, 4, 5, 6)),
        (" 1 .. 4 , last ", (1, 2, 3, 4, 12)),
        ("-0", (0,)),
    ],
)
def test_what_an_expression_names(expression, named):
    assert resolve_layers(expression, 12) == named


@given(expressions())
def test_numbers_and_ranges_name_their_states_in_order(case):
    depth, expression, named = case
    assert resolve_layers(expression, depth) == named


@given(choices())
def test_what_is_written_again_names_the_same_states(case):
    depth, layers = case
    assert resolve_layers(format_layers(layers, depth), depth) == layers


@given(expressions())
def test_the_canonical_expression_does_not_depend_on_how_it_was_written(case):
    depth, expression, named = case
    canonical = format_layers(resolve_layers(expression, depth), depth)
    assert canonical == format_layers(named, depth)
    assert format_layers(resolve_layers(canonical, depth), depth) == canonical


@pytest.mark.parametrize(
    ("layers", "written"),
    [
        ((12,), "last"),
        (tuple(range(13)), "all"),
        ((0,), "0"),
        ((0, 1), "0,1"),
        ((0, 1, 2), "0..2"),
        ((0, 6), "0,6"),
        ((12, 1), "12,1"),
        ((1, 2, 3, 4, 6, 8, 9), "1..4,6,8,9"),
        ((3, 2, 1), "3,2,1"),
        ((5, 6, 7, 0, 1, 2), "5..7,0..2"),
    ],
)
def test_the_canonical_expression(layers, written):
    assert format_layers(layers, 12) == written


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "",
            ",",
            "0,",
            ",0",
            "0,,1",
            "first",
            "last0",
            "last-1",
            "1...4",
            "1..",
            "..4",
            "1..2..3",
        ),
        *("1-4", "1.5", "+1", "--1", "0x1", "1e0", "All", "LAST", "last,x", "1;2", "0;\n6"),
    ],
)
def test_what_is_no_list_of_layers_is_refused_with_examples(expression):
    message = refused(expression)
    for part in ("last4", "all", "0,6", "1..4", repr(expression)):
        assert part in message
    with pytest.raises(ConfigError, match="layers: expected"):
        check_layers(expression)


@pytest.mark.parametrize("expression", ["٣", "last٤", "0..٣"])
def test_digits_are_those_of_ascii(expression):
    assert "expected" in refused(expression)


@given(DEPTHS, st.integers(1, 100))
def test_a_layer_out_of_range_is_refused_with_the_range(depth, beyond):
    for layer in (depth + beyond, -depth - 1 - beyond):
        for expression in (f"{layer}", f"0,{layer}" if layer > 0 else f"{layer}..0"):
            message = refused(expression, depth)
            assert f"0 (embeddings) to {depth}" in message
            assert f"-{depth + 1} to -1" in message
            assert f"found {layer}" in message


def test_more_last_layers_than_there_are_is_refused_with_how_many_there_are():
    assert "13 hidden states" in refused("last14")


@pytest.mark.parametrize(("expression", "twice"), [("0,0", 0), ("last,12", 12), ("1..4,-9", 4)])
def test_a_layer_that_is_named_twice_is_refused(expression, twice):
    message = refused(expression)
    assert f"hidden state {twice} twice" in message
    assert repr(expression) in message


@pytest.mark.parametrize("expression", ["4..1", "-1..0", "12..11"])
def test_a_range_that_runs_backwards_is_refused(expression):
    assert "backwards" in refused(expression)


@pytest.mark.parametrize("text", ["0 , 6", " 0,6", "0,\t6\n"])
def test_white_space_is_left_out(text):
    assert check_layers(text) == "0,6"
