"""What filters compile to: SQL without user text, whole and by the fields that it looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from indexes.filters.grammar import (
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
    Value,
    parse_filter,
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of a filter that looks at one field alone, as expressions that are 0 or 1, never NULL.

    `sql` is over a table alias `f0` with the field's `type` and `value` as `json_each` gives them,
    'null' and NULL where there is none; `document_sql` is over a table alias `d` of documents.
    """

    field: str | None  # None for id and title of the document
    sql: str
    parameters: tuple[Value, ...]
    document_sql: str
    document_parameters: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Joint:
    """Two or more conditions."""

    joint: str  # 'AND' or 'OR'
    parts: tuple[Condition, ...]


Condition = Leaf | Joint


def fields_of(node: Condition) -> set[str]:
    """The top-level metadata fields that a condition looks at."""
    if isinstance(node, Leaf):
        return set() if node.field is None else {node.field}
    return set().union(*map(fields_of, node.parts))


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition as SQL."""

    text: str
    parameters: tuple[Value, ...]
    tree: Condition  # the same, by fields
    joint: str = ""  # the outermost 'AND' or 'OR' of `text`, if any
    stack: int = 0  # what parsing it takes beyond a single comparison


def sqlite_condition(expression: Expression, *, negated: bool = False) -> Sql:
    """A filter, or its opposite, in the dialect of SQLite."""
    match expression:
        case Not(part):
            return sqlite_condition(part, negated=not negated)
        case And(parts) | Or(parts):
            joint = "AND" if isinstance(expression, And) != negated else "OR"
            return _join(joint, [sqlite_condition(part, negated=negated) for part in parts])
        case _:
            return _comparison(expression, negated)


def _comparison(comparison: Comparison, negated: bool) -> Sql:
    place = _Place.of(comparison.field)
    match comparison:
        case Exists():
            return place.passes("1", (), negated)
        case Like(pattern=pattern):
            test = f"({place.type} = 'text' AND {place.value} LIKE ?)"
            return place.passes(test, (pattern,), negated)
        case Contains(value=value):
            test, parameters = _equals("e.value", "e.type", [value])
            array = f"CASE {place.type} WHEN 'array' THEN {place.value} ELSE '[]' END"
            test = f"EXISTS (SELECT 1 FROM json_each({array}) AS e WHERE {test})"  # noqa: S608
            if isinstance(value, str):
                test = f"({test} OR {place.type} = 'text' AND instr({place.value}, ?) > 0)"
                parameters.append(value)
            return place.passes(test, parameters, negated)
        case Among(values=values):
            parts = []
            if present := [value for value in values if value is not None]:
                parts.append(place.passes(*_equals(place.value, place.type, present), negated))
            if len(present) < len(values):
                parts.append(place.passes("1", (), not negated))
            return _join("AND" if negated else "OR", parts)
        case Differs(value=value):
            test, parameters = _equals(place.value, place.type, [value])
            return place.passes(f"NOT {test}", parameters, negated)
        case Ordered(operator=operator, value=limit):
            types = "'text'" if isinstance(limit, str) else "'integer', 'real'"
            test = f"({place.type} IN ({types}) AND {place.value} {operator} ?)"
            return place.passes(test, (limit,), negated)
        case _:
            assert_never(comparison)


def _equals(value: str, kind: str, wanted: Sequence[Scalar]) -> tuple[str, list[Value]]:
    """SQL for "`value` of JSON type `kind` is one of those wanted", with its parameters."""
    numbers = [x for x in wanted if isinstance(x, int | float) and not isinstance(x, bool)]
    strings = [x for x in wanted if isinstance(x, str)]
    tests: list[str] = []
    parameters: list[Value] = []
    for values, types in ((numbers, "'integer', 'real'"), (strings, "'text'")):
        if values:
            marks = ", ".join("?" * len(values))
            tests.append(f"{kind} IN ({types}) AND {value} IN ({marks})")
            parameters += values
    tests += [
        f"{kind} = '{name}'"
        for x, name in ((True, "true"), (False, "false"))
        if any(w is x for w in wanted)
    ]
    return f"({' OR '.join(tests)})", parameters


def _join(joint: str, parts: Sequence[Sql]) -> Sql:
    """One or more conditions joined by 'AND' or 'OR'."""
    if len(parts) == 1:
        return parts[0]
    ordered = _ordered(joint, parts)
    return Sql(
        *_written(joint, ordered),
        _tree(joint, parts),
        joint,
        max(part.stack + (2 if i else 0) for i, part in enumerate(ordered)),
    )


def _ordered(joint: str, parts: Sequence[Sql]) -> list[Sql]:
    if joint == "AND":
        parts = [
            Sql(f"({p.text})", p.parameters, p.tree, "", p.stack + 1) if p.joint == "OR" else p
            for p in parts
        ]
    # The first part is parsed with the emptiest stack, so the deepest part goes there.
    return sorted(parts, key=lambda part: -part.stack)


def _written(joint: str, ordered: Sequence[Sql]) -> tuple[str, tuple[Value, ...]]:
    text = f" {joint} ".join(part.text for part in ordered)
    return text, tuple(value for part in ordered for value in part.parameters)


def _tree(joint: str, parts: Sequence[Sql]) -> Condition:
    """The parts, those on one field alone made one leaf each."""
    alone: dict[str | None, list[Sql]] = {}
    nodes: list[Condition] = []
    for part in parts:
        if isinstance(part.tree, Leaf):
            alone.setdefault(part.tree.field, []).append(part)
        else:
            nodes.append(part.tree)
    for field, group in alone.items():
        leaves = [
            Sql(part.tree.sql, part.tree.parameters, part.tree, "", part.stack)
            for part in group
            if isinstance(part.tree, Leaf)
        ]
        text, parameters = _written(joint, _ordered(joint, leaves))
        whole, all_parameters = _written(joint, _ordered(joint, group))
        nodes.append(Leaf(field, f"({text})", parameters, f"({whole})", all_parameters))
    return nodes[0] if len(nodes) == 1 else Joint(joint, tuple(nodes))


_OWN = {"id": "d.id", "title": "d.title"}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where SQL finds the value of a field."""

    names: tuple[str, ...]  # the path into the metadata
    column: str | None  # of the document's own id or title; None for metadata

    @classmethod
    def of(cls, field: Field) -> _Place:
        """The place of a field."""
        return cls(field.names, _OWN[field.names[0]] if field.own else None)

    @property
    def value(self) -> str:
        """SQL for the value, without user text."""
        return self.column or f"f{len(self.names) - 1}.value"

    @property
    def type(self) -> str:
        """SQL for the value's JSON type, without user text."""
        return "'text'" if self.column else f"f{len(self.names) - 1}.type"

    def passes(self, test: str, parameters: Sequence[Value], negated: bool) -> Sql:
        """The field is present and passes `test` (or not so, if negated): never NULL."""
        if self.column:
            text = f"{_not(negated)}({self.column} IS NOT NULL AND {test})"
            whole = f"({text})", tuple(parameters)
            return Sql(text, tuple(parameters), Leaf(None, *whole, *whole))
        test = f"{self.type} <> 'null' AND {test}"
        # json_each compares unescaped keys; in many releases of SQLite json_extract compares
        # keys as the JSON text spells them, and misses names with an accent or a quote.
        inner = self._exists(1, test) if len(self.names) > 1 else f"({test})"
        whole = f"{_not(negated)}{self._exists(0, test)}", (*self.names, *parameters)
        leaf = Leaf(
            self.names[0], f"({_not(negated)}{inner})", (*self.names[1:], *parameters), *whole
        )
        return Sql(*whole, leaf)

    def _exists(self, first: int, test: str) -> str:
        """SQL for "what the names from `first` on lead to passes the test"."""
        tables = []
        for i in range(first, len(self.names)):
            inside = f"CASE f{i - 1}.type WHEN 'object' THEN f{i - 1}.value ELSE '{{}}' END"
            tables.append(f"json_each({inside if i else 'd.metadata'}) AS f{i}")
        keys = " AND ".join(f"f{i}.key = ?" for i in range(first, len(self.names)))
        return f"EXISTS (SELECT 1 FROM {', '.join(tables)} WHERE {keys} AND {test})"  # noqa: S608


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


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
    expression = parse_filter(text)
    condition = sqlite_condition(expression)
    return Where(expression, f"({condition.text})", condition.parameters, condition.tree)
