"""Rounds of random changes and refreshes, run once or for a time."""

import os
import shutil
import time
import warnings
from itertools import count, islice

# How long a soak test goes on.
SECONDS = float(os.environ.get("RETRIEVER_SOAK_SECONDS", "10"))


def run_rounds(rounds, folder, seed, number):
    """Run `number` rounds of `rounds(folder, seed)`, which compare an index with a new one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in islice(rounds(folder, seed), number):
            pass


def run_seeds(rounds, folder, number):
    """Run `number` rounds of one seed after the other, each in its own folder, for `SECONDS`."""
    end = time.monotonic() + SECONDS
    for seed in count(100):
        if time.monotonic() > end:
            return
        place = folder / str(seed)
        place.mkdir()
        run_rounds(rounds, place, seed, number)
        shutil.rmtree(place)
