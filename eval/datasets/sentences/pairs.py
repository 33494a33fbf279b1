"""Scored pairs of sentences: TSV, CSV and JSONL with `score`, `sentence1` and `sentence2`.

TSV and CSV have a header that names these columns, in any order and among others. In TSV quotes are
ordinary characters, as in STS files; in CSV they quote. Files may be gzipped.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.lines import numbered_lines
from retriever.corpus.sources import base_name
from retriever.errors import SourceError

_FIELDS = ("score", "sentence1", "sentence2")
_SHOWN = 60

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
                for where, row in _reader(path)(path)
            ),
        )
        for path in paths
    ]
    _check_distinct(paths, parts)
    return joined_pairs(parts)


def _check_distinct(paths: Sequence[Path], parts: Sequence[ScoredPairs]) -> None:
    """Refuse a file whose pairs are all in another one, so that none counts twice."""
    texts = [set(zip(part.left, part.right, strict=True)) for part in parts]
    for one, other in permutations(range(len(paths)), 2):
        if texts[one] <= texts[other]:
            raise SourceError(
                f"{paths[one]}: all of its pairs are in {paths[other]} too; name each pair once, "
                "or the folder of the test"
            )


def scored_pairs(path: Path, rows: Iterable[tuple[str, object, object, object]]) -> ScoredPairs:
    """The pairs of a file.

    Args:
        path: the file.
        rows: `file:line`, the score, a number or one as text, and the two sentences.

    Raises:
        SourceError: there is no row, a score is not finite, or a sentence is blank or no text;
            names file and line.
    """
    gold: list[float] = []
    left: list[str] = []
    right: list[str] = []
    for where, score, first, second in rows:
        gold.append(finite_score(where, score))
        left.append(_sentence(where, first, "sentence1"))
        right.append(_sentence(where, second, "sentence2"))
    if not gold:
        raise SourceError(f"{path}: expected scored pairs, found none; check the file")
    return ScoredPairs(np.array(gold), left, right)


def joined_pairs(parts: Sequence[ScoredPairs]) -> ScoredPairs:
    """The pairs of all parts, one part after the other."""
    return ScoredPairs(
        np.array([score for part in parts for score in part.gold], dtype=np.float64),
        [sentence for part in parts for sentence in part.left],
        [sentence for part in parts for sentence in part.right],
    )


def finite_score(where: str, value: object) -> float:
    """A score from a number or its text; raises SourceError, naming `where`, for anything else."""
    try:
        score = float(value) if isinstance(value, str | float | int) else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    # True and "1_0" are numbers to Python alone.
    if not math.isfinite(score) or isinstance(value, bool) or "_" in str(value):
        raise SourceError(
            f"{where}: expected a finite number as score, found {str(value)[:_SHOWN]!r}; "
            "correct or remove the line"
        )
    return score


def _reader(path: Path) -> Callable[[Path], Iterator[Row]]:
    readers = {
        ".tsv": _tsv,
        ".csv": _csv,
        ".jsonl": _jsonl,
        ".ndjson": _jsonl,
    }
    reader = readers.get(Path(base_name(path.name)).suffix)
    if reader is None:
        raise SourceError(
            f"{path}: expected a file of scored pairs called .tsv, .csv or .jsonl, found "
            f"{path.suffix or 'no ending'!r}; rename it"
        )
    return reader


def _tsv(path: Path) -> Iterator[Row]:
    yield from _table((where, line.split("\t")) for where, line in numbered_lines(path))


def _csv(path: Path) -> Iterator[Row]:
    # Cells of several lines would make line numbers ambiguous; sentences have none.
    def cells() -> Iterator[tuple[str, list[str]]]:
        for where, line in numbered_lines(path):
            try:
                yield where, next(csv.reader([line], strict=True))
            except csv.Error as error:
                raise SourceError(
                    f"{where}: expected a row of CSV on one line, found {line[:_SHOWN]!r} "
                    f"({error}); write a quote inside a quoted cell twice"
                ) from error

    yield from _table(cells())


def _table(rows: Iterator[tuple[str, list[str]]]) -> Iterator[Row]:
    header: list[str] | None = None
    for where, cells in rows:
        if header is None:
            header = [cell.strip() for cell in cells]
            _check_header(where, header)
        elif len(cells) != len(header):
            raise SourceError(
                f"{where}: expected {len(header)} cells as in the header, found {len(cells)}; "
                "correct the line"
            )
        else:
            yield where, dict(zip(header, cells, strict=True))


def _check_header(where: str, header: list[str]) -> None:
    for field in _FIELDS:
        if header.count(field) != 1:
            raise SourceError(
                f"{where}: expected a header with one column {field!r}, found "
                f"{', '.join(header)[:_SHOWN]!r}; begin the file with the names of its columns"
            )


def _jsonl(path: Path) -> Iterator[Row]:
    for where, line in numbered_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{where}: expected a JSON object, found {line[:_SHOWN]!r}; correct the line"
            ) from error
        missing = [name for name in _FIELDS if not isinstance(value, dict) or name not in value]
        if missing:
            raise SourceError(
                f"{where}: expected an object with {', '.join(_FIELDS)}, found no {missing[0]}; "
                "correct the line"
            )
        yield where, value


def _sentence(where: str, value: object, field: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    found = "nothing" if isinstance(value, str) else repr(value)[:_SHOWN]
    raise SourceError(
        f"{where}: expected a sentence as {field}, found {found}; correct or remove the line"
    )
