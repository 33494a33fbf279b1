"""Small sets of sentences in files."""

import numpy as np

ODD = 'a_b%c&d#e$f{g}\\h~i^j<k>|l"m`n--o'


def sentence(random, words=200):
    count = int(random.integers(2, 9))
    return " ".join(f"w{word}" for word in random.integers(0, words, count))


def write_pairs(path, count, seed):
    random = np.random.default_rng(seed)
    lines = ["score\tsentence1\tsentence2"]
    for _ in range(count):
        left, alike = sentence(random), int(random.integers(0, 6))
        words = [word if random.random() < alike / 5 else "w1" for word in left.split()]
        lines.append(f"{alike}\t{left}\t{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_sts(folder, parts=("a", "b"), size=30):
    """Write a similarity task with parts of unequal size, training and dev pairs."""
    folder.mkdir()
    for seed, part in enumerate(parts):
        write_pairs(folder / f"test.{part}.tsv", size + 9 * seed, seed)
    write_pairs(folder / "train.tsv", 60, 8)
    write_pairs(folder / "dev.tsv", 30, 9)
    return folder


def write_task(path, splits, classes=2, seed=0):
    """Write a classification task in which some words tell the class."""
    random = np.random.default_rng(seed)
    lines = ["split\tlabel\ttext"]
    for split, count in splits.items():
        for number in range(count):
            label = number % classes
            hint = f"w{label}" if random.random() < 0.6 else "w9"
            lines.append(f"{split}\t{label}\t{sentence(random)} {hint}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_probe(path):
    """Write the same texts as a probing task, which has no header."""
    _, *lines = write_task(path, {"tr": 60, "va": 30, "te": 30}).read_text().splitlines()
    path.write_text("\n".join(lines) + "\n")
    return path
