"""Pairs of texts in TSV, CSV and JSONL, such as scored ones: `score`, `sentence1`, `sentence2`.

TSV and CSV have a header that names these columns, in any order and among others. In TSV quotes are
ordinary characters, as in STS files; in CSV they quote. Files may be gzipped.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.datasets.files import SHOWN, json_lines, numbered_lines
from retriever.documents import string_fault
from retriever.documents.sources import base_name
from retriever.errors import SourceError

_FIELDS = ("score", "sentence1", "sentence2")

Row = tuple[str, dict[str, object]]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of sentences with human scores of their similarity.

    Attributes:
        gold: (pairs,) float64, finite, higher is more similar.
        left: each pair's first sentence, not blank.
        right: its second.
    """

    gold: NDArray[np.float64]
    left: list[str]
    right: list[str]

    def __len__(self) -> int:
        return len(self.left)


def read_pairs(paths: Sequence[Path]) -> ScoredPairs:
    """The pairs of one or more files, one after the other, in the order of their lines.

    Raises:
        SourceError: a file cannot be read, is of another format, has a line without a finite
            score and two sentences, or has only pairs that another file has too; names file and, if
            known, line.
    """
    parts = [
        scored_pairs(
            path,
            (
                (where, row["score"], row["sentence1"], row["sentence2"])
                for where, row in named_rows(path, _FIELDS)
            ),
        )
        for path in paths
    ]
    repeated = contained(parts)
    if repeated is not None:
        part, whole = (paths[place] for place in repeated)
        raise SourceError(
            f"{part}: all of its pairs are in {whole} too; name each pair once, or the folder of "
            "the test"
        )
    return joined_pairs(parts)


def contained(parts: Sequence[ScoredPairs]) -> tuple[int, int] | None:
    """The places of the first part whose pairs are all in another part, and of that part."""
    texts = [set(zip(part.left, part.right, strict=True)) for part in parts]
    for part, whole in permutations(range(len(parts)), 2):
        if texts[part] <= texts[whole]:
            return part, whole
    return None


def scored_pairs(path: Path, rows: Iterable[tuple[str, object, object, object]]) -> ScoredPairs:
    """The pairs of a file from its rows: `file:line`, the score, and the two sentences.

    Raises:
        SourceError: there is no row, a score is not finite, or a sentence is blank or no text.
    """
    gold: list[float] = []
    left: list[str] = []
    right: list[str] = []
    for where, score, first, second in rows:
        gold.append(finite_score(where, score))
        left.append(text_field(where, first, "sentence1"))
        right.append(text_field(where, second, "sentence2"))
    if not gold:
        raise SourceError(f"{path}: expected scored pairs, found none; check the file")
    return ScoredPairs(np.array(gold), left, right)


def joined_pairs(parts: Sequence[ScoredPairs]) -> ScoredPairs:
    """The pairs of the parts, one part after the other."""
    return ScoredPairs(
        np.array([score for part in parts for score in part.gold], dtype=np.float64),
        [sentence for part in parts for sentence in part.left],
        [sentence for part in parts for sentence in part.right],
    )


def finite_score(where: str, value: object) -> float:
    """A score from a number or its text."""
    try:
        score = float(value) if isinstance(value, str | float | int) else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    # True and "1_0" are numbers to Python alone.
    if not math.isfinite(score) or isinstance(value, bool) or "_" in str(value):
        raise SourceError(
            f"{where}: expected a finite number as score, found {str(value)[:SHOWN]!r}; "
            "correct or remove the line"
        )
    return score


def named_rows(path: Path, fields: Sequence[str]) -> Iterator[Row]:
    """`file:line` and the values of each record by their names: `fields` and maybe others."""
    if _format(path) == ".jsonl":
        return _jsonl(path, fields)
    return _table(_cells(path), fields)


def field_names(path: Path) -> tuple[str, ...]:
    """The names of the columns, or those in the first record; empty if there is none."""
    if _format(path) == ".jsonl":
        return tuple(next((row for _, row in _jsonl(path, ())), {}))
    return tuple(cell.strip() for cell in next((cells for _, cells in _cells(path)), []))


def _format(path: Path) -> str:
    ending = Path(base_name(path.name)).suffix
    if ending not in (".tsv", ".csv", ".jsonl", ".ndjson"):
        raise SourceError(
            f"{path}: expected a file of pairs that ends in .tsv, .csv or .jsonl, found "
            f"{path.suffix or 'no ending'!r}; rename it"
        )
    return ".jsonl" if ending == ".ndjson" else ending


def _cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    if _format(path) == ".tsv":
        yield from ((where, line.split("\t")) for where, line in numbered_lines(path))
        return
    # Cells of several lines would make line numbers ambiguous; sentences have none.
    for where, line in numbered_lines(path):
        try:
            yield where, next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise SourceError(
                f"{where}: expected a row of CSV on one line, found {line[:SHOWN]!r} "
                f"({error}); write a quote inside a quoted cell twice"
            ) from error


def _table(rows: Iterator[tuple[str, list[str]]], fields: Sequence[str]) -> Iterator[Row]:
    where, cells = next(rows, ("", []))
    header = [cell.strip() for cell in cells]
    for field in fields if where else ():
        if header.count(field) != 1:
            remedy = (
                "name its column so, or leave the file out"
                if field not in header and {*header} & {*fields}
                else "begin the file with the names of its columns"
            )
            raise SourceError(
                f"{where}: expected a header with one column {field!r}, found "
                f"{', '.join(header)[:SHOWN]!r}; {remedy}"
            )
    for where, cells in rows:
        if len(cells) != len(header):
            raise SourceError(
                f"{where}: expected {len(header)} cells as in the header, found {len(cells)}; "
                "correct the line"
            )
        yield where, dict(zip(header, cells, strict=True))


def _jsonl(path: Path, fields: Sequence[str]) -> Iterator[Row]:
    for where, value in json_lines(path, "a JSON object"):
        if not isinstance(value, dict) or not all(name in value for name in fields):
            missing = [name for name in fields if not isinstance(value, dict) or name not in value]
            found = f"found no {missing[0]}" if missing else f"found {str(value)[:SHOWN]!r}"
            raise SourceError(
                f"{where}: expected an object with {', '.join(fields) or 'fields'}, {found}; "
                "correct the line"
            )
        yield where, value


def text_field(where: str, value: object, field: str) -> str:
    """A text that is not blank."""
    if isinstance(value, str) and value.strip():
        if (fault := string_fault(value)) is not None:
            raise SourceError(f"{where}: the {field} {fault}; correct or remove the line")
        return value
    found = "nothing" if isinstance(value, str) else repr(value)[:SHOWN]
    raise SourceError(
        f"{where}: expected a text as {field}, found {found}; correct or remove the line"
    )
