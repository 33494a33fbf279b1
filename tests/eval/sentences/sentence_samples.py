"""Small sets of sentences in files, and a result to report."""

from __future__ import annotations

import numpy as np

from eval.metrics.comparison import Difference, Score
from eval.sentences.result import EncoderScore, LayerGrid, SentenceResult, SetScores

ODD = 'a_b%c&d#e$f{g}\\h~i^j<k>|l"m`n--o'


def sentence(random, words=200):
    count = int(random.integers(2, 9))
    return " ".join(f"w{word}" for word in random.integers(0, words, count))


def write_pairs(path, count, seed):
    random = np.random.default_rng(seed)
    lines = ["score\tsentence1\tsentence2"]
    for _ in range(count):
        one, alike = sentence(random), int(random.integers(0, 6))
        words = [word if random.random() < alike / 5 else "w1" for word in one.split()]
        lines.append(f"{alike}\t{one}\t{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_sts(folder, parts=("a", "b"), size=30):
    """A test with parts of unequal size, and what the supervised protocol needs."""
    folder.mkdir()
    for seed, part in enumerate(parts):
        write_pairs(folder / f"test.{part}.tsv", size + 9 * seed, seed)
    write_pairs(folder / "train.tsv", 60, 8)
    write_pairs(folder / "dev.tsv", 30, 9)
    return folder


def write_task(path, splits, classes=2, seed=0):
    """One file of texts whose words, some of them, tell the class."""
    random = np.random.default_rng(seed)
    lines = ["split\tlabel\ttext"]
    for split, count in splits.items():
        for number in range(count):
            label = number % classes
            hint = f"w{label}" if random.random() < 0.6 else "w9"
            lines.append(f"{split}\t{label}\t{sentence(random)} {hint}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_probe(path, sizes=None, seed=0):
    random = np.random.default_rng(seed)
    lines = []
    for split, count in (sizes or {"tr": 60, "va": 30, "te": 30}).items():
        for number in range(count):
            label = "ab"[number % 2]
            lines.append(f"{split}\t{label}\t{sentence(random)} w{number % 2} w{number % 2}")
    path.write_text("\n".join(lines) + "\n")
    return path


def result(encoders=("plain::last", ODD), sets=("one", ODD), grid=True):
    """A result with made-up numbers."""
    random = np.random.default_rng(0)

    def value(place):
        middle = float(random.uniform(0.3, 0.9))
        against = Difference(-0.1, -0.2, 0.05, 0.01, 0.02) if place else None
        return Score(middle, 0.01, middle - 0.05, middle + 0.05, against)

    def score(place, encoder):
        return EncoderScore(
            encoder=encoder,
            cut=place,
            values={"accuracy": value(place)},
            extra={"F1": 0.5},
            note="a note" if place else "",
            details={"unseen": 0},
            examples=random.random(3),
        )

    made = tuple(
        SetScores(
            name=name,
            facts={"classes": "2"},
            texts=3,
            examples={"label": ["0", "1", "0"], "text": ['a "b"', "c,d", "é\nf"]},
            scores=tuple(score(place, encoder) for place, encoder in enumerate(encoders)),
        )
        for name in sets
    )
    grids = ()
    if grid:
        values = random.random((3, 2))
        grids = (LayerGrid(ODD, "plain", "accuracy", ("mean", "cls"), values, values / 10, 1, 3),)
    return SentenceResult(
        kind="transfer",
        title=f"Transfer: {ODD}",
        settings={"protocol": "senteval"},
        remarks=(f"of {ODD}",),
        measures=("accuracy",),
        sets=made,
        grids=grids,
        baseline=encoders[0],
        command=f"retriever eval transfer '{ODD}\n'",
    )
