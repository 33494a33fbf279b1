"""How often 95% intervals of a mean over few queries hold the true mean, by five methods.

    python benchmarks/interval_coverage.py [--report FOLDER ...] [--repetitions N] [--resamples N]

Queries are drawn with replacement from populations whose mean is known: made ones that are shaped
like AP, RR, nDCG, hits at rank 1 and their differences between two systems, and the values of
reports of `retriever eval qa --output FOLDER`, each measure of each system and each difference from
the first system. A cell is the mean coverage over the populations, in percent, then its mean
distance from 95 and the mean width within the range of the values. `expanded` is the percentile
bootstrap with the levels of Hesterberg (2015), `bootstrap-t` the studentized one, `t` is what
comparisons print.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval.metrics.significance import mean_interval, percentile_interval

Floats = NDArray[np.float64]
METHODS = ("percentile", "expanded", "BCa", "bootstrap-t", "t")
QUERIES = (5, 8, 10, 12, 20, 50, 200)
TINY = 1e-12


def made() -> dict[str, tuple[Floats, float]]:
    """Population to its values and the least possible one."""
    random = np.random.default_rng(0)
    size = 200_000
    ranks, others, low_ranks = random.geometric([[0.6], [0.5], [0.3]], (3, size))
    middle, part = random.beta(2, 2, size), random.random(size)
    wide = np.clip(random.laplace(0.1, 0.2, size), -1, 1)
    return {
        "AP, middle": (middle, 0),
        "AP, high": (random.beta(4, 1, size), 0),
        "AP, low": (random.beta(0.6, 2, size), 0),
        "AP, 0 or 1": (random.beta(0.5, 0.5, size), 0),
        "RR, high": (1 / ranks, 0),
        "RR, low": (1 / low_ranks, 0),
        "nDCG": (np.where(part < 0.25, 0, np.where(part > 0.75, 1, middle)), 0),
        "hits at rank 1": ((part < 0.7).astype(np.float64), 0),
        "differences, normal": (np.clip(random.normal(0.05, 0.2, size), -1, 1), -1),
        "differences, long tails": (np.clip(0.03 + 0.1 * random.standard_t(3, size), -1, 1), -1),
        "differences, mostly none": (np.where(part < 0.6, 0, wide), -1),
        "differences, one way": (np.where(part < 0.8, 0, middle), -1),
        "differences in RR": (1 / ranks - 1 / others, -1),
    }


def reported(folder: Path) -> dict[str, tuple[Floats, float]]:
    """The same of a report; columns are named `MEASURE SYSTEM`, the first system's first."""
    with (folder / "per_question.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    found: dict[str, tuple[Floats, float]] = {}
    first: dict[str, Floats] = {}
    for column, name in enumerate(header[2:], start=2):
        values = np.array([float(row[column]) for row in rows])
        measure, _, system = name.partition(" ")
        found[f"{folder.name} {name}"] = values, 0
        if measure in first:
            difference = values - first[measure]
            found[f"{folder.name} {measure} differences of {system}"] = difference, -1
        else:
            first[measure] = values
    # Every method gives the one value that there is.
    return {name: one for name, one in found.items() if np.ptp(one[0]) > TINY}


def intervals(samples: Floats, least: float, weights: Floats) -> Floats:
    """(methods, 2, repetitions) intervals.

    Args:
        samples: (queries, repetitions).
        least: the least possible value.
        weights: (resamples, queries), how often each query is drawn; the same for all samples.
    """
    queries, repetitions = samples.shape
    resamples = len(weights)
    first, mean = samples[0], samples.mean(axis=0)
    # From the first value, so that equal values have no variance at all.
    away = weights @ (samples - first) / queries - (mean - first)
    squares = weights @ (samples - mean) ** 2 / queries - away**2
    error = np.sqrt(np.maximum(squares, 0) / (queries - 1))
    away[np.abs(away) < TINY] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        studentized = np.where(error < TINY, np.sign(away) * np.inf, away / error)
    studentized[away == 0] = 0
    centered = samples - mean
    spread = np.maximum((centered**2).sum(axis=0), TINY**2)
    acceleration = (centered**3).sum(axis=0) / (6 * spread**1.5)
    below = np.clip(((away < 0).mean(axis=0) + (away <= 0).mean(axis=0)) / 2, 1e-4, 1 - 1e-4)
    away.sort(axis=0)
    studentized.sort(axis=0)

    def at(values: Floats, levels: Floats) -> Floats:
        """The values of each repetition at its level."""
        places = np.rint(levels * (resamples - 1)).astype(np.int64)
        found: Floats = values[places, np.arange(repetitions)]
        return found

    ends = np.full((2, repetitions), [[0.025], [0.975]])
    shifted = stats.norm.ppf(below) + stats.norm.ppf(ends)
    corrected = stats.norm.cdf(stats.norm.ppf(below) + shifted / (1 - acceleration * shifted))
    errors = stats.sem(samples)
    return np.array(
        [
            [mean + at(away, level) for level in ends],
            np.transpose([percentile_interval(one, queries) for one in (mean + away).T]),
            [mean + at(away, level) for level in corrected],
            [
                np.where(errors < TINY, mean, mean - at(studentized, level) * errors)
                for level in ends[::-1]
            ],
            np.transpose([mean_interval(one, least) for one in samples.T]),
        ]
    )


def main() -> None:
    """Print a table of all populations for values, and one for differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", nargs="+", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--queries", nargs="+", type=int, default=QUERIES)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=1000)
    arguments = parser.parse_args()
    populations = made()
    for folder in arguments.report:
        populations |= reported(folder)
    for title, wanted in (("values", 0), ("differences", -1)):
        chosen = [values for values, least in populations.values() if least == wanted]
        print(f"| {title} of {len(chosen)} populations | {' | '.join(METHODS)} |")
        print("|---" * (1 + len(METHODS)) + "|")
        for queries in arguments.queries:
            random = np.random.default_rng(queries)
            weights = random.multinomial(
                queries, np.full(queries, 1 / queries), arguments.resamples
            ).astype(np.float64)
            held, widths = [], []
            for population in chosen:
                samples = random.choice(population, (queries, arguments.repetitions))
                low, high = intervals(samples, wanted, weights).swapaxes(0, 1)
                mean = population.mean()
                held.append(100 * ((low - TINY <= mean) & (mean <= high + TINY)).mean(axis=1))
                width = np.clip(high, wanted, 1) - np.clip(low, wanted, 1)
                widths.append(width.mean(axis=1))
            distances = np.abs(np.array(held) - 95).mean(axis=0)
            cells = zip(np.mean(held, axis=0), distances, np.mean(widths, axis=0), strict=True)
            row = (f"{cover:.1f} ({off:.1f}; {width:.2f})" for cover, off, width in cells)
            print(f"| {queries} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
