"""What is given to a GPU where FAISS finds one; a stand-in for FAISS on a GPU computes it here."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from structure_samples import build, clustered, recall_of

import indexes.vectors.flat
import indexes.vectors.library
import indexes.vectors.structure
from indexes.filters.columns import Allowed
from indexes.vectors.flat import search_flat
from indexes.vectors.library import count_gpus, gpu_resources, load_faiss

N, D = 3000, 16
VECTORS, _, QUERIES = clustered(N, D)


class GpuFaiss(SimpleNamespace):
    """FAISS with GPUs, which are the CPU."""

    def __init__(self, *, gpus=2, refusal=False):
        super().__init__(steps=[], gpus=gpus, refusal=refusal, arguments={})

    def __getattr__(self, name):
        return getattr(load_faiss(), name)

    def get_num_gpus(self):
        return int(self.gpus)

    def index_cpu_to_all_gpus(self, index):
        self.steps.append(("there", index.is_trained))
        self._refuse()
        return load_faiss().clone_index(index)

    def index_gpu_to_cpu(self, index):
        self.steps.append(("back", index.ntotal))
        return index

    def StandardGpuResources(self):
        self.steps.append("resources")
        return "resources"

    def knn_gpu(self, resources, queries, vectors, k, **rest):
        self.steps.append("scan")
        self.arguments = {"resources": resources, **rest}
        self._refuse()
        scores = queries @ vectors.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, order, 1), order

    def _refuse(self):
        if self.refusal:
            raise RuntimeError("this type is not implemented on a GPU")


@pytest.fixture
def gpu(monkeypatch):
    stand_in = GpuFaiss()
    monkeypatch.setattr(indexes.vectors.structure, "load_faiss", lambda: stand_in)
    monkeypatch.setattr(indexes.vectors.flat, "load_faiss", lambda: stand_in)
    monkeypatch.setattr(indexes.vectors.flat, "_GPU_LEAST", 20 * VECTORS.size)
    monkeypatch.setattr(indexes.vectors.library, "_OF_THREAD", SimpleNamespace())
    return stand_in


def check_scan(queries, k, allowed=None):
    found = search_flat(VECTORS, queries, k, None if allowed is None else Allowed(allowed))
    assert recall_of(found, VECTORS, queries, k, allowed) == 1


def found_by(structure):
    searcher = structure.searcher
    return searcher.search(VECTORS, QUERIES, 10, effort=searcher.efforts[-1])


@pytest.mark.parametrize("name", ["ivf", "ivf-sq8", "IVF16,PQ4x4", "Pad20,IVF16,SQ4"])
def test_inverted_lists_are_trained_and_filled_there(tmp_path, gpu, name):
    structure = build(tmp_path / "structure", VECTORS, name)
    assert gpu.steps == [("there", False), ("back", N)]
    # The file is as the CPU makes it.
    gpu.gpus = 0
    alone = build(tmp_path / "alone", VECTORS, name)
    assert structure.facts == alone.facts
    for one in (structure, alone):
        assert recall_of(found_by(one), VECTORS, QUERIES, 10) > 0.95


@pytest.mark.parametrize(
    ("name", "gpus"), [("HNSW16", 2), ("SQ8", 2), ("PQ4x4fs", 2), ("NSG16", 2), ("ivf", 0)]
)
def test_what_gpus_do_not_have_is_not_sent_there(tmp_path, gpu, name, gpus):
    gpu.gpus = gpus
    build(tmp_path / "structure", VECTORS, name)
    assert gpu.steps == []


def test_what_a_gpu_refuses_is_built_here(tmp_path, gpu):
    gpu.refusal = True
    with pytest.warns(UserWarning, match="cannot build ivf on the GPU .*not implemented"):
        structure = build(tmp_path / "structure", VECTORS, "ivf")
    assert gpu.steps == [("there", False)]
    gpu.gpus = 0
    assert recall_of(found_by(structure), VECTORS, QUERIES, 10) == 1


def test_a_large_batch_is_scanned_there_and_resources_are_made_once(gpu):
    check_scan(QUERIES, 10)
    check_scan(QUERIES[:20], 10)
    assert gpu.steps == ["resources", "scan", "scan"]
    assert gpu.arguments["resources"] == "resources"
    assert gpu.arguments["metric"] == load_faiss().METRIC_INNER_PRODUCT
    assert gpu.arguments["vectorsMemoryLimit"] == 2**30


@pytest.mark.parametrize(
    ("queries", "k", "allowed", "gpus"),
    [(19, 10, None, 2), (60, 2049, None, 2), (60, 10, np.arange(N) % 2 == 0, 2), (60, 10, None, 0)],
    ids=["few-queries", "large-k", "filter", "no-gpu"],
)
def test_other_scans_stay_here(gpu, queries, k, allowed, gpus):
    gpu.gpus = gpus
    check_scan(QUERIES[:queries], k, allowed)
    assert gpu.steps == []


def test_a_scan_that_a_gpu_has_no_memory_for_is_made_here(gpu):
    gpu.refusal = True
    with pytest.warns(UserWarning, match="cannot scan on the GPU"):
        check_scan(QUERIES, 10)
    assert gpu.steps == ["resources", "scan"]


def test_each_thread_has_resources_of_its_own():
    made = SimpleNamespace(StandardGpuResources=object)
    assert count_gpus(made) == 0
    with ThreadPoolExecutor(1) as other:
        theirs = [other.submit(gpu_resources, made).result() for _ in range(2)]
    assert theirs[0] is theirs[1] is not gpu_resources(made)
    assert gpu_resources(made) is gpu_resources(made)
