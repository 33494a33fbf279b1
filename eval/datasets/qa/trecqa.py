"""TrecQA (Wang et al. 2007), in the files of Yao et al. (2013).

They look like XML but are none: `<QApairs id='32.1'>` holds a `<question>` and any number of
`<positive>` and `<negative>`, each with a tag on its own line, the words on the next, separated by
tabs, and further lines of annotation. Words such as `<num>` and `&` stand as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eval.datasets.files import existing, numbered_lines, required
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import SHOWN, pool_of, put_new
from retriever.errors import SourceError

FILES = {
    "train": ("train-less-than-40.manual-edit.xml", "TRAIN.xml"),
    "train-all": ("train2393.cleanup.xml", "TRAIN-ALL.xml"),
    "dev": ("dev-less-than-40.manual-edit.xml", "DEV.xml"),
    "test": ("test-less-than-40.manual-edit.xml", "TEST.xml"),
}
_OPEN = re.compile(r"<QApairs id='([^']*)'>")
_BLOCKS = {"<question>": -1, "<positive>": 1, "<negative>": 0}


@dataclass(slots=True)
class _Pairs:
    """A question and its sentences, with their labels, in the order of the file."""

    id: str
    question: str | None = None
    sentences: list[tuple[str, int]] = field(default_factory=list)


def splits(folder: Path) -> tuple[str, ...]:
    """Those that have a file."""
    return tuple(split for split in FILES if _file(folder, split))


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read one split: train, train-all, dev or test.

    The variant clean has only questions with both relevant and other sentences (Rao et al. 2016);
    raw, the default, has all questions. A question without sentences is left out. The id of a
    sentence is "split-question-n", n from 0 in the order of the file; `passages` are the sentences
    of all splits that are there.

    Raises:
        SourceError: a file is missing or malformed; names file and line.
    """
    questions = []
    passages: dict[str, str] = {}
    found = splits(folder)
    if split not in found:
        required(folder / FILES[split][0], split, found)
    for one in found:
        path = _file(folder, one)
        assert path is not None
        for pairs in _pairs(path):
            ids = [f"{one}-{pairs.id}-{number}" for number in range(len(pairs.sentences))]
            grades = {}
            for id_, (text, label) in zip(ids, pairs.sentences, strict=True):
                passages[id_] = text
                grades[id_] = label
            both = len(set(grades.values())) == 2
            if one == split and grades and (both or variant != "clean"):
                questions.append(Question(pairs.id, pairs.question or "", pool_of(ids), grades))
    return QuestionSet(f"TrecQA {variant or 'raw'}", split, tuple(questions), passages)


def _file(folder: Path, split: str) -> Path | None:
    return next(filter(None, (existing(folder / name) for name in FILES[split])), None)


def _pairs(path: Path) -> Iterator[_Pairs]:
    lines = numbered_lines(path)
    seen: dict[str, str] = {}
    where = str(path)
    for where, line in lines:
        match = _OPEN.fullmatch(line.strip())
        if match is None:
            raise _wrong(where, "<QApairs id='...'>", line)
        put_new(seen, where, match[1], "question")
        yield _one(where, match[1], lines)
    if not seen:
        raise SourceError(
            f"{where}: expected <QApairs id='...'>, found an empty file; download it again"
        )


def _one(where: str, id_: str, lines: Iterator[tuple[str, str]]) -> _Pairs:
    """What follows the tag that opens a question, up to the one that closes it."""
    pairs = _Pairs(id_)
    expected = "</QApairs>, <question>, <positive> or <negative>"
    for place, line in lines:
        tag = line.strip()
        if tag == "</QApairs>":
            if pairs.question is None:
                raise _wrong(place, f"a <question> for {id_}", line)
            return pairs
        if tag not in _BLOCKS or (tag == "<question>" and pairs.question is not None):
            raise _wrong(place, expected, line)
        words = _words(place, tag, lines)
        if tag == "<question>":
            pairs.question = words
        else:
            pairs.sentences.append((words, _BLOCKS[tag]))
    raise SourceError(
        f"{where}: expected </QApairs> for this question, found the end of the file; download it "
        "again"
    )


def _words(where: str, tag: str, lines: Iterator[tuple[str, str]]) -> str:
    """The first line of a block, whose other lines are passed over."""
    words = None
    closing = f"</{tag[1:]}"
    for place, line in lines:
        if line.strip() == closing:
            if words is None:
                raise _wrong(place, f"words after {tag}", line)
            return words
        if line.startswith("</QApairs"):
            raise _wrong(place, closing, line)
        if words is None:
            words = " ".join(line.split())
    raise SourceError(
        f"{where}: expected {closing} for this block, found the end of the file; download it again"
    )


def _wrong(where: str, expected: str, line: str) -> SourceError:
    return SourceError(
        f"{where}: expected {expected}, found {line.strip()[:SHOWN]!r}; correct the line"
    )
