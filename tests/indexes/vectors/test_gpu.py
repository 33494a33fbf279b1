"""Structures that are built on a GPU if FAISS finds one; here a stand-in computes on the CPU."""

from types import SimpleNamespace

import pytest

import indexes.vectors.build
from indexes.vectors.library import count_gpus, load_faiss
from tests.indexes.vectors.structure_samples import build, clustered, recall_of

N, D = 3000, 16
VECTORS, _, QUERIES = clustered(N, D)


class GpuFaiss(SimpleNamespace):
    """A FAISS module whose GPUs are simulated on the CPU."""

    def __init__(self, *, gpus=2, refusal=False):
        super().__init__(steps=[], gpus=gpus, refusal=refusal)

    def __getattr__(self, name):
        return getattr(load_faiss(), name)

    def get_num_gpus(self):
        return int(self.gpus)

    def index_cpu_to_all_gpus(self, index):
        self.steps.append(("there", index.is_trained))
        if self.refusal:
            raise RuntimeError("this type is not implemented on a GPU")
        return load_faiss().clone_index(index)

    def index_gpu_to_cpu(self, index):
        self.steps.append(("back", index.ntotal))
        return index


@pytest.fixture
def gpu(monkeypatch):
    stand_in = GpuFaiss()
    monkeypatch.setattr(indexes.vectors.build, "load_faiss", lambda: stand_in)
    return stand_in


def found_by(structure):
    searcher = structure.searcher
    return searcher.search(VECTORS, QUERIES, 10, effort=searcher.efforts[-1])


@pytest.mark.parametrize("name", ["ivf", "ivf-sq8", "IVF16,PQ4x4", "Pad20,IVF16,SQ4"])
def test_inverted_lists_are_trained_and_filled_on_the_gpu(tmp_path, gpu, name):
    structure = build(tmp_path / "structure", VECTORS, name)
    assert gpu.steps == [("there", False), ("back", N)]
    # The file is as the CPU makes it.
    gpu.gpus = 0
    alone = build(tmp_path / "alone", VECTORS, name)
    assert structure.facts == alone.facts
    for built in (structure, alone):
        assert recall_of(found_by(built), VECTORS, QUERIES, 10) > 0.95


@pytest.mark.parametrize(("name", "gpus"), [("HNSW16", 2), ("SQ8", 2), ("PQ4x4fs", 2), ("ivf", 0)])
def test_structures_unsupported_by_gpus_are_built_on_the_cpu(tmp_path, gpu, name, gpus):
    gpu.gpus = gpus
    build(tmp_path / "structure", VECTORS, name)
    assert gpu.steps == []


def test_structure_that_the_gpu_refuses_is_built_on_the_cpu(tmp_path, gpu):
    gpu.refusal = True
    with pytest.warns(UserWarning, match="cannot build ivf on the GPU .*not implemented"):
        structure = build(tmp_path / "structure", VECTORS, "ivf")
    assert gpu.steps == [("there", False)]
    gpu.gpus = 0
    assert recall_of(found_by(structure), VECTORS, QUERIES, 10) == 1


def test_faiss_without_gpu_support_counts_no_gpus():
    assert count_gpus(SimpleNamespace()) == 0
