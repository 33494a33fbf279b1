"""Evaluation of a filter, comparison by comparison.

A comparison becomes SQL over one value, `f0.type` and `f0.value` as `json_each` gives them. It is
looked up among the values that the index keeps by segment. Values that it does not keep are read
from the documents.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.files import readable
from indexes.filters.grammar import Expression, FieldComparison, Joined, Not, Scalar, Value, Where
from indexes.folder.connection import format_version
from indexes.folder.documents import VALUES_SINCE
from indexes.folder.metadata_values import field_numbers, unkept_positions, unpacked
from indexes.folder.segment import LiveSegment
from indexes.folder.value_ranks import RanksCache
from indexes.metadata import UNKEPT
from indexes.passage_mask import PassageMask

Mask = NDArray[np.bool_]

# All stored passages, waiting passages, and passages whose ids are bound as JSON.
STORED = "documents AS d JOIN passages AS p ON p.doc = d.doc"
WAITING = (
    "pending AS w CROSS JOIN passages AS p ON p.passage = w.passage "
    "CROSS JOIN documents AS d ON d.doc = p.doc"
)
LISTED = (
    "json_each(?) AS w CROSS JOIN passages AS p ON p.passage = w.value "
    "CROSS JOIN documents AS d ON d.doc = p.doc"
)
# Largest number of values whose bitmaps are united; for more values, ranks are read.
MAX_BITMAPS = 32


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one field, never true where it is absent."""

    field: str | None  # top-level metadata; None for id and title
    sql: str  # over `f0.type` and `f0.value`; of the document's own id and title, over `d`
    parameters: tuple[Value, ...]


def allowed_passages(
    connection: sqlite3.Connection,
    folder: Path,
    segments: Sequence[LiveSegment],
    where: Where,
    ranks: RanksCache,
) -> list[PassageMask]:
    """Return the live passages of documents that match a filter, by segment."""
    with readable(folder):
        keeps_values = format_version(connection) >= VALUES_SINCE

        def condition_mask(condition: Condition) -> Mask:
            mask_parts = [np.empty(0, np.bool_)]
            stored_passages = None
            if condition.field is None or not keeps_values:
                stored_passages = matching_passages(connection, STORED, condition)
            for live in segments:
                if stored_passages is not None:
                    mask_parts.append(_mask_of_passages(live, stored_passages))
                elif live.is_pending:
                    waiting_passages = matching_passages(connection, WAITING, condition)
                    mask_parts.append(_mask_of_passages(live, waiting_passages))
                else:
                    mask_parts.append(_mask_of_condition(connection, live, condition, ranks))
            return np.concatenate(mask_parts)

        mask = evaluate_filter(where.expression, condition_mask)
        ends = np.cumsum([len(live.segment.ids) for live in segments])
        segment_masks = zip(segments, np.split(mask, ends[:-1]), strict=True) if segments else ()
        return [
            PassageMask(part if live.live is None else part & live.live)
            for live, part in segment_masks
        ]


def evaluate_filter(node: Expression, masks: Callable[[Condition], Mask]) -> Mask:
    """Return the mask of a filter over all passages, from the masks of its comparisons."""
    match node:
        case Not(part):
            return ~evaluate_filter(part, masks)
        case Joined(operator, parts):
            part_masks = []
            # Comparisons of one field become one condition: a range may select few values.
            by_field: dict[str | None, list[Condition]] = {}
            for part in parts:
                if isinstance(part, Not | Joined):
                    part_masks.append(evaluate_filter(part, masks))
                else:
                    condition = condition_of(part)
                    by_field.setdefault(condition.field, []).append(condition)
            for field, conditions in by_field.items():
                text = f" {operator} ".join(comparison.sql for comparison in conditions)
                parameters = tuple(
                    value for comparison in conditions for value in comparison.parameters
                )
                part_masks.append(masks(Condition(field, f"({text})", parameters)))
            return reduce(np.logical_and if operator == "and" else np.logical_or, part_masks)
        case _:
            return masks(condition_of(node))


def matching_passages(
    connection: sqlite3.Connection, tables: str, condition: Condition, *parameters: str
) -> NDArray[np.int64]:
    """Return (m,) ascending int64 ids of passages in `tables` whose document meets a condition."""
    where = condition.sql
    field_parameters = [*parameters]
    if condition.field is not None:
        tables = f"{tables}, json_each(d.metadata) AS f0"
        where = f"f0.key = ? AND {where}"
        field_parameters.append(condition.field)
    rows = connection.execute(
        # The filter's SQL holds no value and no name: both are bound.
        f"SELECT p.passage FROM {tables} WHERE {where}",  # noqa: S608
        (*field_parameters, *condition.parameters),
    )
    return np.unique(np.fromiter((row[0] for row in rows), np.int64))


def unknown_fields(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the fields that no document has ever had, each with the names of all fields."""
    if format_version(connection) < VALUES_SINCE:
        return {}
    names_to_check = set(names)
    unknown = sorted(names_to_check - field_numbers(connection, names_to_check).keys())
    if not unknown:
        return {}
    all_names = [name for (name,) in connection.execute("SELECT name FROM fields ORDER BY name")]
    return dict.fromkeys(unknown, all_names)


def _mask_of_passages(live: LiveSegment, passages: NDArray[np.int64]) -> Mask:
    mask = np.zeros(len(live.segment.ids), np.bool_)
    mask[live.segment.positions_of(passages)] = True
    return mask


def _mask_of_condition(
    connection: sqlite3.Connection, live: LiveSegment, condition: Condition, ranks: RanksCache
) -> Mask:
    """Return the mask of passages whose value meets a condition, deleted ones included."""
    mask = np.zeros(len(live.segment.ids), np.bool_)
    name = condition.field or ""
    segment = live.segment.number
    field = field_numbers(connection, [name]).get(name)
    if field is None:
        return mask
    cursor = connection.execute(
        # The filter's SQL holds no value and no name: both are bound.
        "SELECT f0.type, f0.value, f0.passages, f0.checksum FROM metadata_values AS f0 "  # noqa: S608
        f"WHERE f0.segment = ? AND f0.field = ? AND f0.type <> '{UNKEPT}' AND {condition.sql}",
        (segment, field, *condition.parameters),
    )
    rows = cursor.fetchmany(MAX_BITMAPS + 1)
    if len(rows) > MAX_BITMAPS:
        cursor.close()
        field_ranks = ranks.of(connection, segment, field, len(mask))
        mask = field_ranks.having(condition.sql, condition.parameters)
    else:
        for row in rows:
            mask[unpacked(segment, field, *row).to_array()] = True
    unkept = unkept_positions(connection, segment, field)
    if unkept is not None:
        ids_json = json.dumps(live.segment.ids_at(unkept).tolist())
        mask |= _mask_of_passages(live, matching_passages(connection, LISTED, condition, ids_json))
    return mask


def condition_of(comparison: FieldComparison) -> Condition:
    """Return a comparison as a condition in the dialect of SQLite."""
    names = comparison.field.names
    if comparison.field.own:
        column = f"d.{'id' if names[0] == 'id' else 'title'}"
        test, parameters = _comparison_sql(comparison, column, f"typeof({column})")
        return Condition(None, test, tuple(parameters))
    depth = len(names) - 1
    test, parameters = _comparison_sql(comparison, f"f{depth}.value", f"f{depth}.type")
    if depth:
        # json_each compares unescaped keys; in many releases of SQLite json_extract compares
        # keys as the JSON text spells them, and misses names with an accent or a quote.
        tables = ", ".join(
            f"json_each(CASE f{i}.type WHEN 'object' THEN f{i}.value ELSE '{{}}' END) AS f{i + 1}"
            for i in range(depth)
        )
        keys = " AND ".join(f"f{i + 1}.key = ?" for i in range(depth))
        test = f"EXISTS (SELECT 1 FROM {tables} WHERE {keys} AND {test})"  # noqa: S608
    return Condition(names[0], test, (*names[1:], *parameters))


def _comparison_sql(
    comparison: FieldComparison, value: str, json_type: str
) -> tuple[str, Sequence[Value]]:
    """Return SQL for a comparison with `value`, of `json_type`, and its parameters."""
    values = comparison.values
    match comparison.operator:
        case "exists":
            return f"{json_type} <> 'null'", ()
        case "like":
            return f"({json_type} = 'text' AND {value} LIKE ?)", values
        case "contains":
            test, parameters = _equality_sql("e.value", "e.type", values)
            array = f"CASE {json_type} WHEN 'array' THEN {value} ELSE '[]' END"
            test = f"EXISTS (SELECT 1 FROM json_each({array}) AS e WHERE {test})"  # noqa: S608
            if isinstance(values[0], str):
                test = f"({test} OR {json_type} = 'text' AND instr({value}, ?) > 0)"
                parameters += values
            return test, parameters
        case "in":
            return _equality_sql(value, json_type, values)
        case "!=":
            test, parameters = _equality_sql(value, json_type, values)
            return f"({json_type} <> 'null' AND NOT {test})", parameters
        case operator:
            types = "'text'" if isinstance(values[0], str) else "'integer', 'real'"
            return f"({json_type} IN ({types}) AND {value} {operator} ?)", values


def _equality_sql(
    value: str, json_type: str, literals: Sequence[Scalar]
) -> tuple[str, list[Value]]:
    """Return SQL for "`value`, of `json_type`, is one of `literals`", and its parameters."""
    numbers = [x for x in literals if isinstance(x, int | float) and not isinstance(x, bool)]
    strings = [x for x in literals if isinstance(x, str)]
    tests: list[str] = []
    parameters: list[Value] = []
    for values, types in ((numbers, "'integer', 'real'"), (strings, "'text'")):
        if values:
            marks = ", ".join("?" * len(values))
            tests.append(f"{json_type} IN ({types}) AND {value} IN ({marks})")
            parameters += values
    tests += [
        f"{json_type} = '{name}'"
        for x, name in ((True, "true"), (False, "false"))
        if any(literal is x for literal in literals)
    ]
    return f"({' OR '.join(tests)})", parameters
