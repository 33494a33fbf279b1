"""Killed at random moments, an index is intact, has no partial commit, and the same run resumes."""

import random
import signal
import time
from itertools import pairwise

import forked
import pytest
from answers import assert_equal, check_answers, contents, final
from workload import LIVED, states

from indexes.folder.connection import is_index
from indexes.folder.verify import verify
from retriever.index import Index

ALLOWED = states(LIVED)


def start(place):
    """Go on where the journal ends."""
    done = len(journal(place))
    return forked.start("workload.py", place / "index", place / "journal", done)


def finish(place):
    with start(place) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert verify(place / "index") == []
    return final(place / "index")


def journal(place):
    """Its complete lines."""
    path = place / "journal"
    content = path.read_text() if path.exists() else ""
    return content[: content.rfind("\n") + 1].splitlines()


def killed(place, number, delay):
    """Run on, kill `delay` seconds into operation `number`; how many were complete then."""
    with start(place) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while process.poll() is None and (
            len(journal(place)) < number or not (place / "index").exists()
        ):
            time.sleep(0.0005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0), errors
    return len(journal(place))


def check(folder, done):
    """The index is whole, and holds what it may after `done` operations and part of the next."""
    if not done and not is_index(folder):
        return
    assert verify(folder) == []
    dead = {}
    for operation in LIVED[:done]:
        dead |= operation.put
    with Index.open(folder) as index:
        held = contents(index)
        assert held in ALLOWED[done]
        if held:
            check_answers(index, held, dead)


@pytest.mark.soak
def test_killed_at_random_moments(crash_encoder, tmp_path):
    places = [tmp_path / str(life) for life in range(4)]
    for place in places:
        place.mkdir()
    undisturbed = finish(places[0])
    assert undisturbed.contents == ALLOWED[-1][-1]
    times = [float(line.split()[1]) for line in journal(places[0])]
    seconds = [later - earlier for earlier, later in pairwise(times)]
    seconds.insert(0, seconds[0])
    chance = random.Random(7)
    counts = []
    for place in places[1:]:
        for number in [0, *sorted(chance.sample(range(len(LIVED)), 7))]:
            counts.append(killed(place, number, chance.uniform(0, 1.1) * seconds[number]))
            check(place / "index", counts[-1])
        assert_equal(finish(place), undisturbed)
        assert sorted(path.name for path in place.iterdir()) == ["index", "journal"]
    # They were met in many operations.
    assert len(set(counts)) > 8
