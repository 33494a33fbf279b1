"""SentEval's probing files: `tr`, `va` or `te`, a label and a sentence a line, without a header."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eval.datasets.records import SHOWN
from eval.datasets.sentences.columns import Row, labelled_texts
from eval.datasets.sentences.tasks import ClassificationTask
from eval.lines import numbered_lines
from retriever.errors import SourceError
from retriever.corpus.sources import base_name

FILES = {
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
"""Task, as Conneau et al. (2018) abbreviate it, to the name of its file."""
SPLITS = {"tr": "train", "va": "dev", "te": "test"}
"""What the first cell of a line says, to the split."""
_NAMES = {file.removesuffix(".txt"): name for name, file in FILES.items()}


def read_probing(path: Path) -> ClassificationTask:
    """Read a probing file, which may be gzipped.

    A line has three cells or more, separated by tabs: the second is the label, the last the
    sentence. The task is called as in `FILES`, or as the file without its ending. Within a split
    the order is that of the file.

    Raises:
        SourceError: it is no file, a line is malformed, or a split has no sentence; names file and,
            if known, line.
    """
    if path.is_dir():
        known = [name for name in FILES.values() if (path / name).is_file()]
        found = f"; name one of its files: {', '.join(known)}" if known else "; name a file"
        raise SourceError(f"{path}: expected a file of a probing task, found a folder{found}")
    rows: dict[str, list[Row]] = {split: [] for split in SPLITS.values()}
    for split, row in _rows(path):
        rows[split].append(row)
    for short, split in SPLITS.items():
        if not rows[split]:
            raise SourceError(
                f"{path}: expected lines of the splits {', '.join(SPLITS)}, found none of "
                f"{short} ({split}); download or make the file again"
            )
    stem = base_name(path.name).removesuffix(".txt")
    return ClassificationTask(
        _NAMES.get(stem, stem),
        {split: labelled_texts(path, of_split) for split, of_split in rows.items()},
    )


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    for where, line in numbered_lines(path):
        cells = line.split("\t")
        if len(cells) < 3 or cells[0] not in SPLITS:
            raise SourceError(
                f"{where}: expected {' or '.join(SPLITS)}, a label and a sentence, separated by "
                f"tabs, found {line[:SHOWN]!r}; correct the line"
            )
        yield SPLITS[cells[0]], (where, cells[1], cells[-1], None)
