"""Pairs of texts, and tests of semantic textual similarity in their published forms.

Quotes are ordinary characters, except in CSV with a header. Any file may be gzipped.
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
    QUOTED_LENGTH,
    cells_of,
    fault,
    find_file,
    json_lines,
    list_names,
    matching_files,
    name_parts,
    numbered_lines,
    quoted,
    require_file,
    table,
)
from retriever.documents import base_name
from retriever.errors import SourceError, string_fault

_FIELDS = ("score", "sentence1", "sentence2")
SICK_HEADER = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
"""Split to its file, for both tasks."""
_BENCHMARK_FILES = {split: f"sts-{split}.csv" for split in ("train", "dev", "test")}
_BENCHMARK = ("genre", "file", "year", "id", *_FIELDS)
_TESTS = "test.tsv, test.SUBSET.tsv, STS.input.SUBSET.txt, sts-test.csv, SICK_test_annotated.txt"
_YEAR = re.compile(r"sts[-_]?(?:20)?(\d\d)(?!\d)")
_SEMEVAL = re.compile(r"STS(?:20\d\d)?\.(?P<kind>input|gs)\.(?P<part>.+?)\.txt(?:\.gz)?")
# Scores that are published without their sentences: a copy of all parts of 2012, and the part of
# 2013 that the Linguistic Data Consortium licenses.
_SEMEVAL_ALL = "ALL"
_GOLD_ALONE = frozenset({_SEMEVAL_ALL, "SMT"})

Row = tuple[str, dict[str, object]]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of sentences with human scores of their similarity.

    Attributes:
        gold: (pairs,) float64, finite, higher is more similar.
        left: (pairs,) first sentences, not blank.
        right: (pairs,) second sentences, not blank.
    """

    gold: NDArray[np.float64]
    left: list[str]
    right: list[str]

    def __len__(self) -> int:
        return len(self.left)


def read_pairs(paths: Sequence[Path]) -> ScoredPairs:
    """Read files of pairs with `score`, `sentence1` and `sentence2`, in the order of their lines.

    Raises:
        SourceError: a file cannot be read, a line lacks a finite score and two sentences, or
            another file has all pairs of one; names file and line.
    """
    parts = [_read_pairs(path) for path in paths]
    positions = find_contained(parts)
    if positions is not None:
        part, whole = (paths[position] for position in positions)
        raise SourceError(
            f"{part}: all of its pairs are in {whole} too; name each pair once, or the folder of "
            "the test"
        )
    return join_pairs(parts)


def _read_pairs(path: Path) -> ScoredPairs:
    rows = named_rows(path, _FIELDS)
    return _scored_pairs(path, ((where, *(row[field] for field in _FIELDS)) for where, row in rows))


def find_contained(parts: Sequence[ScoredPairs]) -> tuple[int, int] | None:
    """Return the position of a part whose pairs are all in another part, and of that part."""
    texts = [set(zip(part.left, part.right, strict=True)) for part in parts]
    positions = permutations(range(len(parts)), 2)
    return next((pair for pair in positions if texts[pair[0]] <= texts[pair[1]]), None)


def _scored_pairs(path: Path, rows: Iterable[tuple[object, ...]]) -> ScoredPairs:
    """Return the pairs of rows of `file:line`, score and two sentences."""
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


def join_pairs(parts: Sequence[ScoredPairs]) -> ScoredPairs:
    """Return the pairs of all parts, part after part."""
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
        raise fault(where, "a finite number as score", quoted(str(value)), remedy)
    return score


def named_rows(path: Path, fields: Sequence[str]) -> Iterator[Row]:
    """Yield `file:line` and each record: `fields` to values, and maybe others."""
    if _format(path) == ".jsonl":
        return _jsonl(path, fields)
    return _table(_cells(path), fields)


def field_names(path: Path) -> tuple[str, ...]:
    """Return the names of the columns, or the keys of the first record; none in an empty file."""
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
            row_found = f"{quoted(line)} ({error})"
            remedy = "write a quote inside a quoted cell twice"
            raise fault(where, "a row of CSV on one line", row_found, remedy) from error


def _table(rows: Iterator[tuple[str, list[str]]], fields: Sequence[str]) -> Iterator[Row]:
    where, cells = next(rows, ("", []))
    header = [cell.strip() for cell in cells]
    for field in fields if where else ():
        if header.count(field) != 1:
            remedy = "begin the file with the names of its columns, or leave it out"
            expected = f"a header with one column {field!r}"
            raise fault(where, expected, ", ".join(header)[:QUOTED_LENGTH], remedy)
    for where, cells in rows:
        if len(cells) != len(header):
            raise fault(where, f"{len(header)} cells as in the header", str(len(cells)))
        yield where, dict(zip(header, cells, strict=True))


def _jsonl(path: Path, fields: Sequence[str]) -> Iterator[Row]:
    form = f"a JSON object with {', '.join(fields) or 'fields'}"
    return json_lines(path, form, lambda row: isinstance(row, dict) and {*fields} <= row.keys())


def text_field(where: str, value: object, field: str) -> str:
    """Return the text of a field; refuse another value and a blank text."""
    remedy = "correct or remove the line"
    if isinstance(value, str) and value.strip():
        if (broken := string_fault(value)) is not None:
            raise SourceError(f"{where}: the {field} {broken}; {remedy}")
        return value
    value_found = "nothing" if isinstance(value, str) else repr(value)[:QUOTED_LENGTH]
    raise fault(where, f"a text as {field}", value_found, remedy)


@dataclass(frozen=True, slots=True, eq=False)
class PairSubset:
    """A part of an STS test: its published name, or "test", and at least one pair."""

    name: str
    pairs: ScoredPairs


@dataclass(frozen=True, slots=True, eq=False)
class STSTask:
    """A test of semantic textual similarity.

    Attributes:
        name: name of the test, such as "sts12", "stsb" or "sick".
        subsets: the parts of the test, at least one, by name; a file of all parts beside them is
            not a part.
        train: training pairs of the supervised protocol; None if the set has none.
        dev: dev pairs of the supervised protocol; None if the set has none.
    """

    name: str
    subsets: tuple[PairSubset, ...]
    train: ScoredPairs | None = None
    dev: ScoredPairs | None = None

    def tested(self) -> ScoredPairs:
        """Return the pairs of all parts of the test, part after part."""
        return join_pairs([subset.pairs for subset in self.subsets])

    def everything(self) -> ScoredPairs:
        """Return the pairs of all splits: train, dev, then each part of the test."""
        splits = [part for part in (self.train, self.dev) if part is not None]
        return join_pairs([*splits, self.tested()])


def read_sts(path: Path) -> STSTask:
    """Read a test of similarity: the project's own, SemEval's, the STS benchmark or SICK.

    Args:
        path: the folder of the test, or one file of pairs, which is a test of one part.

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
        _read_semeval(path)
        or _read_splits(path, _BENCHMARK_FILES)
        or _read_splits(path, SICK_FILES)
        or _read_own(path)
    )
    if task is not None:
        return task
    expected = f"the test files of a similarity data set ({_TESTS})"
    raise fault(path, expected, list_names(path), "name another folder, or add the test")


def _pairs_of_file(path: Path) -> ScoredPairs:
    """Read the pairs of a file in the form that its name tells."""
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
        return _read_pairs(path)
    return _scored_pairs(path, ((where, *map(str.strip, cells)) for where, cells in rows))


def _test_name(folder: Path) -> str:
    """Return the usual name of a test by the year in its folder's name, or that name."""
    name = folder.resolve().name.lower()
    year = _YEAR.match(name)
    return f"sts{year[1]}" if year else name


def _semeval_files(folder: Path, kind: str) -> dict[str, Path]:
    """Return part to its file of sentences ("input") or scores ("gs"), by part."""
    files = ((_SEMEVAL.fullmatch(path.name), path) for path in matching_files(folder, "STS*.txt"))
    named = [(match["part"], path) for match, path in files if match and match["kind"] == kind]
    return dict(sorted(named))


def _read_semeval(folder: Path) -> STSTask | None:
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
    return STSTask(_test_name(folder), tuple(subsets))


def _semeval_pairs(path: Path) -> ScoredPairs:
    """Read a file of sentences; pairs whose score in the file beside it is blank are left out."""
    gold = path.with_name(path.name.replace(".input.", ".gs.", 1).removesuffix(".gz"))
    scores = list(numbered_lines(find_file(gold) or gold, blank=True))
    pairs = list(numbered_lines(path, blank=True))
    while pairs and not pairs[-1][1].strip():
        pairs.pop()
    while len(scores) > len(pairs) and not scores[-1][1].strip():
        scores.pop()
    if len(scores) != len(pairs):
        expected = f"a line for each of the {len(pairs)} pairs of {path.name}, blank where a pair"
        raise fault(gold, f"{expected} was not judged", str(len(scores)), "download both again")
    judged = []
    for (score_line, score), (where, line) in zip(scores, pairs, strict=True):
        if score.strip():
            cells = cells_of(where, line, _FIELDS[1:], more=True)
            judged.append((where, _finite_score(score_line, score), *map(str.strip, cells)))
    return _scored_pairs(gold, judged)


def _read_own(folder: Path) -> STSTask | None:
    parts = name_parts(folder, "test.", ".tsv")
    files = {part: require_file(folder / f"test.{part}.tsv", "test") for part in parts}
    whole = find_file(folder / "test.tsv")
    if whole is not None and files:
        expected = "either test.tsv or the parts of the test"
        files_found = f"both (test.{parts[0]}.tsv)"
        raise fault(whole, expected, files_found, "remove one")
    if whole is not None:
        files = {"test": whole}
    if not files:
        return None
    subsets = {part: PairSubset(part, _read_pairs(file)) for part, file in files.items()}
    everything = subsets.pop("all") if len(files) > 1 and "all" in files else None
    pairs = sum(len(subset.pairs) for subset in subsets.values())
    if everything is not None and len(everything.pairs) != pairs:
        expected = f"the {pairs} pairs of the parts beside it ({', '.join(subsets)})"
        remedy = "add the part that is missing or remove this file"
        raise fault(files["all"], expected, str(len(everything.pairs)), remedy)
    train = find_file(folder / "train.tsv")
    dev = find_file(folder / "dev.tsv", folder / "trial.tsv")
    return _read_task(folder, tuple(subsets.values()), train, dev)


def _read_splits(folder: Path, names: Mapping[str, str]) -> STSTask | None:
    """Read the test of a folder with these files, by split; None if it has none of them."""
    paths = {split: find_file(folder / name) for split, name in names.items()}
    if (test := paths["test"]) is not None:
        subset = PairSubset("test", _pairs_of_file(test))
        return _read_task(folder, (subset,), paths["train"], paths["dev"])
    names_found = " and ".join(names[split] for split, file in paths.items() if file is not None)
    if names_found:
        raise fault(folder / names["test"], f"the test beside {names_found}", "none", AGAIN)
    return None


def _read_task(
    folder: Path, subsets: tuple[PairSubset, ...], train: Path | None, dev: Path | None
) -> STSTask:
    splits = [None if file is None else _pairs_of_file(file) for file in (train, dev)]
    return STSTask(_test_name(folder), subsets, *splits)
