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

from dataclasses import dataclass

from indexes.errors import FilterError
from indexes.filters.sql import Condition, Field, Sql, equals, fields_of, join
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
_OWN = {"id": "d.id", "title": "d.title"}


@dataclass(frozen=True, slots=True)
class Where:
    """A compiled filter.

    Attributes:
        sql: a parenthesised boolean expression, 0 or 1 and never NULL, over a table alias `d`
            with columns `id` TEXT, `title` TEXT or NULL and `metadata` TEXT (a JSON object).
        parameters: the values of its `?` marks, in order.
        tree: the same, in parts that each look at one field.
    """

    sql: str
    parameters: tuple[Value, ...]
    tree: Condition

    @property
    def fields(self) -> set[str]:
        """The top-level metadata fields that it names."""
        return fields_of(self.tree)


def compile_where(text: str) -> Where:
    """Compile a filter in the grammar above.

    Raises:
        FilterError: the filter does not parse, or is longer or deeper than SQLite takes; the
            message is one line with the 1-based character, `position` is that character from 0.
    """
    return _Parser(text).parse()


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
    if field.column:
        raise FilterError(
            f"field {text!r}: expected metadata, found the document's own {text}; write `{text}`, "
            "in backquotes, for a metadata field of that name"
        )
    return field.names


class _Parser:
    """Recursive descent; `negated` carries each `not` down to the comparisons below it."""

    def __init__(self, text: str) -> None:
        self._rest = tokens(text)
        self._token = next(self._rest)
        self._nesting = self._comparisons = self._values = 0

    def parse(self) -> Where:
        sql = self._or(negated=False)
        self._expect("'and', 'or' or the end of the filter", "end")
        return Where(f"({sql.text})", sql.parameters, sql.tree)

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

    def _or(self, negated: bool) -> Sql:
        parts = [self._and(negated)]
        while self._accept("or"):
            parts.append(self._and(negated))
        return join("AND" if negated else "OR", parts)

    def _and(self, negated: bool) -> Sql:
        parts = [self._term(negated)]
        while self._accept("and"):
            parts.append(self._term(negated))
        return join("OR" if negated else "AND", parts)

    def _term(self, negated: bool) -> Sql:
        while self._accept("not"):
            negated = not negated
        opening = self._accept("(")
        if not opening:
            return self._comparison(negated)
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise error_at(opening.position, f"at most {MAX_NESTING} nested parentheses", "more")
        inner = self._or(negated)
        self._expect("'and', 'or' or ')'", ")")
        self._nesting -= 1
        return inner

    def _comparison(self, negated: bool) -> Sql:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            limit = f"at most {MAX_COMPARISONS} comparisons (x in (a, b) takes many values)"
            raise error_at(self._token.position, limit, "more")
        field = self._field()
        expected = "an operator (=, !=, <, <=, >, >=, in, like, contains or exists)"
        operator = self._expect(expected, *_OPERATORS, "in", "like", "contains", "exists")
        match _OPERATORS.get(operator.kind, operator.kind):
            case "exists":
                return field.passes("1", (), negated)
            case "like":
                pattern = self._expect("a string after 'like'", "string")
                if len(pattern.raw) > MAX_PATTERN:
                    limit = f"at most {MAX_PATTERN} characters in a pattern"
                    raise error_at(pattern.position, limit, str(len(pattern.raw)))
                test = f"({field.type} = 'text' AND {field.value} LIKE ?)"
                return field.passes(test, (pattern.value,), negated)
            case "contains":
                return self._contains(field, negated)
            case "in":
                return self._among(field, self._list(), negated)
            case "=":
                return self._among(field, [self._literal()], negated)
            case "!=":
                literal = self._literal()
                if literal.kind == "null":
                    return field.passes("1", (), negated)
                test, values = equals(field.value, field.type, [literal])
                return field.passes(f"NOT {test}", values, negated)
            case order:
                literal = self._expect(f"a number or a string after '{order}'", "number", "string")
                types = "'text'" if literal.kind == "string" else "'integer', 'real'"
                test = f"({field.type} IN ({types}) AND {field.value} {order} ?)"
                return field.passes(test, (literal.value,), negated)

    def _among(self, field: Field, literals: list[Token], negated: bool) -> Sql:
        values = [token for token in literals if token.kind != "null"]
        parts = []
        if values:
            parts.append(field.passes(*equals(field.value, field.type, values), negated))
        if len(values) < len(literals):
            parts.append(field.passes("1", (), not negated))
        return join("AND" if negated else "OR", parts)

    def _contains(self, field: Field, negated: bool) -> Sql:
        expected = "a string, a number, true or false after 'contains'"
        literal = self._expect(expected, "string", "number", "true", "false")
        test, parameters = equals("e.value", "e.type", [literal])
        array = f"CASE {field.type} WHEN 'array' THEN {field.value} ELSE '[]' END"
        test = f"EXISTS (SELECT 1 FROM json_each({array}) AS e WHERE {test})"  # noqa: S608
        if literal.kind == "string":
            test = f"({test} OR {field.type} = 'text' AND instr({field.value}, ?) > 0)"
            parameters.append(literal.value)
        return field.passes(test, parameters, negated)

    def _field(self) -> Field:
        expected = "a field name (in backquotes unless it is a plain word)"
        first = self._expect(expected, "name", "`name`")
        names = [str(first.value)]
        while self._accept("."):
            names.append(str(self._expect(expected, "name", "`name`").value))
            if len(names) > MAX_PATH:
                raise error_at(first.position, f"at most {MAX_PATH} names in a path", "more")
        plain = first.kind == "name" and len(names) == 1
        return Field(tuple(names), _OWN.get(names[0]) if plain else None)

    def _literal(self) -> Token:
        expected = "a value (a string in quotes, a number, true, false or null)"
        literal = self._expect(expected, "string", "number", "true", "false", "null")
        self._values += 1
        if self._values > MAX_VALUES:
            raise error_at(literal.position, f"at most {MAX_VALUES} values", "more")
        return literal

    def _list(self) -> list[Token]:
        self._expect("'(' after 'in'", "(")
        literals = [self._literal()]
        while self._accept(","):
            literals.append(self._literal())
        self._expect("',' or ')'", ")")
        return literals
