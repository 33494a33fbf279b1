"""Metadata filters: a small safe grammar, and the syntax tree that stores make queries from.

docs/reference/filters.md has the grammar and its meaning. No part of a filter enters the SQL text:
names and values are bound parameters.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast
from unicodedata import normalize

from indexes.errors import ConfigError, FilterError

if TYPE_CHECKING:
    from indexes.metadata import FieldType

Value = str | int | float
# A string, a number (an integer of 64 bits or a finite float) or a boolean; 1 is not True.
Scalar = Value | bool
Operator = Literal["exists", "in", "!=", "like", "contains", "<", "<=", ">", ">="]

KEYWORDS = frozenset(
    ("and", "or", "not", "in", "like", "contains", "exists", "true", "false", "null")
)
# The fields of a document itself.
OWN = ("id", "title")

_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
# Words that stand for an operator after a field, and are names elsewhere.
_OPERATOR_WORDS = ("is", "between", "before", "after")
# A date or time of ISO 8601, or its beginning.
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d([T ]\d\d(:\d\d){0,2}([.,]\d+)?(Z|[+-]\d\d:?\d\d)?)?)?)?")
# A date without a time, or the beginning of one.
_DAY = re.compile(r"\d{4}(-\d\d){0,2}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
# Appended to a prefix, it sorts after every text with that prefix.
_MAX_CHARACTER = "\U0010ffff"
_PLURALS: dict[FieldType, str] = {
    "number": "numbers",
    "boolean": "booleans",
    "string": "strings",
    "array": "lists",
    "object": "objects",
}


@dataclass(frozen=True, slots=True)
class Field:
    """The field of a comparison."""

    names: tuple[str, ...]  # the path into the metadata
    own: bool = False  # whether it is the document's own id or title


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A comparison of a field: no values (``exists``), any number (``in``), or one."""

    field: Field
    operator: Operator
    values: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """A negation; never directly inside another `Not`."""

    part: Expression


@dataclass(frozen=True, slots=True)
class Joined:
    """A conjunction or disjunction of two or more parts."""

    operator: Literal["and", "or"]
    parts: tuple[Expression, ...]


Expression = FieldComparison | Not | Joined


def written_field(names: Sequence[str]) -> str:
    """Return a metadata field in the syntax of filters."""

    def written_name(name: str) -> str:
        is_plain = _PLAIN_NAME.fullmatch(name) and name.lower() not in KEYWORDS
        is_own = len(names) == 1 and name in OWN
        return name if is_plain and not is_own else _quoted(name, "`")

    return ".".join(map(written_name, names))


def written_value(value: Scalar) -> str:
    """Return a value in the syntax of filters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value, '"') if isinstance(value, str) else repr(value)


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


def type_mismatch(
    expression: Expression, has_type: Callable[[str, Collection[FieldType]], bool]
) -> str | None:
    """Describe the first comparison with a type that no value of its field has; None if none."""
    for comparison in _comparisons(expression):
        name = comparison.field.names[0]
        # The id and the title of a document are strings.
        has_values = (lambda _, types: "string" in types) if comparison.field.own else has_type
        for required in _required_types(comparison):
            if has_values(name, required):
                continue
            if present := [type_ for type_ in _PLURALS if has_values(name, [type_])]:
                present_types = " and ".join(_PLURALS[type_] for type_ in present)
                missing_types = " or ".join(_PLURALS[type_] for type_ in required)
                remedy = _describe_type_remedy(comparison, present)
                return f"the field {name!r} has {present_types} and no {missing_types}{remedy}"
    return None


def _describe_type_remedy(comparison: FieldComparison, present: list[FieldType]) -> str:
    """Return what to write in place of a value of the wrong type; empty if that is not known."""
    names = comparison.field.names
    is_pattern = comparison.operator in ("like", "contains")
    if is_pattern or len(names) > 1 or len(comparison.values) > 1:
        return ""
    value = comparison.values[0]
    if comparison.operator == "in" and present == ["array"]:
        return f": write {written_field(names)} contains {written_value(value)}"
    if type_of(value) == "number" and present == ["string"]:
        return f': write the value in quotes, "{value}"'
    if isinstance(value, str) and present == ["number"] and _NUMBER.fullmatch(value):
        return f": write the value without quotes, {value}"
    return ""


def narrow_comparison(expression: Expression) -> str | None:
    """Describe the first comparison that probably matches fewer documents than its author meant.

    Two kinds are known: `like` without a wildcard, and equality with a year, month or day. The text
    names the remedy.
    """
    for comparison in _comparisons(expression):
        value = comparison.values[0] if len(comparison.values) == 1 else None
        if not isinstance(value, str):
            continue
        if comparison.operator == "like" and not set("%_") & set(value):
            return f'like "{value}" matches whole values: for a part of them write like "%{value}%"'
        if comparison.operator == "in" and _DAY.fullmatch(value):
            return (
                f'"{value}" is compared as text: for all its time write between "{value}" and '
                f'"{value}"'
            )
    return None


def _comparisons(node: Expression) -> Iterator[FieldComparison]:
    match node:
        case Not(part):
            yield from _comparisons(part)
        case Joined(_, parts):
            for part in parts:
                yield from _comparisons(part)
        case _:
            yield node


def _required_types(comparison: FieldComparison) -> list[list[FieldType]]:
    """Return, for each type of the compared values, the field types that can match it."""
    if comparison.operator == "exists":
        return []
    if len(comparison.field.names) > 1:
        return [["object"]]
    types = dict.fromkeys(map(type_of, comparison.values))
    if comparison.operator == "contains":
        return [["string", "array"] if "string" in types else ["array"]]
    return [[type_] for type_ in types]


def type_of(value: Any) -> FieldType:
    """Return the JSON type of a value that is not None."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object"


# SQLite takes 32,766 parameters and expressions 1,000 deep.
MAX_NESTING = 32
MAX_COMPARISONS = 200
MAX_VALUES = 10_000
MAX_PATH = 16
MAX_PATTERN = 10_000  # characters; SQLite refuses LIKE patterns over 50,000 bytes

# Characters of the longest file path; a longer id is not the name of a file.
_MAX_FILE_PATH = 4096

_OPERATORS = {"=": "=", "==": "=", "!=": "!=", "<>": "!="}
_OPERATORS |= {order: order for order in ("<", "<=", ">", ">=")}
_TOKEN = re.compile(
    r"""\s+
    | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<word>[^\W\d]\w*)
    | (?P<quoted>["'`])
    | (?P<symbol>==|!=|<>|<=|>=|[=<>(),.])
    | (?P<unknown>[\w.+-]+|.)""",
    re.VERBOSE | re.DOTALL,
)


def point_at(text: str, position: int) -> str:
    """Return the filter and, on a second line, a caret below character `position` (from 0)."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return f"{line}\n{' ' * sum(map(_columns, line[:position]))}^"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def error_at(position: int, expected: str, actual: str) -> FilterError:
    """The error to raise at `position`, from 0; its message counts characters from 1."""
    message = f"filter, character {position + 1}: expected {expected}, found {actual}"
    return FilterError(message, position)


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign of a filter."""

    kind: str  # 'name', '`name`', 'string', 'number', 'end', 'unknown', a keyword or symbol
    position: int  # where it begins, from 0
    raw: str  # as written
    value: Value = ""  # without quotes and escapes

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the filter"
        return repr(_shorten(self.raw))


def tokens(text: str) -> Iterator[Token]:
    """The tokens in order, read one at a time, then 'end' forever."""
    for position, character in enumerate(text):
        # SQLite's text functions end a string at NUL, and UTF-8 has no lone surrogates.
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise error_at(position, "text without NUL and lone surrogates", repr(character))
    position = 0
    while match := _TOKEN.match(text, position):
        raw = match.group()
        kind = match.lastgroup
        if kind == "number":
            yield Token("number", position, raw, _number(raw, position))
        elif kind == "word":
            keyword = raw.lower()
            yield Token(keyword if keyword in KEYWORDS else "name", position, raw, raw)
        elif kind == "quoted":
            value, end = _unquote(text, position)
            raw = text[position:end]
            yield Token("`name`" if raw[0] == "`" else "string", position, raw, value)
        elif kind is not None:
            yield Token(raw if kind == "symbol" else kind, position, raw)
        position += len(raw)
    while True:
        yield Token("end", len(text), "")


def _unquote(text: str, start: int) -> tuple[str, int]:
    quote = text[start]
    content = re.compile(rf"(?:[^\\{quote}]|\\[\\{quote}])*").match(text, start + 1)
    end = content.end() if content else start
    if end == len(text):
        raise error_at(start, f"a closing {quote}", "the end of the filter")
    if text[end] == "\\":
        escape = repr(text[end : end + 2])
        raise error_at(end, rf"\{quote} or \\ (write a backslash as \\)", escape)
    return re.sub(r"\\(.)", r"\1", text[start + 1 : end]), end + 1


def _number(raw: str, position: int) -> int | float:
    if raw.lstrip("+-").isdigit():
        digits = raw.lstrip("+-0") or "0"
        # int() refuses thousands of digits with an error of its own.
        integer = int(digits) if len(digits) <= 19 else 2**64
        if raw[0] == "-":
            integer = -integer
        if -(2**63) <= integer < 2**63:
            return integer
        raise error_at(position, "an integer of 64 bits", _shorten(raw))
    real = float(raw)
    if math.isinf(real):
        raise error_at(position, "a number that a float can hold", _shorten(raw))
    return real


def _shorten(raw: str) -> str:
    return raw if len(raw) <= 40 else raw[:39] + "…"


@dataclass(frozen=True, slots=True)
class Where:
    """A filter, from whose syntax tree each store makes its query."""

    text: str
    expression: Expression

    @property
    def fields(self) -> set[str]:
        """The top-level metadata fields that it names."""
        fields = [comparison.field for comparison in _comparisons(self.expression)]
        return {field.names[0] for field in fields if not field.own}


def compile_where(where: str | Mapping[str, Any]) -> Where:
    """Parse a filter: a text in the grammar of docs/reference/filters.md, or the values of fields.

    Fields must all have their values: ``{"year": 2020, "lang": ["en", "de"]}`` is ``year in (2020)
    and lang in ("en", "de")``. None stands for a field that is null or absent.

    Raises:
        TypeError: it is neither a text nor a mapping of one or more fields.
        ConfigError: the value of a field is of another type.
        FilterError: the filter does not parse, or is too long or too deep; the message is one line
            with the 1-based character, `position` is that character from 0.
    """
    if isinstance(where, Mapping) and where:
        where = filter_of_fields(where)
    if not isinstance(where, str):
        raise TypeError(
            f"filter: expected a text such as 'year >= 2000', found {where!r:.60}; write it as one"
        )
    return Where(where, _Parser(where).whole_filter())


def filter_of_fields(fields: Mapping[str, Any]) -> str:
    """Return a filter for documents whose fields have these values; a list is one of several.

    ConfigError if a value is no string, number, boolean, None or list of them.
    """
    conditions = []
    for name, value in fields.items():
        field = written_field(name.split("."))
        if value is None:
            conditions.append(f"{field} is null")
            continue
        is_list = isinstance(value, list | tuple | set | frozenset) and value
        values = list(value) if is_list else [value]
        if not all(isinstance(item, str | bool | int | float) for item in values):
            raise ConfigError(
                f"filter: {name}: expected a string, number, boolean, None or several of them, "
                f"found {value!r:.60}; write other conditions as a text: where='year >= 2000'"
            )
        conditions.append(f"{field} in ({', '.join(map(written_value, values))})")
    return " and ".join(conditions)


def parse_field(text: str) -> tuple[str, ...]:
    """The names of a metadata field as a filter writes it: ``lang``, ``author.name``.

    Raises:
        FilterError: it is no field, or the document's own id or title.
    """
    try:
        field = _Parser(text).whole_field()
    except FilterError as error:
        reason = str(error).removeprefix("filter, ").replace("the filter", "the field")
        raise FilterError(f"field {text!r}, {reason}") from None
    if field.own:
        raise FilterError(
            f"field {text!r}: expected metadata, found the document's own {text}; write `{text}`, "
            "in backquotes, for a metadata field of that name"
        )
    return field.names


class _Parser:
    """Recursive descent."""

    def __init__(self, text: str) -> None:
        self._rest = tokens(text)
        self._token = next(self._rest)
        self._nesting = self._comparisons = self._values = 0

    def whole_filter(self) -> Expression:
        expression = self._or()
        self._expect("'and', 'or' or the end of the filter", "end")
        return expression

    def whole_field(self) -> Field:
        field = self._field()
        self._expect("'.' or the end of the filter", "end")
        return field

    def _accept(self, *kinds: str) -> Token | None:
        if (token := self._token).kind not in kinds:
            return None
        self._token = next(self._rest)
        return token

    def _expect(self, expected: str, *kinds: str) -> Token:
        if token := self._accept(*kinds):
            return token
        raise error_at(self._token.position, expected, str(self._token))

    def _or(self) -> Expression:
        return self._joined("or", lambda: self._joined("and", self._term))

    def _joined(self, operator: Literal["and", "or"], part: Callable[[], Expression]) -> Expression:
        parts = [part()]
        while self._accept(operator):
            parts.append(part())
        return _join(operator, parts)

    def _term(self) -> Expression:
        negated = False
        while self._accept("not"):
            negated = not negated
        if opening := self._accept("("):
            self._nesting += 1
            if self._nesting > MAX_NESTING:
                raise error_at(
                    opening.position, f"at most {MAX_NESTING} nested parentheses", "more"
                )
            inner = self._or()
            self._expect("'and', 'or' or ')'", ")")
            self._nesting -= 1
        else:
            inner = self._comparison()
        if not negated:
            return inner
        return inner.part if isinstance(inner, Not) else Not(inner)

    def _comparison(self) -> Expression:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            limit = f"at most {MAX_COMPARISONS} comparisons (x in (a, b) takes many values)"
            raise error_at(self._token.position, limit, "more")
        field = self._field()
        expected = (
            "an operator (=, !=, <, <=, >, >=, in, like, contains, exists, is, between, before or "
            "after)"
        )
        operator = self._operator_word() or self._expect(
            expected, *_OPERATORS, "in", "like", "contains", "exists"
        )
        return self._condition(field, _OPERATORS.get(operator.kind, operator.kind))

    def _condition(self, field: Field, operator: str) -> Expression:
        """Read what follows an operator."""
        match operator:
            case "exists":
                return FieldComparison(field, "exists")
            case "is":
                return self._null_check(field)
            case "between":
                return self._between(field)
            case "before":
                return FieldComparison(field, "<", (self._date("before"),))
            case "after":
                return FieldComparison(field, ">", (self._date("after") + _MAX_CHARACTER,))
            case "in":
                return _membership(field, self._list())
            case "=":
                return _membership(field, [self._literal()])
            case "!=":
                return _inequality(field, self._literal())
            case _:
                return self._match_or_order(field, operator)

    def _match_or_order(self, field: Field, operator: str) -> Expression:
        """Read what follows `like`, `contains` or an order such as `<`."""
        if operator == "like":
            forms = _forms(field, self._pattern().value)
            return _join("or", [FieldComparison(field, "like", (form,)) for form in forms])
        if operator == "contains":
            expected = "a string, a number, true or false after 'contains'"
            literal = self._expect(expected, "string", "number", "true", "false")
            return FieldComparison(field, "contains", (_scalar(literal),))
        literal = self._expect(f"a number or a string after '{operator}'", "number", "string")
        return FieldComparison(field, cast(Operator, operator), (literal.value,))

    def _null_check(self, field: Field) -> Expression:
        """Read what follows `is`: `null` or `not null`."""
        is_negated = self._accept("not") is not None
        self._expect("null" if is_negated else "null or not null", "null")
        exists = FieldComparison(field, "exists")
        return exists if is_negated else Not(exists)

    def _pattern(self) -> Token:
        """Read the pattern of `like`."""
        pattern = self._expect("a string after 'like'", "string")
        if len(pattern.raw) > MAX_PATTERN:
            limit = f"at most {MAX_PATTERN} characters in a pattern"
            raise error_at(pattern.position, limit, str(len(pattern.raw)))
        return pattern

    def _operator_word(self) -> Token | None:
        token = self._token
        word = token.raw.lower()
        if token.kind != "name" or word not in _OPERATOR_WORDS:
            return None
        self._token = next(self._rest)
        return replace(token, kind=word)

    def _date(self, operator: str) -> str:
        token = self._expect(f"a date in quotes after '{operator}'", "string")
        if not _DATE.fullmatch(str(token.value)):
            raise error_at(token.position, 'a date such as "2020-03-01"', str(token))
        return str(token.value)

    def _between(self, field: Field) -> Expression:
        """Read a range, both ends included; the end "2020" includes the whole year."""
        low = self._expect("a number or a string after 'between'", "number", "string")
        self._expect("'and' after the first value", "and")
        high = self._expect(f"a {low.kind} after 'and'", low.kind)
        last = high.value
        if isinstance(last, str) and _DATE.fullmatch(last):
            last += _MAX_CHARACTER
        parts = FieldComparison(field, ">=", (low.value,)), FieldComparison(field, "<=", (last,))
        return Joined("and", parts)

    def _field(self) -> Field:
        expected = "a field name (in backquotes unless it is a plain word)"
        first = self._expect(expected, "name", "`name`")
        names = [str(first.value)]
        while self._accept("."):
            names.append(str(self._expect(expected, "name", "`name`").value))
            if len(names) > MAX_PATH:
                raise error_at(first.position, f"at most {MAX_PATH} names in a path", "more")
        plain = first.kind == "name" and len(names) == 1
        return Field(tuple(names), plain and names[0] in OWN)

    def _literal(self) -> Scalar | None:
        expected = "a value (a string in quotes, a number, true, false or null)"
        literal = self._expect(expected, "string", "number", "true", "false", "null")
        self._values += 1
        if self._values > MAX_VALUES:
            raise error_at(literal.position, f"at most {MAX_VALUES} values", "more")
        return None if literal.kind == "null" else _scalar(literal)

    def _list(self) -> list[Scalar | None]:
        self._expect("'(' after 'in'", "(")
        literals = [self._literal()]
        while self._accept(","):
            literals.append(self._literal())
        self._expect("',' or ')'", ")")
        return literals


def id_forms(id_: str) -> list[str]:
    """Return an id as it is, composed (NFC) and decomposed (NFD), each form once."""
    if id_.isascii() or len(id_) > _MAX_FILE_PATH:
        return [id_]
    return [*dict.fromkeys((id_, normalize("NFC", id_), normalize("NFD", id_)))]


def _forms(field: Field, value: Scalar) -> list[Scalar]:
    """Return the values to compare with a field: an id in each Unicode normal form."""
    is_id = field.own and field.names == ("id",)
    return [*id_forms(value)] if is_id and isinstance(value, str) else [value]


def _membership(field: Field, values: Sequence[Scalar | None]) -> Expression:
    """Return the condition that a field has one of `values`; None means absent or null."""
    present = tuple(form for value in values if value is not None for form in _forms(field, value))
    has_null = None in values
    if not has_null:
        return FieldComparison(field, "in", present)
    absent = Not(FieldComparison(field, "exists"))
    return Joined("or", (FieldComparison(field, "in", present), absent)) if present else absent


def _inequality(field: Field, value: Scalar | None) -> Expression:
    """Return the condition that a field has a value other than `value`."""
    if value is None:
        return FieldComparison(field, "exists")
    return _join("and", [FieldComparison(field, "!=", (form,)) for form in _forms(field, value)])


def _join(operator: Literal["and", "or"], parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else Joined(operator, tuple(parts))


def _scalar(literal: Token) -> Scalar:
    return literal.kind == "true" if literal.kind in ("true", "false") else literal.value
