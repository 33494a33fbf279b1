"""Indexes of earlier formats: read, changed, merged, rebuilt, and brought to the newest format.

`data/format-N.zip` is the same index as commits 3615479 (format 1, the first to write it), 4cc8236
(2, the last), 248ee7b (3, the last whose segments have an order.npy) and c676dd9 (4, the last,
with the language ``auto``) wrote it, of two additions and a deletion with a `FakeEncoder`;
`answers.json` is what they answered, equal up to rounding.
"""

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils

from indexes.errors import DamagedIndexError
from indexes.filters.grammar import compile_where
from indexes.folder.connection import FORMAT_VERSION
from indexes.folder.documents import VALUES_SINCE
from indexes.folder.store import snapshot_index
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter
from indexes.protocol import StructureSettings
from retriever import Document, Index, SearchSettings
from tests.indexes.column_samples import allowed_ids, allowed_ids_by_documents, documents_refused
from tests.indexes.index_samples import alter, commit, document, dying_at, make_index

pytestmark = pytest.mark.usefixtures("fake_encoder")

SAMPLES = Path(__file__).parent / "data"
FILTERS = [
    "year >= 1995 and tag in ('b', 'c')",
    "x contains 1 or title = 'Ships'",
    "not (tag = 'b' or x exists)",
    "year < 2000 or never = 1",
    "never = null",
]


def sample(format_, folder):
    with zipfile.ZipFile(SAMPLES / f"format-{format_}.zip") as archive:
        archive.extractall(folder)
    return folder


ANSWERS = json.loads((SAMPLES / "answers.json").read_text("utf-8"))


@pytest.fixture(params=range(1, FORMAT_VERSION))
def old_folder(request, tmp_path):
    return sample(request.param, tmp_path / "index")


def version(folder):
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        (number,) = connection.execute("PRAGMA user_version").fetchone()
        return int(number)


def schema(folder):
    """Return the SQL of the database's tables and views by name, in one line each."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: " ".join(sql.split()) for name, sql in rows}


def columns(folder):
    with sqlite_utils.Database(folder / "index.sqlite") as database:
        return {table.name: [column.name for column in table.columns] for table in database.tables}


def test_reading_an_old_format_filters_by_documents_and_changes_nothing(old_folder):
    before = (old_folder / "index.sqlite").read_bytes()
    for text in FILTERS:
        assert allowed_ids(old_folder, text) == allowed_ids_by_documents(old_folder, text)
    assert verify(old_folder) == []
    assert (old_folder / "index.sqlite").read_bytes() == before


def test_writer_upgrades_an_old_format_with_equal_answers(old_folder, tmp_path):
    before = [allowed_ids(old_folder, text) for text in FILTERS]
    with FolderWriter(old_folder):
        assert version(old_folder) == FORMAT_VERSION
    assert [allowed_ids(old_folder, text) for text in FILTERS] == before
    with documents_refused():
        assert allowed_ids(old_folder, FILTERS[0]) == before[0] != []
    assert verify(old_folder) == []
    new = make_index(tmp_path / "new")
    assert columns(old_folder) == columns(new)
    assert schema(old_folder)["corpus"] == schema(new)["corpus"]


def test_open_reader_sees_the_old_format_until_its_next_view(old_folder):
    older = version(old_folder)
    where = compile_where("year >= 2000")
    with closing(FolderReader(old_folder)) as reader:
        with reader.view() as view:
            before = [mask.positions.tolist() for mask in view.allowed(where)]
            with FolderWriter(old_folder):
                pass
            # Inside its transaction nothing has changed.
            assert view.describe()["format_version"] == older
            other = compile_where("year >= 2000.0")
            assert [mask.positions.tolist() for mask in view.allowed(other)] == before
        with reader.view() as view, documents_refused():
            assert view.describe()["format_version"] == FORMAT_VERSION
            other = compile_where("year > 1999")
            assert [mask.positions.tolist() for mask in view.allowed(other)] == before


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_upgrade_killed_at_any_statement_keeps_the_old_format(old_folder, tmp_path, every):
    older = version(old_folder)
    before = [allowed_ids(old_folder, text) for text in FILTERS]
    versions = []
    # Statements between those are of the same transaction.
    for statement in range(0, 600, every * (2 if older < VALUES_SINCE else 1)):
        copy = sample(older, tmp_path / str(statement))
        status = dying_at(statement, lambda place=copy: FolderWriter(place).__enter__())
        versions.append(version(copy))
        assert ("languages" in schema(copy)["passages"]) == (versions[-1] == FORMAT_VERSION)
        assert [allowed_ids(copy, text) for text in FILTERS] == before
        with FolderWriter(copy):
            pass
        assert [allowed_ids(copy, text) for text in FILTERS] == before
        assert verify(copy) == []
        if status == 0:
            break
    assert status == 0
    assert len(versions) > 8
    assert versions == sorted(versions)
    assert set(versions) == {older, FORMAT_VERSION}


@pytest.mark.parametrize("older", range(1, VALUES_SINCE))
def test_upgrade_with_unreadable_metadata_keeps_the_old_format(tmp_path, older):
    old_folder = sample(older, tmp_path / "index")
    assert alter(old_folder, "UPDATE documents SET metadata = '[1]' WHERE id = 'a'") == 1
    with (
        pytest.raises(DamagedIndexError, match=r"index\.sqlite: .*restore it"),
        FolderWriter(old_folder),
    ):
        pass
    assert version(old_folder) == older
    assert "metadata_values" not in schema(old_folder)


def test_other_programs_read_documents_through_a_view(tmp_path):
    folder = make_index(tmp_path / "index", [document("b", "one two", {"n": 1}, passages=2)])
    with FolderWriter(folder) as writer:
        commit(writer, document("a", "three"))
    with sqlite_utils.Database(folder / "index.sqlite") as database:
        rows = list(database["corpus"].rows)
    assert sorted(rows, key=lambda row: str(row["id"])) == [
        {"id": "a", "title": None, "text": "three", "metadata": "{}", "passages": 1},
        {"id": "b", "title": None, "text": "one two", "metadata": '{"n":1}', "passages": 2},
    ]


def check_answers(folder):
    """Assert that every query has the hits of the release that made the index."""
    with Index.open(folder) as index:
        for answer in ANSWERS:
            settings = SearchSettings(mode=answer["mode"], k=20)
            hits = index.search(answer["query"], settings, where=answer["where"])
            rows = [(hit.id, hit.title, hit.passage, hit.metadata) for hit in hits]
            assert rows == [
                (hit["id"], hit["title"], hit["passage"], hit["metadata"]) for hit in answer["hits"]
            ]
            scores = [hit["score"] for hit in answer["hits"]]
            assert [hit.score for hit in hits] == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize("made_by", range(1, FORMAT_VERSION))
def test_index_of_each_old_format_keeps_its_answers_through_changes(tmp_path, made_by):
    folder = sample(made_by, tmp_path / "index")
    assert verify(folder) == []
    check_answers(folder)
    snapshot_index(folder, tmp_path / "copy")
    check_answers(tmp_path / "copy")
    # The sample of format 3 is of a release that kept an order of passages in each segment.
    assert len(list(folder.rglob("order.npy"))) == (2 if made_by == 3 else 0)
    with Index.open(folder) as index:
        facts = index.info()
        assert (facts["format_version"], facts["documents"]) == (made_by, 5)
        assert (len(facts["segments"]), facts["deleted_passages"]) == (2, 2)
        new = Document("new", "A harbour of today.", None, {"year": 2026})
        expected = Document("a", "Harbour lights in the fog.", "Ships", {"year": 1990, "tag": "a"})
        report = index.add([expected, new])
        assert (report.unchanged, report.added, report.updated) == (1, 1, 0)
        hits = index.search("harbour", SearchSettings(mode="bm25"))
        assert {hit.id for hit in hits} == {"a", "f", "new"}
        assert index.delete(["new"]) == 1
        check_answers(folder)
        index.compact()
        check_answers(folder)
        index.rebuild(StructureSettings("IVF2,Flat"))
        assert [segment["structure"] for segment in index.info()["segments"]] == ["IVF2,Flat"]
    assert not list(folder.rglob("order.npy"))
    assert verify(folder) == []
    check_answers(folder)


def test_languages_of_deleted_documents_count_until_compact(tmp_path):
    folder = sample(4, tmp_path / "index")
    with Index.open(folder) as index:
        assert (index.info()["languages"], len(index)) == ({"english": 7, "german": 1}, 5)
        # Neither number is known to be wrong: an earlier release stored the passages.
        assert index.info()["uncounted_passages"] == 6
        assert index.verify() == []
        index.add([Document("new", "A harbour of today.")])
        index.delete(["new"])
        assert index.info()["languages"] == {"english": 7, "german": 1}
        assert index.verify() == []
        index.compact()
        assert index.info()["languages"] == {"english": 6}
        assert index.info()["uncounted_passages"] == 0
        index.delete(["a"])
        assert index.info()["languages"] == {"english": 5}
        assert index.verify() == []


def test_languages_are_exact_once_old_passages_are_replaced(tmp_path):
    folder = sample(4, tmp_path / "index")
    with Index.open(folder) as index:
        ids = [document.id for document in index]
        index.add([Document("new", "A harbour of today.")])
        index.delete(ids[:-1])
        assert index.info()["languages"] == {"english": 8, "german": 1}
        index.add([Document(ids[-1], "Another harbour and the lights of it.")])
        assert index.info()["languages"] == {"english": 2}
        assert index.verify() == []


@pytest.mark.parametrize("version", [0, -1])
def test_format_version_below_one_is_damage(tmp_path, version):
    folder = make_index(tmp_path / "index")
    alter(folder, f"PRAGMA user_version={version}")
    with pytest.raises(DamagedIndexError, match="expected format version 1 or more"):
        verify(folder)
