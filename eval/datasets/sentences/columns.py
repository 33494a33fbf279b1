"""Cells of a line, and what the readers of sentence data sets check in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from eval.datasets.records import SHOWN
from eval.datasets.sentences.tasks import LabelledTexts
from eval.lines import numbered_lines
from retriever.errors import SourceError

Row = tuple[str, str, str, str | None]
"""`file:line`, label, text, and the second text of a pair."""


def first_cells(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """`file:line` and as many cells of each line as there are `names`, without space around them.

    Tabs separate cells; quotes mean nothing. Cells after these, such as the sources of sentences,
    are left out.

    Raises:
        SourceError: a line has fewer; names file and line.
    """
    for where, line in numbered_lines(path):
        yield where, cells_of(where, line, names)


def cells_of(where: str, line: str, names: tuple[str, ...]) -> list[str]:
    """The first cells of one line, as `first_cells` gives them.

    Raises:
        SourceError: it has fewer.
    """
    cells = line.split("\t")
    if len(cells) < len(names):
        raise SourceError(
            f"{where}: expected {len(names)} cells separated by tabs ({', '.join(names)}), found "
            f"{len(cells)} in {line[:SHOWN]!r}; correct the line"
        )
    return [cell.strip() for cell in cells[: len(names)]]


def labelled_texts(
    path: Path, rows: Iterable[Row], labels: frozenset[str] | None = None
) -> LabelledTexts:
    """The texts of a file, without space around them.

    Args:
        path: the file.
        rows: its lines; either all are of pairs or none is.
        labels: the known ones; None where any text that is not blank is a label.

    Raises:
        SourceError: there is no row, a label is blank or not known, or a text is blank; names file
            and line.
    """
    kept = [(label.strip(), left, right) for _, label, left, right in _checked(rows, labels)]
    if not kept:
        raise SourceError(f"{path}: expected labels and texts, found none; check the file")
    names, lefts, rights = zip(*kept, strict=True)
    seconds = tuple(right for right in rights if right is not None)
    return LabelledTexts(names, lefts, seconds or None)


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
