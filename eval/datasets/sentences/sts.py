"""Tests of semantic textual similarity, in the forms in which they are published.

- The project's own: `test.SUBSET.tsv` for each part, or `test.tsv`; `train.tsv`, and `dev.tsv` or
  `trial.tsv`; each with a header that names `score`, `sentence1` and `sentence2`. `test.all.tsv`
  beside parts is all of them again, and is only compared with them.
- SemEval's, as published and as SentEval keeps it: `STS.input.SUBSET.txt` (or `STS2016.input...`),
  two sentences a line, and `STS.gs.SUBSET.txt`, a score a line, blank for a pair that was not
  judged, which is left out.
- The STS benchmark's `sts-train.csv`, `sts-dev.csv` and `sts-test.csv`: no header, tabs, and the
  columns genre, file, year, id, score, sentence1, sentence2.
- SICK's `SICK_train.txt`, `SICK_trial.txt` and `SICK_test_annotated.txt`.

Files may be gzipped. Quotes are ordinary characters in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from eval.datasets.files import existing, matching
from eval.datasets.records import first_cells, table
from eval.datasets.sentences import semeval
from eval.datasets.sentences.pairs import ScoredPairs, read_pairs, scored_pairs
from eval.datasets.sentences.tasks import PairSubset, STSTask
from retriever.errors import SourceError

SICK_HEADER = (
    "pair_ID",
    "sentence_A",
    "sentence_B",
    "relatedness_score",
    "entailment_judgment",
)
SICK_FILES = {
    "train": "SICK_train.txt",
    "dev": "SICK_trial.txt",
    "test": "SICK_test_annotated.txt",
}
"""Split to its file, of both tasks."""
_BENCHMARK = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
_TESTS = (
    "test.tsv",
    "test.SUBSET.tsv",
    "STS.input.SUBSET.txt",
    "sts-test.csv",
    "SICK_test_annotated.txt",
)
_ADD = "check the path, or add the test"
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


def read_sts(path: Path) -> STSTask:
    """Read a test of similarity, whose form is recognized.

    Args:
        path: its folder, or the folder around it that a published archive makes; or one file of
            pairs, which then is a test of one part.

    Raises:
        SourceError: there is no such path, its form is unknown, its test is missing, a file is
            malformed, two files that belong together differ in length, or `test.all.tsv` does not
            have the pairs of the parts; names file and, if known, line.
    """
    if path.is_file():
        part = semeval.INPUT.fullmatch(path.name)
        name = part["part"] if part else path.name.removesuffix(".gz").rsplit(".", 1)[0]
        return STSTask(name, (PairSubset(name, _pairs_of_file(path)),))
    if not path.is_dir():
        raise SourceError(f"{path}: no such file or folder")
    for read in (_semeval, _benchmark, _sick, _own):
        task = read(path)
        if task is not None:
            return task
    below = sorted(one for one in path.iterdir() if one.is_dir())
    nested = [one for one in below if semeval.inputs(one)]
    if len(nested) == 1:
        return STSTask(_name(path, nested[0]), semeval.read(nested[0]))
    raise SourceError(
        f"{path}: expected the test files of a similarity data set "
        f"({', '.join(_TESTS)}), found none of them; "
        + (f"name one of its folders: {', '.join(one.name for one in below)}" if below else _ADD)
    )


def _pairs_of_file(path: Path) -> ScoredPairs:
    if semeval.INPUT.fullmatch(path.name):
        return semeval.read_pairs(path)
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
    return STSTask(_name(folder), semeval.read(folder)) if semeval.inputs(folder) else None


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
    all_of_them = files.pop("all") if len(files) > 1 and "all" in files else None
    subsets = tuple(PairSubset(name, read_pairs([file])) for name, file in sorted(files.items()))
    if all_of_them is not None:
        _check_all(all_of_them, subsets)
    train = existing(folder / "train.tsv")
    dev = existing(folder / "dev.tsv") or existing(folder / "trial.tsv")
    return STSTask(
        _name(folder),
        subsets,
        None if train is None else read_pairs([train]),
        None if dev is None else read_pairs([dev]),
    )


def _check_all(path: Path, subsets: tuple[PairSubset, ...]) -> None:
    whole, parts = len(read_pairs([path])), sum(len(subset.pairs) for subset in subsets)
    if whole != parts:
        raise SourceError(
            f"{path}: expected the {parts} pairs of the parts beside it "
            f"({', '.join(subset.name for subset in subsets)}), found {whole}; add the part "
            "that is missing or remove this file"
        )


def _benchmark(folder: Path) -> STSTask | None:
    names = {split: f"sts-{split}.csv" for split in ("train", "dev", "test")}
    return _splits(folder, names, _benchmark_pairs)


def _benchmark_pairs(path: Path) -> ScoredPairs:
    rows = first_cells(path, _BENCHMARK)
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
