"""Filters as expressions of Milvus, for metadata and for the terms of passages.

A comparison is false where the field is absent: it says that the field exists. So its negation
needs no third truth value, in which releases of Milvus differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from indexes.errors import FilterError
from indexes.filters.grammar import Expression, FieldComparison, Joined, Not, Scalar
from indexes.protocol import Expansion, Term

# Milvus compares numbers as floats, which are exact below it.
_EXACT = 2**53
# The expression that selects no row.
NOTHING = "passage < 0"
# Characters with a meaning in a pattern of `like`.
_WILDCARD = re.compile(r"[\\%_]")


def where_expression(node: Expression, *, is_negated: bool = False) -> str:
    """Return the expression for the rows that a filter matches.

    Raises:
        FilterError: Milvus cannot evaluate the filter.
    """
    match node:
        case Not(part):
            return f"not {where_expression(part, is_negated=True)}"
        case Joined(operator, parts):
            expressions = (where_expression(part, is_negated=is_negated) for part in parts)
            return f"({f' {operator} '.join(expressions)})"
        case _:
            return f"({_compare(node, is_negated=is_negated)})"


def holds_any(alternatives: Iterable[Sequence[str]]) -> str:
    """Return the expression for passages that hold all terms of at least one alternative."""
    parts = [f"array_contains_all(terms, {text_list(terms)})" for terms in alternatives]
    return " or ".join(parts) or NOTHING


def alternatives_of(term: Term) -> tuple[tuple[str, ...], ...]:
    """Return the alternatives of an expansion; a plain term is its own only one."""
    return term.alternatives if isinstance(term, Expansion) else ((term,),)


def field_column(*names: str) -> str:
    """Return the expression for a field of the metadata."""
    return "metadata" + "".join(f"[{text_literal(name)}]" for name in names)


def text_list(texts: Iterable[str]) -> str:
    """Return texts as a list of literals."""
    return f"[{', '.join(map(text_literal, texts))}]"


def text_literal(text: str) -> str:
    """Return a text as a literal; Milvus Lite refuses the escapes of other characters."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\n", "\\n").replace("\r", "\\r") + '"'


def _compare(node: FieldComparison, *, is_negated: bool) -> str:
    """Return the expression for a comparison, with the condition that the field exists."""
    is_own = node.field.own
    column = node.field.names[0] if is_own else field_column(*node.field.names)
    exists = f"{column} is not null" if is_own else f"exists {column}"
    # The id and the title are strings.
    values = [value for value in node.values if isinstance(value, str) or not is_own]
    sign = "==" if node.operator in ("in", "!=") else node.operator
    parts = [f"{column} {sign} {_literal(value)}" for value in values]
    if node.operator == "exists":
        return exists
    if node.operator == "contains":
        parts = [
            f"json_contains_any({column}, [{_literal(value)}])" for value in values if not is_own
        ]
        escaped = [_WILDCARD.sub(r"\\\g<0>", value) for value in values if isinstance(value, str)]
        parts += [f"{column} like {text_literal(f'%{text}%')}" for text in escaped]
    elif node.operator == "like" or (is_negated and sign != "=="):
        raise FilterError(
            f"filter: Milvus cannot evaluate {'not ' * is_negated}{node.operator!r}; write it with "
            "'=', 'in', 'contains' or the opposite comparison, or keep the index in a folder"
        )
    negation = "not " * (node.operator == "!=")
    return f"{exists} and {negation}({' or '.join(parts) or NOTHING})"


def _literal(value: Scalar) -> str:
    if isinstance(value, str):
        return text_literal(value)
    if abs(value) >= _EXACT:
        raise FilterError(
            f"filter: Milvus does not compare exactly with a number such as {value}; keep the "
            "index in a folder or PostgreSQL"
        )
    return str(value).lower()
