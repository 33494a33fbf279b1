"""Readers see neither errors nor partial commits while a writer adds, deletes, merges and rebuilds.

RETRIEVER_SOAK_SECONDS says for how long, 10 if it does not; RETRIEVER_SOAK_READERS how many readers
there are, 2 if it does not. The memory of every process is to stay as it is.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from indexes.folder.verify import verify

SECONDS = float(os.environ.get("RETRIEVER_SOAK_SECONDS", "10"))
READERS = int(os.environ.get("RETRIEVER_SOAK_READERS", "2"))
# What a process may grow by after a third of the time: a rebuild loads FAISS.
SHARE, BYTES = 0.1, 40 << 20
KINDS = ("added", "rewritten", "deleted", "merged", "compacted", "rebuilt", "recreated")


def start(*arguments):
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, Path(__file__).with_name("traffic.py"), *map(str, arguments)],
        cwd=root,
        # One thread: many that wait for each other would measure the scheduler.
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process):
    out, errors = process.communicate(timeout=SECONDS + 60)
    assert process.returncode == 0, errors
    assert errors == ""
    return json.loads(out)


@pytest.mark.soak
@pytest.mark.parametrize("user", [[], ["65534"]], ids=["the same user", "another user"])
def test_readers_see_whole_commits_while_a_writer_works(open_to_all, user):
    if user and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = open_to_all / "index"
    assert outcome(start("write", folder, 0.3))["added"]
    processes = [
        start("write", folder, SECONDS, *KINDS),
        *(start("read", folder, SECONDS, seed, *user) for seed in range(READERS)),
    ]
    try:
        written, *read = map(outcome, processes)
    finally:
        for process in processes:
            process.kill()
    print(f"writer: {written}; readers: {read}")  # noqa: T201  (shown by pytest -s)
    assert all(written.get(kind, 0) > 0 for kind in KINDS)
    for done in read:
        # Both kinds of answer were met, in every mode.
        assert all(0 < done[mode] < done["searches"] / 6 for mode in ("bm25", "dense", "hybrid"))
        assert done["opened"] > 0
        assert done["verified"] > 0
    for done in (written, *read):
        early, late = done["resident"]
        assert late <= early * (1 + SHARE) + BYTES, done["resident"]
    assert verify(folder) == []
