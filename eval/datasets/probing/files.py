"""SentEval's probing files: `tr`, `va` or `te`, label and sentence on each line; no header."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.datasets.files import numbered_lines
from eval.datasets.probing.makers import MAKERS, WORDS, Maker, ProbingSet, WordMaker, make_sets
from eval.datasets.records import SHOWN
from eval.datasets.sentences.tasks import ClassificationTask, Row, labeled_texts
from retriever.corpus.sources import base_name
from retriever.errors import ConfigError, SourceError, StorageError
from retriever.files import whole_files

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
"""Task, as Conneau et al. (2018) abbreviate it, to its file name."""
SPLITS = {"tr": "train", "va": "dev", "te": "test"}
"""First cell of a line to the split."""
_NAMES = {file.removesuffix(".txt"): name for name, file in FILES.items()}


def read_probing(path: Path) -> ClassificationTask:
    """Read a probing file, which may be gzipped.

    A line has three or more cells, separated by tabs: the second is the label, the last one the
    sentence. The task is named as in `FILES`, or like the file without its ending. Within a split
    the order is that of the file.

    Raises:
        SourceError: it is not a file, a line is malformed, or a split has no sentence; names file
            and, if known, line.
    """
    if path.is_dir():
        known = [name for name in FILES.values() if (path / name).is_file()]
        found = f"; name one of its files: {', '.join(known)}" if known else "; name a file"
        raise SourceError(f"{path}: expected the file of a probing task, found a folder{found}")
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
        {split: labeled_texts(path, of_split) for split, of_split in rows.items()},
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


def check_folder(folder: Path, tasks: Iterable[str]) -> None:
    """Refuse a folder that the files of these tasks cannot be written to.

    Raises:
        ConfigError: it is a file, its parent does not exist, or it has one of the files.
    """
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"{folder}: expected its parent folder to exist; make the parent or change --output"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder, found a file; change --output")
    for task in tasks:
        if (folder / FILES[task]).exists():
            raise ConfigError(
                f"{folder}: expected a folder without {FILES[task]}, found one, which may be "
                "SentEval's own; remove it or change --output"
            )


def write_sets(folder: Path, sets: Sequence[ProbingSet]) -> list[Path]:
    """Write each set to a file in the folder, which is created if there is none.

    The files get their names when all of them are written.

    Returns:
        The files, in the order of `sets`.

    Raises:
        StorageError: the disk is full or cannot be written.
    """
    files = [folder / FILES[made.task] for made in sets]
    try:
        folder.mkdir(exist_ok=True)
        with whole_files(*files) as new:
            for path, made in zip(new, sets, strict=True):
                with path.open("w", encoding="utf-8", newline="") as file:
                    file.writelines(
                        f"{split}\t{one.label}\t{one.text}\n"
                        for split, instances in made.splits.items()
                        for one in instances
                    )
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot write the probing sets ({error.strerror}); choose a writable folder"
        ) from error
    return files


@dataclass(frozen=True, slots=True)
class ProbingSettings:
    """Which probing sets are made, and how.

    Attributes:
        tasks: some of "sentlen", "wc" and "bshift".
        words: number of words of wc.
        seed: of everything that is drawn.

    Raises:
        ConfigError: a task is unknown.
    """

    tasks: tuple[str, ...] = tuple(MAKERS)
    words: int = WORDS
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = set(self.tasks) - set(MAKERS)
        if unknown or not self.tasks:
            found = ", ".join(sorted(unknown)) or "none"
            raise ConfigError(f"task: expected {', '.join(MAKERS)}, found {found}")

    def makers(self) -> list[Maker]:
        """One for each task, not used before."""
        return [WordMaker(self.words) if one == "wc" else MAKERS[one]() for one in self.tasks]

    @property
    def passes(self) -> int:
        """Number of times that the corpus is read."""
        return max(maker.passes for maker in self.makers())


@dataclass(frozen=True, slots=True, eq=False)
class ProbingFiles:
    """Probing sets that were made and written.

    Attributes:
        settings: how they were made.
        texts: number of texts of the corpus.
        sentences: number of texts with 5 to 28 tokens.
        sets: in the order of the tasks.
        files: one for each set.
    """

    settings: ProbingSettings
    texts: int
    sentences: int
    sets: tuple[ProbingSet, ...]
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            "seed": self.settings.seed,
            "texts": self.texts,
            "sentences": self.sentences,
            "sets": [
                {
                    "task": made.task,
                    "file": str(file),
                    "labels": made.labels,
                    **{split: len(instances) for split, instances in made.splits.items()},
                    **made.facts,
                }
                for made, file in zip(self.sets, self.files, strict=True)
            ],
        }

    def text(self) -> str:
        """A line for the corpus and one for each set."""
        lines = [
            f"{self.sentences:,} of {self.texts:,} texts have 5 to 28 tokens "
            f"(seed {self.settings.seed})"
        ]
        for made, file in zip(self.sets, self.files, strict=True):
            sizes = {split: len(instances) for split, instances in made.splits.items()}
            lines.append(
                f"{file}: {made.task}, {made.labels:,} labels; {sizes['tr']:,} training sentences, "
                f"{sizes['va']:,} dev, {sizes['te']:,} test{_noted(made)}"
            )
        return "\n".join(lines)


def make_probing(
    texts: Callable[[], Iterable[str]], folder: Path, settings: ProbingSettings | None = None
) -> ProbingFiles:
    """Make probing sets from a corpus of sentences, and write them in the form of SentEval's files.

    Args:
        texts: returns all texts; called once for each pass, see `ProbingSettings.passes`.
        folder: where they are written; created if there is none. Existing files are not replaced.
        settings: None makes all sets with their defaults.

    Raises:
        ConfigError: see `check_folder`.
        SourceError: the corpus is too small for one of the sets.
        StorageError: the folder cannot be written.
    """
    settings = settings or ProbingSettings()
    check_folder(folder, settings.tasks)
    sets, read, used = make_sets(texts, settings.makers(), seed=settings.seed)
    files = write_sets(folder, sets)
    return ProbingFiles(settings, read, used, tuple(sets), tuple(files))


def _noted(made: ProbingSet) -> str:
    facts: dict[str, Any] = dict(made.facts)
    if "ranks" in facts:
        first, last = facts["ranks"]
        return f"; {facts['words']:,} words with ranks from {first:,} to {last:,}"
    if facts.get("dropped"):
        return f"; {facts['dropped']:,} swaps that make another sentence were dropped"
    return ""
