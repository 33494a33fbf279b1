"""The tasks that the readers of sentence data sets return: scored pairs in parts, labeled texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.datasets.records import SHOWN
from eval.datasets.sentences.pairs import ScoredPairs, joined_pairs
from retriever.errors import SourceError

Row = tuple[str, str, str, str | None]
"""`file:line`, label, text, and the second text of a pair or None."""


@dataclass(frozen=True, slots=True, eq=False)
class PairSubset:
    """One part of an STS test.

    Attributes:
        name: as published, such as "MSRpar"; "test" if the test has no parts.
        pairs: at least one.
    """

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

    def everything(self) -> ScoredPairs:
        """The pairs of all splits: train, dev, then each part of the test."""
        splits = [part for part in (self.train, self.dev) if part is not None]
        return joined_pairs([*splits, *(subset.pairs for subset in self.subsets)])


@dataclass(frozen=True, slots=True, eq=False)
class LabeledTexts:
    """Texts, or pairs of texts, and their labels, in the order of their file.

    Attributes:
        labels: one for each text, not blank, as in the file.
        left: the texts, not blank; the first ones of pairs.
        right: the second texts of pairs; None for single texts.
    """

    labels: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationTask:
    """A classification task.

    Attributes:
        name: such as "mr" or "sentlen".
        splits: split to its texts, none of them empty: {"all"} for a task that is cross-validated,
            {"train", "test"}, or {"train", "dev", "test"}, in this order.
    """

    name: str
    splits: Mapping[str, LabeledTexts]


def labeled_texts(
    path: Path, rows: Iterable[Row], labels: frozenset[str] | None = None
) -> LabeledTexts:
    """The texts of a file, without space around them.

    Args:
        path: the file.
        rows: its lines, either all of pairs or none.
        labels: the known ones; None if any text that is not blank is a label.

    Raises:
        SourceError: there is no row, a label is blank or unknown, or a text is blank; names file
            and line.
    """
    kept = [(label.strip(), left, right) for _, label, left, right in _checked(rows, labels)]
    if not kept:
        raise SourceError(f"{path}: expected labels and texts, found none; check the file")
    names, lefts, rights = zip(*kept, strict=True)
    seconds = tuple(right for right in rights if right is not None)
    return LabeledTexts(names, lefts, seconds or None)


def _checked(rows: Iterable[Row], labels: frozenset[str] | None) -> Iterator[Row]:
    for where, label, left, right in rows:
        if not label.strip() or (labels is not None and label.strip() not in labels):
            form = f"the label {' or '.join(sorted(labels))}" if labels else "a label"
            raise SourceError(
                f"{where}: expected {form}, found {label.strip()[:SHOWN] or 'nothing'!r}; correct "
                "or remove the line"
            )
        if not left.strip() or (right is not None and not right.strip()):
            raise SourceError(
                f"{where}: expected a text after the label {label.strip()}, found none; correct or "
                "remove the line"
            )
        yield where, label, left.strip(), None if right is None else right.strip()
