"""SemEval's tests of similarity, 2012 to 2017: sentences in one file, scores in another."""

from __future__ import annotations

import re
from pathlib import Path

from eval.datasets.files import existing, matching, numbered_lines
from eval.datasets.records import cells_of
from eval.datasets.sentences.pairs import ScoredPairs, finite_score, scored_pairs
from eval.datasets.sentences.tasks import PairSubset
from retriever.errors import SourceError

INPUT = re.compile(r"STS(?:20\d\d)?\.input\.(?P<part>.+?)\.txt(?:\.gz)?")
"""The name of a file of sentences."""
_GOLD = re.compile(r"STS(?:20\d\d)?\.gs\.(?P<part>.+?)\.txt(?:\.gz)?")
# Scores that are published without their sentences: all parts of 2012 once more, and the part of
# 2013 that the Linguistic Data Consortium licenses.
_ALL = "ALL"
_GOLD_ALONE = frozenset({_ALL, "SMT"})


def inputs(folder: Path) -> dict[str, Path]:
    """Part to the file of its sentences, in the order of the parts' names."""
    return _by_part(folder, "input", INPUT)


def read(folder: Path) -> tuple[PairSubset, ...]:
    """The parts of a test, in the order of their names, without one that repeats all of them.

    Raises:
        SourceError: sentences are there without scores or scores without sentences, or as
            `read_pairs`.
    """
    files = inputs(folder)
    for part, path in _by_part(folder, "gs", _GOLD).items():
        if part not in files and part not in _GOLD_ALONE:
            raise SourceError(
                f"{path}: expected the sentences of these scores beside them in "
                f"{path.name.replace('.gs.', '.input.', 1)}, found none; download the test again"
            )
    if len(files) > 1:
        files.pop(_ALL, None)
    return tuple(PairSubset(part, read_pairs(path)) for part, path in files.items())


def read_pairs(path: Path) -> ScoredPairs:
    """The judged pairs of one file of sentences, whose scores stand in the file beside it.

    A line has two sentences and, in some years, where they come from. A blank score is of a pair
    that was not judged, which is left out.

    Raises:
        SourceError: there are no scores, or not a line for each pair, or a line is malformed; names
            file and line.
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
            for left, right in [cells_of(where, line, ("sentence1", "sentence2"))]
        ),
    )


def _by_part(folder: Path, kind: str, pattern: re.Pattern[str]) -> dict[str, Path]:
    names = [
        (pattern.fullmatch(path.name), path) for path in matching(folder, f"STS*.{kind}.*.txt")
    ]
    return dict(sorted((match["part"], path) for match, path in names if match))
