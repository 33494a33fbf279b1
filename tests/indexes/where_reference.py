"""Random filters, their text, and an independent evaluator of what they mean."""

import json
import re

from hypothesis import strategies as st

from indexes.filters.grammar import MAX_COMPARISONS, MAX_NESTING, MAX_PATH

KEYWORDS = ["and", "or", "not", "in", "like", "contains", "exists", "true", "false", "null"]
NAMES = ["a", "b", "né", "x y", 'q"', "s'", "dot.ted", "back\\slash", "tick`", "or", "id", "$", ""]
TEXT = st.text(alphabet="aAbBéÉ%_'\"\\` ", max_size=4)
NUMBERS = st.sampled_from(
    [0, 0.0, -0.0, 1, -1, 2, 1.0, 0.5, -0.25, 1e300, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, -(2**63)]
)
SCALARS = st.one_of(TEXT, NUMBERS, st.booleans())
VALUES = st.one_of(
    SCALARS,
    st.none(),
    st.lists(SCALARS | st.none(), max_size=3),
    st.dictionaries(st.sampled_from(NAMES), SCALARS | st.none(), max_size=3),
)
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXT.map(lambda text: "i" + text),
            "title": TEXT | st.none(),
            "metadata": st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6),
        }
    ),
    min_size=1,
    max_size=4,
)
FIELDS = st.one_of(
    st.sampled_from([("column", "id"), ("column", "title")]),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(lambda path: ("path", path)),
)
LEAVES = st.one_of(
    st.tuples(st.sampled_from(["=", "==", "!=", "<>"]), FIELDS, SCALARS | st.none()),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), FIELDS, TEXT | NUMBERS),
    st.tuples(st.just("in"), FIELDS, st.lists(SCALARS | st.none(), min_size=1, max_size=4)),
    st.tuples(st.just("like"), FIELDS, TEXT),
    st.tuples(st.just("contains"), FIELDS, SCALARS),
    st.tuples(st.just("exists"), FIELDS, st.none()),
    st.tuples(st.just("is"), FIELDS, st.booleans()),
    st.tuples(st.just("between"), FIELDS, st.tuples(TEXT, TEXT) | st.tuples(NUMBERS, NUMBERS)),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
    ),
    max_leaves=8,
)

# Filters that the limits just allow; documents without strings and lists pass none.
LARGEST = [
    "(a = 1) and " + "(" * MAX_NESTING + "a = 1" + " or b = 3)" * MAX_NESTING,
    "(" * MAX_NESTING + "a.b contains 'x'" + " and b = 2 and b.c in (1, 'x'))" * MAX_NESTING,
    "b = 3 and not (b.c contains 'x' or " * MAX_NESTING + "a = 1" + ")" * MAX_NESTING,
    " or ".join(["a = 1"] * MAX_COMPARISONS),
    " and not ".join(["a = 2"] * MAX_COMPARISONS),
    f"a in ({', '.join(map(str, range(3, 10_003)))})",
    ".".join(["a"] * MAX_PATH) + " = 1",
    f"a like '{'é' * 9_998}'",
]


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(value, literal):
    if is_number(literal):
        return is_number(value) and value == literal
    return type(value) is type(literal) and value == literal


def like(value, pattern):
    def fold(text):
        return "".join(c.lower() if c.isascii() else c for c in text)

    signs = {"%": ".*", "_": "."}
    regex = "".join(signs.get(c, re.escape(c)) for c in fold(pattern))
    return re.fullmatch(regex, fold(value), re.DOTALL) is not None


def evaluate(node, document):
    if node[0] == "not":
        return not evaluate(node[1], document)
    if node[0] in ("and", "or"):
        left, right = evaluate(node[1], document), evaluate(node[2], document)
        return (left and right) if node[0] == "and" else (left or right)
    operator, (kind, name), literal = node
    if kind == "column":
        value = document[name]
    else:
        value = document["metadata"]
        for part in name:
            value = value.get(part) if isinstance(value, dict) else None
    match operator:
        case "=" | "==":
            return equal(value, literal)
        case "!=" | "<>":
            return value is not None and not equal(value, literal)
        case "in":
            return any(equal(value, each) for each in literal)
        case "exists":
            return value is not None
        case "is":
            return (value is None) == literal
        case "between":
            lows, highs = [
                (sign, node[1], end) for sign, end in zip((">=", "<="), literal, strict=True)
            ]
            return evaluate(lows, document) and evaluate(highs, document)
        case "like":
            return isinstance(value, str) and like(value, literal)
        case "contains":
            if isinstance(value, list):
                return any(equal(each, literal) for each in value)
            return isinstance(value, str) and isinstance(literal, str) and literal in value
    both_text = isinstance(value, str) and isinstance(literal, str)
    if not both_text and not (is_number(value) and is_number(literal)):
        return False
    tests = {"<": value < literal, "<=": value <= literal}
    return {**tests, ">": value > literal, ">=": value >= literal}[operator]


def quoted(text, quote):
    return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


def render(node, rng, level=0):
    """Return the filter as text; `level` is the binding strength: 0 or, 1 and, 2 not."""

    def space(least=0):
        return "".join(rng.choice(" \t\n") for _ in range(rng.randint(least, 2)))

    def word(text):
        return "".join(rng.choice([c.upper(), c.lower()]) for c in text)

    def value(literal):
        if isinstance(literal, str):
            return quoted(literal, rng.choice("'\""))
        return word(json.dumps(literal)) if literal in (None, True, False) else repr(literal)

    def name(text):
        plain = text.isidentifier() and text not in KEYWORDS and text != "id"
        return text if plain and rng.random() < 0.5 else quoted(text, "`")

    def bare():
        if node[0] == "not":
            return word("not") + space(1) + render(node[1], rng, 2), 2
        if node[0] in ("and", "or"):
            strength = 1 if node[0] == "and" else 0
            left, right = render(node[1], rng, strength), render(node[2], rng, strength)
            return left + space(1) + word(node[0]) + space(1) + right, strength
        operator, (kind, path), literal = node
        dot = space() + "." + space()
        field = path if kind == "column" else dot.join(map(name, path))
        if operator == "exists":
            return field + space(1) + word("exists"), 2
        if operator == "in":
            items = (space() + "," + space()).join(map(value, literal))
            return f"{field}{space(1)}{word('in')}{space()}({space()}{items}{space()})", 2
        if operator == "is":
            return f"{field}{space(1)}{word('is null' if literal else 'is not null')}", 2
        if operator == "between":
            low, high = map(value, literal)
            return field + f"{space(1)}{word('between')} {low} {word('and')} {high}", 2
        if operator in ("like", "contains"):
            least = 0 if isinstance(literal, str) else 1
            return field + space(1) + word(operator) + space(least) + value(literal), 2
        return field + space() + operator + space() + value(literal), 2

    text, strength = bare()
    if strength < level or rng.random() < 0.2:
        text = f"({space()}{text}{space()})"
    return space() + text + space() if level == 0 else text
