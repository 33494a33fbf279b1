"""After an erasure no file of an index holds a byte of a document, whatever interrupted it."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from indexes import SOURCES_FILE, StructureSettings
from indexes.folder.verify import verify
from retriever import CorpusReader, Index, StorageError
from retriever.index import RefreshReport, SourceMemory
from retriever.index.sources.changes import find_changes
from tests.crash.steps import yield_killed_copies

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
    """Return byte patterns that only the canary document brings into an index, by name."""
    with Index.open(folder) as index:
        spans = index.spans("canaryid")
        text = [f"Canarytitle {CANARY['text'][start:stop]}" for start, stop in spans]
        rows = index.encoder.encode(text)
        terms = [
            term for term in index.analyzer.tokens(text[0]) if "canari" in term or "zqx" in term
        ]
    strings = ["canaryid", "Canarytitle", "canaryfield", "canaryvalue", "Canarymessage"]
    strings += ["zqx17canary", *terms[:3]]
    patterns = {
        f"{string} in {encoding}": string.encode(encoding)
        for string in strings
        for encoding in ("utf-8", "utf-16-le")
    }
    for number, row in enumerate(rows):
        patterns[f"float32 of passage {number}"] = row.astype("<f4").tobytes()[:32]
        patterns[f"float16 of passage {number}"] = row.astype("<f2").tobytes()[:32]
        patterns[f"bfloat16 of passage {number}"] = (
            (row.view(np.uint32) >> 16).astype("<u2").tobytes()[:32]
        )
    with closing(sqlite3.connect(folder / "index.sqlite")) as database:
        query = "SELECT passages FROM metadata_values WHERE value = ?"
        for (passages,) in database.execute(query, (CANARY["group"],)):
            if len(passages) >= 8:
                patterns["passages of a value"] = bytes(passages)
    return patterns


def names_present(folder, patterns):
    """Return the names of the patterns in the files of the index or in files named after it."""
    beside = folder.parent.glob(f"*{folder.name}*")
    files = [file for path in beside for file in (path, *path.rglob("*")) if file.is_file()]
    content = b"\0\0".join(file.read_bytes() for file in sorted(files))
    return {name for name, pattern in patterns.items() if pattern in content}


def erase_canary(folder):
    with Index.open(folder) as index:
        index.delete(["canaryid"], erase=True)


def test_erasing_a_document_leaves_none_of_its_bytes(folder, monkeypatch):
    # The lock says what command holds it.
    monkeypatch.setattr("sys.argv", ["erase.py", "canaryid"])
    patterns = canaries(folder)
    before = names_present(folder, patterns)
    assert {"canaryid in utf-8", "zqx17canary in utf-8", "canaryvalue in utf-8"} <= before
    assert b"canaryid" in (folder / SOURCES_FILE).read_bytes()
    assert any(name.startswith("float") for name in before)
    with Index.open(folder) as index:
        index.delete(["canaryid"])
    assert names_present(folder, patterns)
    erase_canary(folder)
    assert names_present(folder, patterns) == set()
    assert verify(folder) == []
    with Index.open(folder) as index:
        assert len(index) == len(OTHERS)
        assert "canaryfield" not in {field.name for field in index.fields()}
        assert index.search("word3", mode="bm25", k=3)
        assert index.delete_where("group = 2", erase=True) == 30


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_next_erasure_completes_one_that_was_killed(folder, tmp_path, every):
    patterns = canaries(folder)
    copies = yield_killed_copies(folder, tmp_path, erase_canary, every)
    next(copies)
    for copy in copies:
        erase_canary(copy)
        assert names_present(copy, patterns) == set(), copy
        assert verify(copy) == []


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_erasure_removes_names_from_the_source_memory_and_refresh_restores_nothing(tmp_path):
    notes, alone, lines = (tmp_path / name for name in ("notes", "canary.md", "lines.jsonl"))
    for path, text in [
        (notes / "canaryfile.md", "one"),
        (notes / "below/other.md", "two"),
        (alone, "three"),
        (lines, '{"id": "canaryline", "text": "four"}\n{"id": "d", "text": "five"}\n'),
    ]:
        write(path, text)
    with Index.create(tmp_path / "index") as index:
        index.add(CorpusReader([notes, alone, lines]), remember=True)
        memory = index.folder / SOURCES_FILE
        assert memory.read_bytes().count(b"canary") > 4
        index.delete(["canaryfile.md", str(alone), "canaryline"])
        index.delete([], erase=True)
        assert names_present(index.folder, {"": b"canary"}) == set()
        assert index.sources == [str(notes), str(lines)]
        assert index.refresh() == RefreshReport(unchanged=2)
        (notes / "canaryfile.md").write_text("changed")
        assert index.refresh() == RefreshReport(added=1, unchanged=2)
        assert index.refresh() == RefreshReport(unchanged=3)
        (notes / "canaryfile.md").unlink()
        assert index.refresh() == RefreshReport(removed=1, unchanged=2)


# In pages of a database, what moves to another page stays in the old one.
FILES = [f"{number % 9}/canary{number:03}.txt" for number in range(800)]


@pytest.fixture
def sources(tmp_path):
    """An index of a folder with many files, and of sources that are files."""
    for number, name in enumerate(FILES):
        write(tmp_path / "notes" / name, f"word{number % 7}")
    write(tmp_path / "notes/plain.txt", "stays")
    write(tmp_path / "canary.jsonl", '{"id": "canary-j", "text": "j"}\n')
    write(tmp_path / "canary.csv", "id,text\ncanary-c,c\ncanary-d,d\n")
    write(tmp_path / "canary.txt", "one\ntwo\n")
    write(tmp_path / "canary.mbox", "From a\nSubject: canary\n\nMail.\n\n")
    source_paths = [tmp_path / "notes", *sorted(tmp_path.glob("canary*"))]
    with Index.create(tmp_path / "index") as index:
        index.add(CorpusReader(source_paths), remember=True)
        # Rows move while the index is refreshed.
        for name in FILES[::3]:
            (tmp_path / "notes" / name).write_text("changed")
        index.refresh()
    return tmp_path / "index"


def erase_all(folder):
    with Index.open(folder) as index:
        index.delete([document.id for document in index if document.id != "plain.txt"], erase=True)


@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.soak)])
def test_erasing_all_documents_leaves_no_name_of_a_file_or_source(sources, tmp_path, every):
    patterns = {str(name): str(name).encode() for name in ["canary", *FILES]}
    assert names_present(sources, patterns) == set(patterns)
    copies = yield_killed_copies(sources, tmp_path, erase_all, every)
    whole = next(copies)
    assert names_present(whole, patterns) == set()
    with Index.open(whole) as index:
        assert index.sources == [str(tmp_path / "notes")]
        assert index.refresh() == RefreshReport(unchanged=1)
        # Of the last documents of a source that is a file, not of some.
        assert [document.id for document in index] == ["plain.txt"]
    for copy in copies:
        erase_all(copy)
        assert names_present(copy, patterns) == set(), copy
        with Index.open(copy) as index:
            assert index.refresh() == RefreshReport(unchanged=1)


def test_erased_file_stays_erased_while_its_folder_is_unlisted_or_away(tmp_path):
    notes = tmp_path / "notes"
    for name in ("a/erased.txt", "a/kept.txt", "b.txt"):
        write(notes / name, f"text of {name}")
    with Index.create(tmp_path / "index") as index:
        index.add(CorpusReader(notes), remember=True)
        index.delete(["a/erased.txt"], erase=True)
        # Too large to be used.
        rules = write(notes / "a/.gitignore", "#" * 70_000)
        assert index.refresh().unchanged == 2
        rules.unlink()
        assert index.refresh() == RefreshReport(unchanged=2)
        write(notes / ".gitignore", "a/\n")
        assert index.refresh() == RefreshReport(
            removed=1, unchanged=1, files_left_out={"ignored": 1}
        )
        (notes / ".gitignore").unlink()
        assert index.refresh() == RefreshReport(added=1, unchanged=1)
        (notes / "a").rename(tmp_path / "away")
        assert index.refresh() == RefreshReport(removed=1, unchanged=1)
        (tmp_path / "away").rename(notes / "a")
        assert index.refresh() == RefreshReport(added=1, unchanged=1)
        assert "a/erased.txt" not in index
        # `index` reads all.
        index.add(CorpusReader(notes), remember=True)
        assert "a/erased.txt" in index
        index.delete(["a/erased.txt"], erase=True)
        assert index.refresh() == RefreshReport(unchanged=2)
        write(notes / "a/erased.txt", "changed")
        assert index.refresh() == RefreshReport(added=1, unchanged=2)


def test_document_erased_after_an_interrupted_refresh_does_not_come_back(tmp_path):
    write(tmp_path / "notes/a.txt", "one")
    write(tmp_path / "notes/b.txt", "two")
    with Index.create(tmp_path / "index") as index:
        index.add(CorpusReader(tmp_path / "notes"), remember=True)
        with SourceMemory(index.store) as memory:
            [source] = memory.sources()
            memory.begin([find_changes(memory, source, every=True)])
        index.delete(["a.txt"], erase=True)
        assert index.refresh() == RefreshReport(unchanged=1)
        assert [document.id for document in index] == ["b.txt"]


def test_a_source_that_is_a_file_is_remembered_while_it_has_documents(tmp_path):
    first = write(tmp_path / "first.jsonl", '{"id": "a", "text": "1"}\n{"id": "b", "text": "2"}\n')
    second = write(tmp_path / "second.csv", "id,text\nc,3\n")
    with Index.create(tmp_path / "index") as index:
        index.add(CorpusReader([first, second]), remember=True)
        index.delete(["a"], erase=True)
        assert index.sources == [str(first), str(second)]
        index.delete(["b"])
        assert index.sources == [str(first), str(second)]
        assert index.refresh() == RefreshReport(unchanged=2)
        index.delete([], erase=True)
        assert index.sources == [str(second)]
        assert index.refresh() == RefreshReport(unchanged=1)


def test_erasure_with_an_open_reader_asks_to_run_again(folder, monkeypatch):
    patterns = canaries(folder)
    monkeypatch.setattr("indexes.folder.connection.BUSY_SECONDS", 0.1)
    with (
        Index.open(folder) as index,
        Index.open(folder) as other,
        index._opened.view(),
        pytest.raises(StorageError, match="run the same command again"),
    ):
        other.delete(["canaryid"], erase=True)
    erase_canary(folder)
    assert names_present(folder, patterns) == set()
