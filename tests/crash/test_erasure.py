"""After an erasure no file of an index holds a byte of a document, whatever interrupted it."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from steps import killed_copies

from indexes import SOURCES_FILE, StructureSettings
from indexes.folder.verify import verify
from retriever import CorpusReader, Index, StorageError
from retriever.index.refreshing import RefreshReport

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
        lines = tmp_path / "lines.jsonl"
        lines.write_text(json.dumps(CANARY))
        index.add(CorpusReader(lines), remember=True)
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
    """Which of some bytes any file of the index holds, or any beside it that is named after it."""
    beside = folder.parent.glob(f"*{folder.name}*")
    files = [file for one in beside for file in (one, *one.rglob("*")) if file.is_file()]
    content = b"\0\0".join(file.read_bytes() for file in sorted(files))
    return {name for name, one in wanted.items() if one in content}


def erased(folder):
    with Index.open(folder) as index:
        index.delete(["canaryid"], erase=True)


def test_no_byte_is_left(folder):
    wanted = canaries(folder)
    before = held(folder, wanted)
    assert {"canaryid in utf-8", "zqx17canary in utf-8", "canaryvalue in utf-8"} <= before
    assert b"canaryid" in (folder / SOURCES_FILE).read_bytes()
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


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_an_erasure_that_is_killed_is_ended_by_the_next(folder, tmp_path, every):
    wanted = canaries(folder)
    copies = killed_copies(folder, tmp_path, erased, every)
    next(copies)
    for copy in copies:
        erased(copy)
        assert held(copy, wanted) == set(), copy
        assert verify(copy) == []


def test_what_the_index_remembers_of_sources_is_erased_and_nothing_comes_back(tmp_path):
    notes, alone, lines = (tmp_path / name for name in ("notes", "canary.md", "lines.jsonl"))
    for path, text in [
        (notes / "canaryfile.md", "one"),
        (notes / "below/other.md", "two"),
        (alone, "three"),
        (lines, '{"id": "canaryline", "text": "four"}\n{"id": "d", "text": "five"}\n'),
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with Index.create(tmp_path / "index") as index:
        index.add(CorpusReader([notes, alone, lines]), remember=True)
        memory = index.folder / SOURCES_FILE
        assert memory.read_bytes().count(b"canary") > 4
        index.delete(["canaryfile.md", str(alone), "canaryline"])
        index.delete([], erase=True)
        assert held(index.folder, {"": b"canary"}) == set()
        assert index.sources == [str(notes), str(lines)]
        assert index.refresh() == RefreshReport(unchanged=2)
        (notes / "canaryfile.md").write_text("changed")
        assert index.refresh() == RefreshReport(added=1, unchanged=2)
        assert index.refresh() == RefreshReport(unchanged=3)
        (notes / "canaryfile.md").unlink()
        assert index.refresh() == RefreshReport(removed=1, unchanged=2)


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
