"""After an erasure no file of an index holds a byte of a document, whatever interrupted it."""

import os
import shutil
import signal
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import steps
from forked import in_child

from indexes.folder.verify import verify
from indexes.protocol import StructureSettings
from retriever import StorageError
from retriever.index import Index

pytestmark = pytest.mark.usefixtures("crash_encoder")

CANARY = {
    "id": "canaryid",
    "title": "Canarytitle",
    "text": " ".join(f"zqx{number}canary sings." for number in range(400)),
    "canaryfield": "canaryvalue",
    "outline": [[0, "message", "Canarymessage"]],
    "group": 7319442.0625,
}
OTHERS = [
    {"id": f"d{n}", "text": f"word{n % 7} and word{n} sing.", "group": n % 3} for n in range(90)
]


@pytest.fixture(params=["waiting", "flat", "IVF2,SQ8"])
def folder(request, tmp_path):
    """An index that holds the canary in its database, in a segment, or in a search structure."""
    path = tmp_path / "index"
    with Index.create(path) as index:
        index.add(OTHERS[:45])
        if request.param != "waiting":
            index.compact()
        index.add([CANARY])
        index.add(OTHERS[45:])
        if request.param != "waiting":
            index.rebuild(StructureSettings(request.param))
    return path


def canaries(folder):
    """Bytes that only the document has put there, by name."""
    with Index.open(folder) as index:
        spans = index.spans("canaryid")
        text = [f"Canarytitle {CANARY['text'][start:stop]}" for start, stop in spans]
        rows = index.encoder.encode(text)
        terms = [
            term for term in index.analyzer.tokens(text[0]) if "canari" in term or "zqx" in term
        ]
    strings = ["canaryid", "Canarytitle", "canaryfield", "canaryvalue", "Canarymessage"]
    strings += ["zqx17canary", *terms[:3]]
    found = {
        f"{one} in {how}": one.encode(how) for one in strings for how in ("utf-8", "utf-16-le")
    }
    for number, row in enumerate(rows):
        found[f"float32 of passage {number}"] = row.astype("<f4").tobytes()[:32]
        found[f"float16 of passage {number}"] = row.astype("<f2").tobytes()[:32]
        found[f"bfloat16 of passage {number}"] = (
            (row.view(np.uint32) >> 16).astype("<u2").tobytes()[:32]
        )
    with closing(sqlite3.connect(folder / "index.sqlite")) as database:
        query = "SELECT passages FROM metadata_values WHERE value = ?"
        for (passages,) in database.execute(query, (CANARY["group"],)):
            if len(passages) >= 8:
                found["passages of a value"] = bytes(passages)
    return found


def held(folder, wanted):
    """Which of some bytes any file of the index holds."""
    content = b"\0\0".join(
        file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()
    )
    return {name for name, one in wanted.items() if one in content}


def erased(folder):
    with Index.open(folder) as index:
        index.delete(["canaryid"], erase=True)


def test_no_byte_is_left(folder):
    wanted = canaries(folder)
    before = held(folder, wanted)
    assert {"canaryid in utf-8", "zqx17canary in utf-8", "canaryvalue in utf-8"} <= before
    assert any(name.startswith("float") for name in before)
    with Index.open(folder) as index:
        index.delete(["canaryid"])
    assert held(folder, wanted)
    erased(folder)
    assert held(folder, wanted) == set()
    assert verify(folder) == []
    with Index.open(folder) as index:
        assert len(index) == len(OTHERS)
        assert "canaryfield" not in {one.name for one in index.fields()}
        assert index.search("word3", mode="bm25", k=3)
        assert index.delete_where("group = 2", erase=True) == 30


def test_an_erasure_that_is_killed_is_ended_by_the_next(folder, tmp_path):
    wanted, number, status = canaries(folder), 0, -signal.SIGKILL
    while status != 0:
        copy = shutil.copytree(folder, tmp_path / f"killed{number}")

        def killed(copy=copy, last=number):
            met = 0

            def step(kind, subject):
                nonlocal met
                met += 1
                if met > last:
                    os.kill(os.getpid(), signal.SIGKILL)

            steps.watch(step)
            erased(copy)

        status, said = in_child(killed)
        assert status in (0, -signal.SIGKILL), said
        erased(copy)
        assert held(copy, wanted) == set(), number
        assert verify(copy) == []
        shutil.rmtree(copy)
        number += 3
    assert number > 20


def test_a_reader_that_stays_is_named(folder, monkeypatch):
    wanted = canaries(folder)
    monkeypatch.setattr("indexes.folder.connection.BUSY_SECONDS", 0.1)
    with (
        Index.open(folder) as index,
        Index.open(folder) as other,
        index._opened.view(),
        pytest.raises(StorageError, match="run the same command again"),
    ):
        other.delete(["canaryid"], erase=True)
    erased(folder)
    assert held(folder, wanted) == set()
