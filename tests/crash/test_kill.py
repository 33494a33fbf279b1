"""Killed at random moments, an index is intact, has no partial commit, and the same run resumes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import workload
from answers import Final, assert_equal, check_answers, contents, final
from workload import operations

from indexes.folder.connection import is_index
from indexes.folder.verify import verify
from retriever.index import Index

ROOT = Path(__file__).parents[2]
SCRIPT = Path(workload.__file__)
LIVES = 3


def start(folder, journal, first=0):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), str(journal), str(first)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(folder, journal, first=0):
    with start(folder, journal, first) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()


def complete_lines(journal):
    if not journal.exists():
        return []
    content = journal.read_text()
    return content[: content.rfind("\n") + 1].splitlines()


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody killed.

    Attributes:
        final: what it left.
        seconds: how long each operation took.
    """

    final: Final
    seconds: list[float]


@pytest.fixture(scope="module")
def undisturbed(hash_encoder, tmp_path_factory):
    place = tmp_path_factory.mktemp("undisturbed")
    finish(place / "index", place / "journal")
    times = [float(line.split()[1]) for line in complete_lines(place / "journal")]
    seconds = [later - earlier for earlier, later in pairwise(times)]
    assert verify(place / "index") == []
    left = final(place / "index")
    assert left.contents == states(operations())[-1][-1]
    return Undisturbed(left, [seconds[0], *seconds])


def states(planned):
    """For each operation, what the index may hold while it runs."""
    allowed = []
    held = {}
    for operation in planned:
        allowed.append(operation.steps(held))
        held = allowed[-1][-1]
    return [*allowed, [held]]


def lives(seconds):
    """For each life of an index, when it is killed: in which operation, and how far into it.

    Every life is killed in each kind of operation and in one more; the first at its creation too.
    """
    chance = random.Random(7)
    planned = operations()
    kinds = ["stream", "recreate", "add", "delete", "where"]
    found = []
    for life in range(LIVES):
        numbers = [
            chance.choice([n for n, operation in enumerate(planned) if operation.kind == kind])
            for kind in [*kinds, kinds[life % len(kinds)]]
        ]
        chosen = [(n, chance.uniform(0, 1.1) * seconds[n]) for n in sorted(numbers)]
        found.append([(0, 0.0), *chosen] if life == 0 else chosen)
    return found


def killed(place, number, delay):
    """Run on, kill `delay` seconds into operation `number`; how many were complete then."""
    folder, journal = place / "index", place / "journal"
    with start(folder, journal, len(complete_lines(journal))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while process.poll() is None and len(complete_lines(journal)) < number:
            time.sleep(0.0005)
        while process.poll() is None and not folder.exists():
            time.sleep(0.0005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0), errors.decode()
    return len(complete_lines(journal))


def check(place, done):
    """The index is whole, and holds what it may after `done` operations and part of the next."""
    folder = place / "index"
    if not done and not is_index(folder):
        return
    assert verify(folder) == []
    allowed = states(operations())[done]
    dead = {}
    with Index.open(folder) as index:
        held = contents(index)
        assert held in allowed
        for operation in operations()[:done]:
            dead |= operation.put
        if held:
            check_answers(index, held, dead)


def live(place, kills):
    """One life of an index: killed, checked and run on, again and again, to the end."""
    place.mkdir()
    counts = []
    for number, delay in kills:
        counts.append(killed(place, number, delay))
        check(place, counts[-1])
    finish(place / "index", place / "journal", len(complete_lines(place / "journal")))
    assert verify(place / "index") == []
    assert sorted(path.name for path in place.iterdir()) == ["index", "journal"]
    return counts


@pytest.mark.soak
def test_killed_at_random_moments(undisturbed, tmp_path):
    planned = lives(undisturbed.seconds)
    places = [tmp_path / str(life) for life in range(LIVES)]
    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(live, places, planned))
    for place in places:
        assert_equal(final(place / "index"), undisturbed.final)
    assert sum(map(len, counts)) > 18
    # They were met in many operations, and not all of them at an end.
    assert len({done for life in counts for done in life}) > 8
