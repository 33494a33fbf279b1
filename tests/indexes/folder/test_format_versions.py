"""Indexes of earlier formats: read, changed, merged and rebuilt by this code."""

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from indexes.folder.connection import FORMAT_VERSION
from indexes.folder.store import snapshot_index
from indexes.folder.verify import verify
from indexes.protocol import StructureSettings
from retriever import Document, Index, SearchSettings

SAMPLES = Path(__file__).parent / "data"
ANSWERS = json.loads((SAMPLES / "answers.json").read_text("utf-8"))

pytestmark = pytest.mark.usefixtures("fake_encoder")


@pytest.fixture(params=range(1, FORMAT_VERSION + 1))
def made_by(request):
    """The format of the index."""
    return int(request.param)


@pytest.fixture
def folder(tmp_path, made_by):
    with zipfile.ZipFile(SAMPLES / f"format-{made_by}.zip") as archive:
        archive.extractall(tmp_path / "index")
    return tmp_path / "index"


def check_answers(folder):
    """Every query finds what the code that made the index found."""
    with Index.open(folder) as index:
        for answer in ANSWERS:
            settings = SearchSettings(mode=answer["mode"], k=20)
            hits = index.search(answer["query"], settings, where=answer["where"])
            found = [(hit.id, hit.title, hit.passage, hit.metadata) for hit in hits]
            assert found == [
                (hit["id"], hit["title"], hit["passage"], hit["metadata"]) for hit in answer["hits"]
            ]
            scores = [hit["score"] for hit in answer["hits"]]
            assert [hit.score for hit in hits] == pytest.approx(scores, rel=1e-9)


def set_version(folder, version):
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version={version}")


def test_it_is_sound_and_answers_as_it_did(folder, made_by):
    assert verify(folder) == []
    check_answers(folder)
    with Index.open(folder) as index:
        facts = index.info()
    assert (facts["format_version"], facts["documents"]) == (made_by, 5)
    assert len(facts["segments"]) == 2
    assert facts["deleted_passages"] == 2


def test_documents_are_known_again_changed_added_and_deleted(folder):
    with Index.open(folder) as index:
        new = Document("new", "A harbour of today.", None, {"year": 2026})
        known = Document("a", "Harbour lights in the fog.", "Ships", {"year": 1990, "tag": "a"})
        report = index.add([known, new])
        assert (report.unchanged, report.added, report.updated) == (1, 1, 0)
        assert {hit.id for hit in index.search("harbour", SearchSettings(mode="bm25"))} == {
            *("a", "f", "new")
        }
        assert index.delete(["new"]) == 1
    assert verify(folder) == []
    check_answers(folder)


def test_merged_it_answers_as_it_did(folder, made_by):
    # The sample of format 3 is of a release that kept an order of passages in each segment.
    assert len(list(folder.rglob("order.npy"))) == (2 if made_by == 3 else 0)
    with Index.open(folder) as index:
        assert index.compact() == 2
        assert len(index.info()["segments"]) == 1
    assert not list(folder.rglob("order.npy"))
    assert verify(folder) == []
    check_answers(folder)


def test_rebuilt_and_given_another_structure_it_answers_as_it_did(folder):
    with Index.open(folder) as index:
        index.rebuild(StructureSettings("IVF2,Flat"))
        assert index.info()["segments"][0]["structure"] == "IVF2,Flat"
    assert verify(folder) == []
    check_answers(folder)


def test_a_snapshot_of_it_answers_as_it_did(folder, tmp_path):
    snapshot_index(folder, tmp_path / "copy")
    check_answers(tmp_path / "copy")


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_damage(folder, retriever, version):
    set_version(folder, version)
    outcome = retriever("query", "any", "-i", folder)
    assert outcome.code == 3
    (line,) = outcome.err.splitlines()
    assert f"{folder / 'index.sqlite'}: expected format version 1 or more" in line
