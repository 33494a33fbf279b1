"""Metadata filters as expressions of Milvus over the facts of documents.

An expression selects every document that the filter matches, and nothing else unless some document
has one of its *doubts*: facts that make a comparison one that Milvus cannot decide (``like``, a
string that contains another, an order of large numbers). Where there are such documents, the filter
itself is evaluated on all that the expression selects, as the folder does it, and the documents
that match are listed instead.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from indexes.errors import FilterError
from indexes.filters.grammar import (
    Among,
    And,
    Contains,
    Differs,
    Exists,
    Expression,
    Like,
    Not,
    Or,
    Ordered,
)
from indexes.filters.sql import Where
from indexes.milvus import facts
from indexes.milvus.collections import DOCUMENT_HEAD
from indexes.milvus.connection import Connection

# Documents that an expression lists at most.
_MOST_LISTED = 10_000
_ALL, _NONE = "row >= 0", "row < 0"
_INVERSE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Selection:
    """An expression, and the facts that put it in doubt."""

    text: str
    doubts: frozenset[int] = frozenset()


def selection_of(node: Expression, *, negated: bool = False) -> Selection:
    """The expression for a filter, or for its negation."""
    match node:
        case Not(part):
            return selection_of(part, negated=not negated)
        case And(some) | Or(some):
            word = "and" if isinstance(node, And) != negated else "or"
            return _joined(word, [selection_of(part, negated=negated) for part in some])
        case Exists(field):
            return _fact(negated, facts.exists(facts.path_of(field)))
        case Among(field, values):
            path = facts.path_of(field)
            given = [facts.equals(path, value) for value in values if value is not None]
            selections = [_fact(negated, *given)] if given else []
            if len(given) < len(values):
                selections.append(_fact(not negated, facts.exists(path)))
            return _joined("and" if negated else "or", selections)
        case Differs(field, value):
            path = facts.path_of(field)
            both = [
                _fact(negated, facts.exists(path)),
                _fact(not negated, facts.equals(path, value)),
            ]
            return _joined("or" if negated else "and", both)
        case Contains(field, value):
            path = facts.path_of(field)
            held = facts.holds(path, value)
            if not isinstance(value, str):
                return _fact(negated, held)
            string = facts.is_string(path)
            if negated:
                return Selection(has(True, held), frozenset([string]))
            return Selection(has(False, held, string), frozenset([string]))
        case Like(field, pattern):
            string = facts.is_string(facts.path_of(field))
            if pattern and not pattern.strip("%"):
                return _fact(negated, string)
            return Selection(_ALL if negated else has(False, string), frozenset([string]))
        case Ordered(field, operator, value):
            return _ordered(facts.path_of(field), operator, value, negated)


def _ordered(path: facts.Path, operator: str, value: str | float, negated: bool) -> Selection:
    exact, other = facts.ordered(path, value), facts.unordered(path, value)
    if not facts.is_ordered(value):
        doubts = frozenset([exact, other])
        return Selection(_ALL if negated else has(False, exact, other), doubts)
    literal = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    place = f'values["{facts.place_of(path)}"]'
    if negated:
        text = f"({has(True, exact)} or {place} {_INVERSE[operator]} {literal})"
    else:
        compared = f"({has(False, exact)} and {place} {operator} {literal})"
        text = f"({compared} or {has(False, other)})"
    return Selection(text, frozenset([other]))


def _fact(negated: bool, *given: int) -> Selection:
    return Selection(has(negated, *given))


def has(negated: bool, *given: int) -> str:
    """That a document has one of some facts, or none of them."""
    return f"{'not ' * negated}array_contains_any(facts, {list(given)})"


def _joined(word: str, selections: list[Selection]) -> Selection:
    if len(selections) == 1:
        return selections[0]
    text = f" {word} ".join(f"({one.text})" for one in selections)
    return Selection(f"({text})", frozenset().union(*(one.doubts for one in selections)))


def expression_of(connection: Connection, documents: str, where: Where, visible: str) -> str:
    """An expression that selects the rows of the documents that a filter matches, exactly.

    Args:
        connection: to the server.
        documents: the collection of documents.
        where: the filter.
        visible: selects the rows that count.

    Raises:
        FilterError: Milvus cannot evaluate the filter, and too many documents are concerned to
            list them.
    """
    found = selection_of(where.expression)
    heads = f"{visible} and part == 0"
    doubts = sorted(found.doubts)
    if not doubts or not connection.count(documents, f"{heads} and {has(False, *doubts)}"):
        return found.text
    matching: list[int] = []
    others: list[int] = []
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE documents (doc INTEGER PRIMARY KEY, id, title, metadata)")
        for row in connection.stream(documents, f"{heads} and {found.text}", DOCUMENT_HEAD):
            database.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?)",
                (row["document"], *json.loads(row["head"])[:3]),
            )
            # The filter's SQL holds no value and no name: both are bound.
            held = database.execute(
                f"SELECT 1 FROM documents AS d WHERE {where.sql}",  # noqa: S608
                where.parameters,
            ).fetchone()
            (others if held is None else matching).append(row["document"])
            database.execute("DELETE FROM documents")
            if min(len(others), len(matching)) > _MOST_LISTED:
                raise FilterError(
                    f"{connection.location}: filter: Milvus cannot evaluate 'like', a string that "
                    "'contains' another, nor the order of long strings and of numbers beyond 2^53; "
                    f"more than {_MOST_LISTED:,} documents match, and more than that do not: "
                    "compare with '=' or 'in', or narrow the filter with 'and'"
                )
    if len(matching) <= _MOST_LISTED:
        return f"document in {matching}" if matching else _NONE
    return f"({found.text} and document not in {others})" if others else found.text
