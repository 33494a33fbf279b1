"""Pairs of texts, and tests of semantic textual similarity in their published forms.

Quotes are ordinary characters everywhere but in CSV with a header, and any file may be gzipped.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.datasets.files import (
    SHOWN,
    existing,
    first_cells,
    json_lines,
    matching,
    numbered_lines,
    table,
)
from retriever.documents import string_fault
from retriever.documents.sources import base_name
from retriever.errors import SourceError

_FIELDS = ("score", "sentence1", "sentence2")
SICK_HEADER = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
"""Split to its file, of both tasks."""
_BENCHMARK = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
_TESTS = (
    "test.tsv",
    "test.SUBSET.tsv",
    "STS.input.SUBSET.txt",
    "sts-test.csv",
    "SICK_test_annotated.txt",
)
# Folders of the published archives whose names do not begin with the year.
_OFFICIAL_NAMES = {
    "test-gold": "sts12",
    "test-gs": "sts13",
    "sts-en-test-gs-2014": "sts14",
    "test_evaluation_task2a": "sts15",
    "stsbenchmark": "stsb",
    "sts-b": "stsb",
}
_YEAR = re.compile(r"sts[-_]?(?:20)?(\d\d)(?!\d)")
_SEMEVAL_INPUT = re.compile(r"STS(?:20\d\d)?\.input\.(?P<part>.+?)\.txt(?:\.gz)?")
_SEMEVAL_GOLD = re.compile(r"STS(?:20\d\d)?\.gs\.(?P<part>.+?)\.txt(?:\.gz)?")
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
    """The pairs of a file from its rows: `file:line`, the score, and the two sentences."""
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
        path: its folder, or the folder around it that a published archive makes; or one file of
            pairs, which then is a test of one part.

    Raises:
        SourceError: its form is unknown, its test is missing, a file is malformed, or files that
            belong together differ; names file and, if known, line.
    """
    if path.is_file():
        part = _SEMEVAL_INPUT.fullmatch(path.name)
        name = part["part"] if part else path.name.removesuffix(".gz").rsplit(".", 1)[0]
        return STSTask(name, (PairSubset(name, _pairs_of_file(path)),))
    if not path.is_dir():
        raise SourceError(f"{path}: no such file or folder")
    for read in (_semeval, _benchmark, _sick, _own):
        task = read(path)
        if task is not None:
            return task
    below = sorted(one for one in path.iterdir() if one.is_dir())
    nested = [one for one in below if _semeval_inputs(one)]
    if len(nested) == 1:
        return STSTask(_name(path, nested[0]), _semeval_parts(nested[0]))
    raise SourceError(
        f"{path}: expected the test files of a similarity data set "
        f"({', '.join(_TESTS)}), found none of them; "
        + (
            f"name one of its folders: {', '.join(one.name for one in below)}"
            if below
            else "check the path, or add the test"
        )
    )


def _pairs_of_file(path: Path) -> ScoredPairs:
    if _SEMEVAL_INPUT.fullmatch(path.name):
        return _semeval_pairs(path)
    if re.fullmatch(r"sts-(train|dev|test)\.csv(\.gz)?", path.name):
        return _benchmark_pairs(path)
    if re.fullmatch(r"SICK_.+\.txt(\.gz)?", path.name):
        return _sick_pairs(path)
    return read_pairs([path])


def _name(*folders: Path) -> str:
    """The usual name of the test by its folders; the name of the first folder if it is unknown."""
    names = [folder.resolve().name.lower() for folder in folders]
    for name in names:
        if name in _OFFICIAL_NAMES:
            return _OFFICIAL_NAMES[name]
        if year := _YEAR.match(name):
            return f"sts{year[1]}"
    return names[0]


def _semeval(folder: Path) -> STSTask | None:
    return STSTask(_name(folder), _semeval_parts(folder)) if _semeval_inputs(folder) else None


def _semeval_inputs(folder: Path) -> dict[str, Path]:
    """Part to the file of its sentences, in the order of the parts' names."""
    return _semeval_files(folder, "input", _SEMEVAL_INPUT)


def _semeval_files(folder: Path, kind: str, pattern: re.Pattern[str]) -> dict[str, Path]:
    names = [
        (pattern.fullmatch(path.name), path) for path in matching(folder, f"STS*.{kind}.*.txt")
    ]
    return dict(sorted((match["part"], path) for match, path in names if match))


def _semeval_parts(folder: Path) -> tuple[PairSubset, ...]:
    files = _semeval_inputs(folder)
    for part, path in _semeval_files(folder, "gs", _SEMEVAL_GOLD).items():
        if part not in files and part not in _GOLD_ALONE:
            raise SourceError(
                f"{path}: expected the sentences of these scores beside them in "
                f"{path.name.replace('.gs.', '.input.', 1)}, found none; download the test again"
            )
    if len(files) > 1:
        files.pop(_SEMEVAL_ALL, None)
    return tuple(PairSubset(part, _semeval_pairs(path)) for part, path in files.items())


def _semeval_pairs(path: Path) -> ScoredPairs:
    """The judged pairs of one file of sentences, whose scores are in the file beside it.

    A blank score is that of a pair that was not judged.
    """
    gold = path.with_name(path.name.replace(".input.", ".gs.", 1).removesuffix(".gz"))
    scores = list(numbered_lines(existing(gold) or gold, blank=True))
    pairs = list(numbered_lines(path, blank=True))
    while pairs and not pairs[-1][1].strip():
        pairs.pop()
    while len(scores) > len(pairs) and not scores[-1][1].strip():
        scores.pop()
    if len(scores) != len(pairs):
        raise SourceError(
            f"{gold}: expected a line for each of the {len(pairs)} pairs of {path.name}, blank "
            f"where a pair was not judged, found {len(scores)}; download both again"
        )
    return scored_pairs(
        gold,
        (
            (where, finite_score(place, score), left, right)
            for (place, score), (where, line) in zip(scores, pairs, strict=True)
            if score.strip()
            for left, right in [first_cells(where, line, ("sentence1", "sentence2"))]
        ),
    )


def _own(folder: Path) -> STSTask | None:
    parts = {path.name.split(".", 1)[1]: path for path in matching(folder, "test.*.tsv")}
    files = {rest.removesuffix(".gz").removesuffix(".tsv"): path for rest, path in parts.items()}
    whole = existing(folder / "test.tsv")
    if whole is not None and files:
        raise SourceError(
            f"{whole}: expected either test.tsv or the parts of the test, found both "
            f"({next(iter(files.values())).name}); remove one"
        )
    if whole is not None:
        files = {"test": whole}
    if not files:
        return None
    all_parts = files.pop("all") if len(files) > 1 and "all" in files else None
    subsets = tuple(PairSubset(name, read_pairs([file])) for name, file in sorted(files.items()))
    if all_parts is not None:
        pairs = sum(len(subset.pairs) for subset in subsets)
        if (found := len(read_pairs([all_parts]))) != pairs:
            raise SourceError(
                f"{all_parts}: expected the {pairs} pairs of the parts beside it "
                f"({', '.join(subset.name for subset in subsets)}), found {found}; add the part "
                "that is missing or remove this file"
            )
    train = existing(folder / "train.tsv")
    dev = existing(folder / "dev.tsv") or existing(folder / "trial.tsv")
    return STSTask(
        _name(folder),
        subsets,
        None if train is None else read_pairs([train]),
        None if dev is None else read_pairs([dev]),
    )


def _benchmark(folder: Path) -> STSTask | None:
    names = {split: f"sts-{split}.csv" for split in ("train", "dev", "test")}
    return _splits(folder, names, _benchmark_pairs)


def _benchmark_pairs(path: Path) -> ScoredPairs:
    rows = ((where, first_cells(where, line, _BENCHMARK)) for where, line in numbered_lines(path))
    return scored_pairs(path, ((where, cells[4], cells[5], cells[6]) for where, cells in rows))


def _sick(folder: Path) -> STSTask | None:
    return _splits(folder, SICK_FILES, _sick_pairs)


def _sick_pairs(path: Path) -> ScoredPairs:
    return scored_pairs(
        path,
        (
            (where, score.strip(), left.strip(), right.strip())
            for where, (_, left, right, score, _) in table(path, SICK_HEADER)
        ),
    )


def _splits(
    folder: Path, names: dict[str, str], read: Callable[[Path], ScoredPairs]
) -> STSTask | None:
    found = {split: existing(folder / name) for split, name in names.items()}
    train, dev, test = found["train"], found["dev"], found["test"]
    if test is None:
        there = [name for split, name in names.items() if found[split] is not None]
        if not there:
            return None
        raise SourceError(
            f"{folder / names['test']}: expected the test beside {' and '.join(there)}, found "
            "none; download the set again"
        )
    return STSTask(
        _name(folder),
        (PairSubset("test", read(test)),),
        None if train is None else read(train),
        None if dev is None else read(dev),
    )
