"""Classification of sentences and of pairs, in the project's own form and in SentEval's.

The files of MR, CR, SUBJ, MPQA and TREC may be Latin-1. Blank lines are left out; CR and MPQA have
seven, which SentEval counts as samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eval.datasets.files import (
    AGAIN,
    QUOTED_LENGTH,
    fault,
    find_file,
    list_names,
    matching_files,
    numbered_lines,
    quoted,
    require_file,
    table,
)
from eval.datasets.pairs import SICK_FILES, SICK_HEADER
from retriever.documents import base_name
from retriever.errors import SourceError

_ALL = ("all",)
_TWO = ("train", "test")
_THREE = ("train", "dev", "test")

# The file of the class that SentEval labels 1, and the file of the other class.
_BY_CLASS = {
    "mr": ("rt-polarity.pos", "rt-polarity.neg"),
    "cr": ("custrev.pos", "custrev.neg"),
    "mpqa": ("mpqa.pos", "mpqa.neg"),
    "subj": ("subj.objective", "subj.subjective"),
}
_SST = {split: f"sentiment-{split}" for split in _THREE}
_OWN_HEADER = ("split", "label", "text")
_PAIR_HEADER = ("label", "sentence1", "sentence2")

PROBING_FILES = {
    "sentlen": "sentence_length.txt",
    "wc": "word_content.txt",
    "treedepth": "tree_depth.txt",
    "topconst": "top_constituents.txt",
    "bshift": "bigram_shift.txt",
    "tense": "past_present.txt",
    "subjnum": "subj_number.txt",
    "objnum": "obj_number.txt",
    "somo": "odd_man_out.txt",
    "coordinv": "coordination_inversion.txt",
}
"""Probing task, as Conneau et al. (2018) abbreviate it, to its file name."""
_PROBING_SPLITS = {"tr": "train", "va": "dev", "te": "test"}

Row = tuple[str, str, str, str | None]
"""`file:line`, label, text, and the second text of a pair or None."""


@dataclass(frozen=True, slots=True, eq=False)
class LabeledTexts:
    """Texts that are not blank, or pairs (`right` is not None), and their labels, in order."""

    labels: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationTask:
    """A classification task.

    Attributes:
        name: name of the task, such as "mr" or "sentlen".
        splits: split to its texts, none of them empty: {"all"} for a task that is cross-validated,
            {"train", "test"}, or {"train", "dev", "test"}, in this order.
    """

    name: str
    splits: Mapping[str, LabeledTexts]


def read_classification(path: Path) -> ClassificationTask:
    """Read a task of classification, whose form is recognized.

    Its splits are {"all"}, {"train", "test"} or {"train", "dev", "test"}. Labels are those of the
    files. MR, CR, MPQA and SUBJ have "1" (positive, objective) and "0", as in SentEval. The path is
    a folder, or a file with the columns split, label and text.

    Raises:
        SourceError: its form is unknown, or a split is missing, or a file is malformed.
    """
    if path.is_file():
        return _read_own_file(path, base_name(path.name).removesuffix(".tsv"))
    if not path.is_dir():
        raise SourceError(f"{path}: no such file or folder")
    for name, pair in _BY_CLASS.items():
        if find_file(*(path / file for file in pair)):
            return ClassificationTask(name, {"all": _read_classes(path, pair)})
    for form in (_sst_form(path), *_FORMS):
        splits_found = [split for split, file in form.files.items() if find_file(path / file)]
        if splits_found:
            files = {
                split: require_file(path / file, split, splits_found)
                for split, file in form.files.items()
            }
            splits = {
                split: _labeled_texts(file, form.rows(file), form.labels)
                for split, file in files.items()
            }
            return ClassificationTask(form.name, splits)
    return _read_own(path)


@dataclass(frozen=True, slots=True)
class _Form:
    """A folder of SentEval with one file per split and known labels."""

    name: str
    files: Mapping[str, str]
    labels: tuple[str, ...]
    rows: Callable[[Path], Iterator[Row]]


def _read_classes(folder: Path, files: tuple[str, str]) -> LabeledTexts:
    paths = [require_file(folder / file, "all") for file in files]
    rows = [
        (where, label, line, None)
        for label, path in zip("10", paths, strict=True)
        for where, line in numbered_lines(path, latin1=True)
    ]
    return _labeled_texts(paths[0], rows)


def _sst_form(folder: Path) -> _Form:
    """Return the form of SST: two classes with the label after a tab, or five with it before."""
    file = find_file(*(folder / file for file in _SST.values()))
    line = "" if file is None else next((line for _, line in numbered_lines(file)), "")
    return _SST_BINARY if "\t" in line else _SST_FINE


def _read_lines(path: Path, pattern: str, form: str, *, latin1: bool = False) -> Iterator[Row]:
    for where, line in numbered_lines(path, latin1=latin1):
        match = re.fullmatch(pattern, line)
        if match is None:
            raise fault(where, form, quoted(line))
        yield where, match["label"], match["text"], None


def _read_columns(
    path: Path, header: tuple[str, ...], label: int = 0, left: int = 1, right: int = 2
) -> Iterator[Row]:
    for where, cells in table(path, header):
        yield where, cells[label], cells[left], cells[right]


_SST_BINARY = _Form(
    "sst2",
    _SST,
    ("0", "1"),
    partial(_read_lines, pattern=r"(?P<text>.*)\t(?P<label>.*)", form="a text, a tab and 0 or 1"),
)
_SST_FINE = _Form(
    "sst5",
    _SST,
    ("0", "1", "2", "3", "4"),
    partial(_read_lines, pattern=r"\s*(?P<label>\S*)(?P<text>.*)", form="a label and a text"),
)
_FORMS = (
    _Form(
        "trec",
        {"train": "train_5500.label", "test": "TREC_10.label"},
        ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
        partial(
            _read_lines,
            pattern=r"\s*(?P<label>[^:\s]*):\S*(?P<text>.*)",
            form="a question after its class, such as DESC:manner",
            latin1=True,
        ),
    ),
    _Form(
        "mrpc",
        {split: f"msr_paraphrase_{split}.txt" for split in _TWO},
        ("0", "1"),
        partial(
            _read_columns,
            header=("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            left=3,
            right=4,
        ),
    ),
    _Form(
        "sick-e",
        SICK_FILES,
        ("CONTRADICTION", "ENTAILMENT", "NEUTRAL"),
        partial(_read_columns, header=SICK_HEADER, label=4),
    ),
)


def _read_own(folder: Path) -> ClassificationTask:
    name = folder.resolve().name.lower()
    for prefix in ("entailment.", ""):
        names = {"train": ("train",), "dev": ("dev", "trial"), "test": ("test",)}
        files = {
            split: find_file(*(folder / f"{prefix}{stem}.tsv" for stem in stems))
            for split, stems in names.items()
        }
        splits = {
            split: _labeled_texts(file, _read_columns(file, _PAIR_HEADER))
            for split, file in files.items()
            if file is not None
        }
        if splits:
            return _check_splits(
                folder, ClassificationTask(f"{name}-e" if prefix else name, splits)
            )
    tables = matching_files(folder, "*.tsv")
    if len(tables) != 1:
        expected = "the files of a classification task, or one .tsv"
        raise fault(folder, expected, list_names(folder), "name a file or another folder")
    return _read_own_file(tables[0], name)


def _read_own_file(path: Path, name: str) -> ClassificationTask:
    rows: dict[str, list[Row]] = {split: [] for split in (*_ALL, *_THREE)}
    for where, (split, label, text) in table(path, _OWN_HEADER):
        if split not in rows:
            raise fault(where, f"the split {', '.join(rows)}", quoted(split))
        rows[split].append((where, label, text, None))
    splits = {
        split: _labeled_texts(path, split_rows) for split, split_rows in rows.items() if split_rows
    }
    return _check_splits(path, ClassificationTask(name, splits))


def _check_splits(path: Path, task: ClassificationTask) -> ClassificationTask:
    """Return the task; refuse splits that no protocol uses."""
    splits = tuple(task.splits)
    if splits not in (_ALL, _TWO, _THREE):
        expected = "the splits train and test, or train, dev and test, or all alone"
        raise fault(path, expected, ", ".join(splits) or "none", "add what is missing")
    return task


def read_probing(path: Path) -> ClassificationTask:
    """Read a probing file, which may be gzipped, in the order of its lines.

    A line has `tr`, `va` or `te`, the label, and the sentence last, separated by tabs. The task is
    named as in `PROBING_FILES`, or like the file.

    Raises:
        SourceError: it is not a file, a line is malformed, or a split has no sentence.
    """
    if path.is_dir():
        raise fault(path, "the file of a probing task", "a folder", "name one of its files")
    rows: dict[str, list[Row]] = {split: [] for split in _PROBING_SPLITS}
    for where, line in numbered_lines(path):
        cells = line.split("\t")
        if len(cells) < 3 or cells[0] not in rows:
            form = f"{' or '.join(rows)}, a label and a sentence, separated by tabs"
            raise fault(where, form, quoted(line))
        rows[cells[0]].append((where, cells[1], cells[-1], None))
    lacking = [split for split, split_rows in rows.items() if not split_rows]
    if lacking:
        raise fault(path, f"lines of the splits {', '.join(rows)}", f"none of {lacking[0]}", AGAIN)
    stem = base_name(path.name).removesuffix(".txt")
    names = {file.removesuffix(".txt"): task for task, file in PROBING_FILES.items()}
    return ClassificationTask(
        names.get(stem, stem),
        {
            _PROBING_SPLITS[short]: _labeled_texts(path, split_rows)
            for short, split_rows in rows.items()
        },
    )


def _labeled_texts(path: Path, rows: Iterable[Row], labels: tuple[str, ...] = ()) -> LabeledTexts:
    """Return the stripped texts of a file; all rows are pairs, or none is."""
    names: list[str] = []
    lefts: list[str] = []
    rights: list[str] = []
    remedy = "correct or remove the line"
    for where, cell, left, right in rows:
        label = cell.strip()
        if not label or (labels and label not in labels):
            form = f"the label {' or '.join(labels)}" if labels else "a label"
            raise fault(where, form, repr(label[:QUOTED_LENGTH] or "nothing"), remedy)
        if not left.strip() or (right is not None and not right.strip()):
            raise fault(where, f"a text after the label {label}", "none", remedy)
        names.append(label)
        lefts.append(left.strip())
        if right is not None:
            rights.append(right.strip())
    if not names:
        raise fault(path, "labels and texts", "none", "check the file")
    return LabeledTexts(tuple(names), tuple(lefts), tuple(rights) or None)
