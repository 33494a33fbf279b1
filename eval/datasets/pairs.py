"""Pairs of texts, and tests of semantic textual similarity in their published forms.

Quotes are ordinary characters everywhere but in CSV with a header, and any file may be gzipped.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.datasets.files import (
    AGAIN,
    SHOWN,
    between,
    cells_of,
    existing,
    fault,
    json_lines,
    listed,
    matching,
    numbered_lines,
    required,
    shown,
    table,
)
from retriever.documents import base_name
from retriever.errors import SourceError, string_fault

_FIELDS = ("score", "sentence1", "sentence2")
SICK_HEADER = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
"""Split to its file, of both tasks."""
_BENCHMARK_FILES = {split: f"sts-{split}.csv" for split in ("train", "dev", "test")}
_BENCHMARK = ("genre", "file", "year", "id", *_FIELDS)
_TESTS = "test.tsv, test.SUBSET.tsv, STS.input.SUBSET.txt, sts-test.csv, SICK_test_annotated.txt"
_YEAR = re.compile(r"sts[-_]?(?:20)?(\d\d)(?!\d)")
_SEMEVAL = re.compile(r"STS(?:20\d\d)?\.(?P<kind>input|gs)\.(?P<part>.+?)\.txt(?:\.gz)?")
# Scores that are published without their sentences: all parts of 2012 once more, and the part of
# 2013 that the Linguistic Data Consortium licenses.
_SEMEVAL_ALL = "ALL"
_GOLD_ALONE = frozenset({_SEMEVAL_ALL, "SMT"})

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
    """The pairs of files with `score`, `sentence1` and `sentence2`, in the order of their lines.

    Raises:
        SourceError: a file cannot be read, a line lacks a finite score and two sentences, or
            another file has all pairs of one; names file and line.
    """
    parts = [_pairs(path) for path in paths]
    repeated = contained(parts)
    if repeated is not None:
        part, whole = (paths[place] for place in repeated)
        raise SourceError(
            f"{part}: all of its pairs are in {whole} too; name each pair once, or the folder of "
            "the test"
        )
    return joined_pairs(parts)


def _pairs(path: Path) -> ScoredPairs:
    rows = named_rows(path, _FIELDS)
    return _scored(path, ((where, *(row[field] for field in _FIELDS)) for where, row in rows))


def contained(parts: Sequence[ScoredPairs]) -> tuple[int, int] | None:
    """The places of the first part whose pairs are all in another part, and of that part."""
    texts = [set(zip(part.left, part.right, strict=True)) for part in parts]
    places = permutations(range(len(parts)), 2)
    return next((found for found in places if texts[found[0]] <= texts[found[1]]), None)


def _scored(path: Path, rows: Iterable[tuple[object, ...]]) -> ScoredPairs:
    """The pairs of a file from its rows: `file:line`, the score, and the two sentences."""
    gold: list[float] = []
    left: list[str] = []
    right: list[str] = []
    for where, score, first, second in rows:
        gold.append(_finite_score(str(where), score))
        left.append(text_field(str(where), first, "sentence1"))
        right.append(text_field(str(where), second, "sentence2"))
    if not gold:
        raise fault(path, "scored pairs", "none", "check the file")
    return ScoredPairs(np.array(gold), left, right)


def joined_pairs(parts: Sequence[ScoredPairs]) -> ScoredPairs:
    """The pairs of the parts, one part after the other."""
    return ScoredPairs(
        np.array([score for part in parts for score in part.gold], dtype=np.float64),
        [sentence for part in parts for sentence in part.left],
        [sentence for part in parts for sentence in part.right],
    )


def _finite_score(where: str, value: object) -> float:
    try:
        score = float(value) if isinstance(value, str | float | int) else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        remedy = "correct or remove the line"
        raise fault(where, "a finite number as score", shown(str(value)), remedy)
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
        expected = "a file of pairs that ends in .tsv, .csv or .jsonl"
        raise fault(path, expected, repr(path.suffix or "no ending"), "rename it")
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
            found = f"{shown(line)} ({error})"
            remedy = "write a quote inside a quoted cell twice"
            raise fault(where, "a row of CSV on one line", found, remedy) from error


def _table(rows: Iterator[tuple[str, list[str]]], fields: Sequence[str]) -> Iterator[Row]:
    where, cells = next(rows, ("", []))
    header = [cell.strip() for cell in cells]
    for field in fields if where else ():
        if header.count(field) != 1:
            remedy = "begin the file with the names of its columns, or leave it out"
            expected = f"a header with one column {field!r}"
            raise fault(where, expected, ", ".join(header)[:SHOWN], remedy)
    for where, cells in rows:
        if len(cells) != len(header):
            raise fault(where, f"{len(header)} cells as in the header", str(len(cells)))
        yield where, dict(zip(header, cells, strict=True))


def _jsonl(path: Path, fields: Sequence[str]) -> Iterator[Row]:
    form = f"a JSON object with {', '.join(fields) or 'fields'}"
    return json_lines(path, form, lambda row: isinstance(row, dict) and {*fields} <= row.keys())


def text_field(where: str, value: object, field: str) -> str:
    """A text that is not blank."""
    remedy = "correct or remove the line"
    if isinstance(value, str) and value.strip():
        if (broken := string_fault(value)) is not None:
            raise SourceError(f"{where}: the {field} {broken}; {remedy}")
        return value
    found = "nothing" if isinstance(value, str) else repr(value)[:SHOWN]
    raise fault(where, f"a text as {field}", found, remedy)


@dataclass(frozen=True, slots=True, eq=False)
class PairSubset:
    """One part of an STS test: its published name, or "test", and at least one pair."""

    name: str
    pairs: ScoredPairs


@dataclass(frozen=True, slots=True, eq=False)
class STSTask:
    """A test of semantic textual similarity.

    Attributes:
        name: such as "sts12", "stsb" or "sick".
        subsets: the test's parts, at least one, in alphabetical order of their names; a file of all
            parts beside them is not a part.
        train: for the supervised protocol; None if the set has none.
        dev: likewise.
    """

    name: str
    subsets: tuple[PairSubset, ...]
    train: ScoredPairs | None = None
    dev: ScoredPairs | None = None

    def tested(self) -> ScoredPairs:
        """The pairs of all parts of the test, part after part."""
        return joined_pairs([subset.pairs for subset in self.subsets])

    def everything(self) -> ScoredPairs:
        """The pairs of all splits: train, dev, then each part of the test."""
        splits = [part for part in (self.train, self.dev) if part is not None]
        return joined_pairs([*splits, self.tested()])


def read_sts(path: Path) -> STSTask:
    """Read a test of similarity: the project's own, SemEval's, the STS benchmark or SICK.

    Args:
        path: its folder, or one file of pairs, which then is a test of one part.

    Raises:
        SourceError: its form is unknown, its test is missing, a file is malformed, or files that
            belong together differ; names file and, if known, line.
    """
    if path.is_file():
        part = _SEMEVAL.fullmatch(path.name)
        name = part["part"] if part else path.name.removesuffix(".gz").rsplit(".", 1)[0]
        return STSTask(name, (PairSubset(name, _pairs_of_file(path)),))
    if not path.is_dir():
        raise SourceError(f"{path}: no such file or folder")
    task = (
        _semeval(path) or _splits(path, _BENCHMARK_FILES) or _splits(path, SICK_FILES) or _own(path)
    )
    if task is not None:
        return task
    expected = f"the test files of a similarity data set ({_TESTS})"
    raise fault(path, expected, listed(path), "name another folder, or add the test")


def _pairs_of_file(path: Path) -> ScoredPairs:
    """The pairs of a file in the form that its name says."""
    name = path.name.removesuffix(".gz")
    if _SEMEVAL.fullmatch(name):
        return _semeval_pairs(path)
    if name in _BENCHMARK_FILES.values():
        lines = numbered_lines(path)
        rows = ((where, cells_of(where, line, _BENCHMARK, more=True)[4:]) for where, line in lines)
    elif name.startswith("SICK_"):
        sick = table(path, SICK_HEADER)
        rows = ((where, [score, left, right]) for where, (_, left, right, score, _) in sick)
    else:
        return _pairs(path)
    return _scored(path, ((where, *map(str.strip, cells)) for where, cells in rows))


def _name(folder: Path) -> str:
    """The usual name of a test of a year by its folder, or the folder's name."""
    name = folder.resolve().name.lower()
    year = _YEAR.match(name)
    return f"sts{year[1]}" if year else name


def _semeval_files(folder: Path, kind: str) -> dict[str, Path]:
    """Part to its file of sentences ("input") or scores ("gs"), in the order of the parts."""
    files = ((_SEMEVAL.fullmatch(path.name), path) for path in matching(folder, "STS*.txt"))
    named = [(match["part"], path) for match, path in files if match and match["kind"] == kind]
    return dict(sorted(named))


def _semeval(folder: Path) -> STSTask | None:
    files = _semeval_files(folder, "input")
    if not files:
        return None
    for part, gold in _semeval_files(folder, "gs").items():
        if part not in files and part not in _GOLD_ALONE:
            sentences = gold.name.replace(".gs.", ".input.", 1)
            expected = f"the sentences of these scores beside them in {sentences}"
            raise fault(gold, expected, "none", "download the test again")
    if len(files) > 1:
        files.pop(_SEMEVAL_ALL, None)
    subsets = (PairSubset(part, _semeval_pairs(file)) for part, file in files.items())
    return STSTask(_name(folder), tuple(subsets))


def _semeval_pairs(path: Path) -> ScoredPairs:
    """The pairs of one file of sentences whose score in the file beside it is not blank."""
    gold = path.with_name(path.name.replace(".input.", ".gs.", 1).removesuffix(".gz"))
    scores = list(numbered_lines(existing(gold) or gold, blank=True))
    pairs = list(numbered_lines(path, blank=True))
    while pairs and not pairs[-1][1].strip():
        pairs.pop()
    while len(scores) > len(pairs) and not scores[-1][1].strip():
        scores.pop()
    if len(scores) != len(pairs):
        expected = f"a line for each of the {len(pairs)} pairs of {path.name}, blank where a pair"
        raise fault(gold, f"{expected} was not judged", str(len(scores)), "download both again")
    judged = []
    for (place, score), (where, line) in zip(scores, pairs, strict=True):
        if score.strip():
            cells = cells_of(where, line, _FIELDS[1:], more=True)
            judged.append((where, _finite_score(place, score), *map(str.strip, cells)))
    return _scored(gold, judged)


def _own(folder: Path) -> STSTask | None:
    parts = between(folder, "test.", ".tsv")
    files = {part: required(folder / f"test.{part}.tsv", "test") for part in parts}
    whole = existing(folder / "test.tsv")
    if whole is not None and files:
        expected = "either test.tsv or the parts of the test"
        found = f"both (test.{parts[0]}.tsv)"
        raise fault(whole, expected, found, "remove one")
    if whole is not None:
        files = {"test": whole}
    if not files:
        return None
    subsets = {part: PairSubset(part, _pairs(file)) for part, file in files.items()}
    everything = subsets.pop("all") if len(files) > 1 and "all" in files else None
    pairs = sum(len(subset.pairs) for subset in subsets.values())
    if everything is not None and len(everything.pairs) != pairs:
        expected = f"the {pairs} pairs of the parts beside it ({', '.join(subsets)})"
        remedy = "add the part that is missing or remove this file"
        raise fault(files["all"], expected, str(len(everything.pairs)), remedy)
    train = existing(folder / "train.tsv")
    dev = existing(folder / "dev.tsv", folder / "trial.tsv")
    return _task(folder, tuple(subsets.values()), train, dev)


def _splits(folder: Path, names: Mapping[str, str]) -> STSTask | None:
    """The test of a folder with these files, by split."""
    found = {split: existing(folder / name) for split, name in names.items()}
    if (test := found["test"]) is not None:
        subset = PairSubset("test", _pairs_of_file(test))
        return _task(folder, (subset,), found["train"], found["dev"])
    there = " and ".join(names[split] for split, file in found.items() if file is not None)
    if there:
        raise fault(folder / names["test"], f"the test beside {there}", "none", AGAIN)
    return None


def _task(
    folder: Path, subsets: tuple[PairSubset, ...], train: Path | None, dev: Path | None
) -> STSTask:
    splits = [None if file is None else _pairs_of_file(file) for file in (train, dev)]
    return STSTask(_name(folder), subsets, *splits)
