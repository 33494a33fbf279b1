r"""Metadata filters: a small safe grammar, compiled to bound SQL parameters.

A filter is a condition on one document's `id`, `title` and metadata::

    year >= 2020 and lang in ("en", "de")
    not (tag = 'x' or author.name like "%smith%")
    tags contains "ml" and `field with space` = 1

Grammar (EBNF; keywords in any case; white space between tokens is free)::

    filter     = or ;
    or         = and, { "or", and } ;
    and        = term, { "and", term } ;
    term       = "not", term | "(", or, ")" | comparison ;
    comparison = field, ( ( "=" | "==" | "!=" | "<>" ), literal
                        | ( "<" | "<=" | ">" | ">=" ), ( number | string )
                        | "in", "(", literal, { ",", literal }, ")"
                        | "like", string
                        | "contains", ( number | string | "true" | "false" )
                        | "exists" ) ;
    field      = name, { ".", name } ;
    name       = letter or "_", { letter | digit | "_" }      (a plain word, not a keyword)
               | "`", { character | "\`" | "\\" }, "`" ;      (any name at all)
    literal    = number | string | "true" | "false" | "null" ;
    number     = [ "+" | "-" ], digits, [ ".", digits ], [ "e", [ "+" | "-" ], digits ] ;
    string     = '"', { character | '\"' | "\\" }, '"' | "'", { character | "\'" | "\\" }, "'" ;

Meaning:

- `id` and `title` are the document's own; every other name, and the same words in backquotes,
  is a metadata field. `a.b` is the field `b` of the object in field `a`. Names match exactly.
- A field is *present* if it is there and is not JSON null. `x exists` and `x != null` match where
  x is present, `x = null` where it is not.
- Comparisons are typed: a number literal matches only numbers, a string only strings, `true` and
  `false` only booleans. `x = 1`, `x < 1` do not match where x is absent or of another type.
- `x != 1` matches where x is present and is not the number 1 (it may be of another type).
- `x in (a, b)` is `x = a or x = b`.
- `like` matches a string against a pattern with `%` (any characters) and `_` (one character);
  A-Z and a-z are equal, other letters match exactly.
- `contains` matches an array that holds the value, or a string that holds the string (exact case).
- Strings are ordered by code point, numbers by value (integers up to 64 bits are exact).
- Every comparison is true or false, never unknown: `not (x = 1)` matches every document that
  `x = 1` does not, those without x too.

No part of the filter enters the SQL text: names and values are bound parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from indexes.errors import FilterError
from indexes.filters.expression import (
    Among,
    And,
    Comparison,
    Contains,
    Differs,
    Exists,
    Expression,
    Field,
    Like,
    Not,
    Or,
    Ordered,
    Scalar,
)
from indexes.filters.sql import Condition, fields_of, sqlite_condition
from indexes.filters.tokens import Token, Value, error_at, point_at, tokens

__all__ = ["Where", "compile_where", "point_at"]

# SQLite takes 32,766 parameters, expressions 1,000 deep (a subquery counts twice) and, in many
# releases, a parser stack of 100 entries: these limits leave room for the query around a filter.
MAX_NESTING = 32
MAX_COMPARISONS = 200
MAX_VALUES = 10_000
MAX_PATH = 16
MAX_PATTERN = 10_000  # characters; SQLite refuses LIKE patterns over 50,000 bytes

_OPERATORS = {"=": "=", "==": "=", "!=": "!=", "<>": "!="}
_OPERATORS |= {order: order for order in ("<", "<=", ">", ">=")}
_OWN = ("id", "title")
_PLAIN = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Where:
    """A compiled filter.

    Attributes:
        expression: its syntax tree, from which a store other than the folder makes its query.
        sql: a parenthesised boolean expression, 0 or 1 and never NULL, over a table alias `d`
            with columns `id` TEXT, `title` TEXT or NULL and `metadata` TEXT (a JSON object).
        parameters: the values of its `?` marks, in order.
        tree: the same, in parts that each look at one field.
    """

    expression: Expression
    sql: str
    parameters: tuple[Value, ...]
    tree: Condition

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal filters: 1, 1.0 and True are equal, but not to a filter."""
        return (self.sql, self.parameters, *map(type, self.parameters))

    @property
    def fields(self) -> set[str]:
        """The top-level metadata fields that it names."""
        return fields_of(self.tree)


def compile_where(text: str) -> Where:
    """Compile a filter in the grammar above.

    Raises:
        TypeError: it is not a text.
        FilterError: the filter does not parse, or is longer or deeper than SQLite takes; the
            message is one line with the 1-based character, `position` is that character from 0.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"filter: expected a text such as 'year >= 2000', found {text!r:.60}; write it as one"
        )
    expression = _Parser(text).parse()
    condition = sqlite_condition(expression)
    return Where(expression, f"({condition.text})", condition.parameters, condition.tree)


def parse_field(text: str) -> tuple[str, ...]:
    """The names of a metadata field as a filter writes it: ``lang``, ``author.name``.

    Raises:
        FilterError: it is no field, or the document's own id or title.
    """
    try:
        field = _Parser(text).field()
    except FilterError as error:
        reason = str(error).removeprefix("filter, ").replace("the filter", "the field")
        raise FilterError(f"field {text!r}, {reason}") from None
    if field.own:
        raise FilterError(
            f"field {text!r}: expected metadata, found the document's own {text}; write `{text}`, "
            "in backquotes, for a metadata field of that name"
        )
    return field.names


def written_field(names: Sequence[str]) -> str:
    """A metadata field, as a filter writes it."""
    return ".".join(_written_name(name, alone=len(names) == 1) for name in names)


def _written_name(name: str, *, alone: bool) -> str:
    if _PLAIN.fullmatch(name) and not (alone and name in _OWN):
        try:
            compile_where(f"{name} exists")
        except FilterError:  # It is a keyword.
            return _quoted(name, "`")
        return name
    return _quoted(name, "`")


def written_value(value: Scalar) -> str:
    """A value, as a filter writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value, '"') if isinstance(value, str) else repr(value)


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


class _Parser:
    """Recursive descent."""

    def __init__(self, text: str) -> None:
        self._rest = tokens(text)
        self._token = next(self._rest)
        self._nesting = self._comparisons = self._values = 0

    def parse(self) -> Expression:
        """A whole filter."""
        expression = self._or()
        self._expect("'and', 'or' or the end of the filter", "end")
        return expression

    def field(self) -> Field:
        """A field alone."""
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
        parts = [self._and()]
        while self._accept("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Expression:
        parts = [self._term()]
        while self._accept("and"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

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

    def _comparison(self) -> Comparison:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            limit = f"at most {MAX_COMPARISONS} comparisons (x in (a, b) takes many values)"
            raise error_at(self._token.position, limit, "more")
        field = self._field()
        expected = "an operator (=, !=, <, <=, >, >=, in, like, contains or exists)"
        operator = self._expect(expected, *_OPERATORS, "in", "like", "contains", "exists")
        match _OPERATORS.get(operator.kind, operator.kind):
            case "exists":
                return Exists(field)
            case "like":
                pattern = self._expect("a string after 'like'", "string")
                if len(pattern.raw) > MAX_PATTERN:
                    limit = f"at most {MAX_PATTERN} characters in a pattern"
                    raise error_at(pattern.position, limit, str(len(pattern.raw)))
                return Like(field, str(pattern.value))
            case "contains":
                expected = "a string, a number, true or false after 'contains'"
                literal = self._expect(expected, "string", "number", "true", "false")
                return Contains(field, _scalar(literal))
            case "in":
                return Among(field, self._list())
            case "=":
                return Among(field, (self._literal(),))
            case "!=":
                value = self._literal()
                return Exists(field) if value is None else Differs(field, value)
            case order:
                literal = self._expect(f"a number or a string after '{order}'", "number", "string")
                return Ordered(field, cast(Literal["<", "<=", ">", ">="], order), literal.value)

    def _field(self) -> Field:
        expected = "a field name (in backquotes unless it is a plain word)"
        first = self._expect(expected, "name", "`name`")
        names = [str(first.value)]
        while self._accept("."):
            names.append(str(self._expect(expected, "name", "`name`").value))
            if len(names) > MAX_PATH:
                raise error_at(first.position, f"at most {MAX_PATH} names in a path", "more")
        plain = first.kind == "name" and len(names) == 1
        return Field(tuple(names), plain and names[0] in _OWN)

    def _literal(self) -> Scalar | None:
        expected = "a value (a string in quotes, a number, true, false or null)"
        literal = self._expect(expected, "string", "number", "true", "false", "null")
        self._values += 1
        if self._values > MAX_VALUES:
            raise error_at(literal.position, f"at most {MAX_VALUES} values", "more")
        return None if literal.kind == "null" else _scalar(literal)

    def _list(self) -> tuple[Scalar | None, ...]:
        self._expect("'(' after 'in'", "(")
        literals = [self._literal()]
        while self._accept(","):
            literals.append(self._literal())
        self._expect("',' or ')'", ")")
        return tuple(literals)


def _scalar(literal: Token) -> Scalar:
    return literal.kind == "true" if literal.kind in ("true", "false") else literal.value
