"""Structures of merged segments: built, measured, stored, searched and given up again."""

import gc
import os

import numpy as np
import pytest

from indexes.errors import ConfigError, MissingExtraError
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from indexes.passage_mask import PassageMask
from indexes.protocol import StructureSettings
from indexes.vectors.structure import STRUCTURE_FILE
from tests.indexes.index_samples import document, make_index, viewing
from tests.indexes.vectors.structure_samples import recall_of

DOCUMENTS = [document(f"d{i}", f"word{i} word{i % 7}") for i in range(600)]


@pytest.fixture
def folder(tmp_path):
    return make_index(tmp_path / "index", DOCUMENTS[:200], DOCUMENTS[200:])


def only_segment(folder):
    with viewing(folder) as view:
        (live,) = view.segments
        return live.segment


@pytest.mark.parametrize("index_type", ["hnsw", "ivf", "ivf-sq8", "IVF8,SQ6"])
def test_rebuilt_structure_reaches_the_recall_of_a_scan(folder, index_type):
    with FolderWriter(folder) as writer:
        assert writer.rebuild(StructureSettings(index_type)) == 2
    assert verify(folder) == []
    segment = only_segment(folder)
    assert (segment.folder / STRUCTURE_FILE).is_file()
    assert segment.structure.name == index_type
    assert segment.structure.reasons == (f"{index_type} was asked for",) or index_type == "IVF8,SQ6"
    efforts = [measurement.effort for measurement in segment.structure.recall]
    assert efforts == sorted(set(efforts))
    assert segment.structure.recall[-1].recall > 0.95
    queries = np.asarray(segment.vectors[::60])
    for mask in (None, np.arange(len(segment.ids)) % 3 == 0):
        passage_mask = None if mask is None else PassageMask(mask)
        results = segment.structure.search(segment.vectors, queries, 10, passage_mask, 0.99)
        assert recall_of(results, segment.vectors, queries, 10, mask) >= 0.95


def test_merges_keep_the_index_type_and_flat_has_no_file(folder):
    with FolderWriter(folder) as writer:
        writer.rebuild(StructureSettings("ivf"))
        writer.delete(["d1"])
        writer.compact()
        assert writer.segments()[0].segment.structure.name == "ivf"
        writer.rebuild(StructureSettings("flat"))
    segment = only_segment(folder)
    assert segment.structure.structure is None
    assert not (segment.folder / STRUCTURE_FILE).exists()
    assert verify(folder) == []


def test_rebuild_with_an_invalid_index_type_changes_nothing(folder):
    before = sorted(path.name for path in (folder / "segments").iterdir())
    with FolderWriter(folder) as writer:
        with pytest.raises(ConfigError, match="IVFx,Nonsense"):
            writer.rebuild(StructureSettings("IVFx,Nonsense"))
        assert writer.structures == StructureSettings()
    assert sorted(path.name for path in (folder / "segments").iterdir()) == before
    assert verify(folder) == []


def test_auto_without_faiss_is_flat(folder, monkeypatch):
    def missing():
        raise MissingExtraError("no FAISS")

    monkeypatch.setattr("indexes.vectors.segment_structure.load_faiss", missing)
    monkeypatch.setattr("indexes.vectors.choice.FLAT_LIMIT", 100)
    with FolderWriter(folder) as writer:
        writer.compact()
        structure = writer.segments()[0].segment.structure
        assert structure.name == "flat"
        assert structure.reasons[-1] == "FAISS is not installed: flat"
        with pytest.raises(MissingExtraError):
            writer.rebuild(StructureSettings("ivf"))
        assert writer.structures == StructureSettings()


@pytest.mark.parametrize("memory", [0, -5])
def test_memory_limit_below_one_byte_is_refused(memory):
    with pytest.raises(ConfigError, match="memory: expected 1 byte or more"):
        StructureSettings("auto", memory)


def test_a_structure_that_was_opened_is_searched_though_its_file_is_gone(folder):
    """A merge removes the files of segments that a reader is about to search."""
    with FolderWriter(folder) as writer:
        writer.rebuild(StructureSettings("ivf"))
    segment = only_segment(folder)
    queries = np.asarray(segment.vectors[:3])
    with FolderWriter(folder) as writer:
        writer.rebuild(StructureSettings("flat"))
    assert not segment.folder.exists()
    results = segment.structure.search(segment.vectors, queries, 5)
    assert [positions[0] for positions, _ in results] == [0, 1, 2]


def test_structures_leave_no_file_open(folder):
    with FolderWriter(folder) as writer:
        writer.rebuild(StructureSettings("IVF4,Flat"))
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        segment = only_segment(folder)
        segment.structure.search(segment.vectors, np.asarray(segment.vectors[:1]), 5)
        del segment
    gc.collect()
    assert len(os.listdir("/dev/fd")) <= before + 1
