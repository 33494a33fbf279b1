"""The choice of a structure: what holds for every size, and what is refused."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.errors import ConfigError
from indexes.vectors.choice import FLAT_LIMIT, NAMES, choose, list_count, resolve, training_size
from indexes.vectors.library import load_faiss
from indexes.vectors.structure import open_structure, write_structure
from tests.indexes.vectors.structure_samples import best

KINDS = [name for name in NAMES if name != "auto"]
ENOUGH = st.integers(10_000, 10**8)  # passages, for every kind
DIMENSIONS = st.integers(1, 4096)
BUDGETS = st.one_of(st.none(), st.integers(0, 10**12))


@given(st.sampled_from(KINDS), ENOUGH, ENOUGH, DIMENSIONS, DIMENSIONS)
def test_memory_grows_with_passages_and_dimensions(kind, n, more, d, wider):
    small = resolve(kind, min(n, more), min(d, wider), None)
    large = resolve(kind, max(n, more), max(d, wider), None)
    assert small.memory_bytes <= large.memory_bytes
    assert small.build_bytes <= large.build_bytes


@given(st.integers(0, 10**8), DIMENSIONS, BUDGETS)
def test_auto_is_flat_while_small_and_otherwise_the_first_that_fits(n, d, budget):
    choice = choose(n, d, budget)
    assert choice == resolve("auto", n, d, budget)
    if n <= FLAT_LIMIT:
        assert choice.name == "flat"
    else:
        sizes = {kind: resolve(kind, n, d, None) for kind in ("ivf-sq8", "ivf-pq")}
        fitting = [k for k, c in sizes.items() if budget is None or c.memory_bytes <= budget]
        assert choice.name == (fitting or ["ivf-pq"])[0]
        assert choice.memory_bytes == sizes[choice.name].memory_bytes
    assert all(reason and "\n" not in reason for reason in choice.reasons)


@given(st.sampled_from(KINDS), ENOUGH, DIMENSIONS, BUDGETS)
def test_named_index_type_ignores_the_memory_budget(kind, n, d, budget):
    assert resolve(kind, n, d, budget).name == kind


@given(st.integers(39, 10**8))
def test_training_sample_has_at_least_39_vectors_per_list(n):
    lists = list_count(n)
    sample = training_size(n, lists)
    assert 39 * lists <= sample <= n
    # FAISS leaves out what is more than 256 a centroid; these bounds leave it no need to.
    assert sample <= max(2**16, 64 * lists) <= 2**20


def test_list_count_grows_with_the_square_root_up_to_a_limit():
    assert [list_count(n) for n in (10**5, 10**6, 10**7)] == [1264, 4000, 4096]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([*NAMES, "IVF8,SQ4", "Pad16,IVF8,PQ4x4", "HNSW8"]),
    st.integers(0, 300),
    st.integers(1, 12),
)
def test_index_type_resolved_for_few_passages_can_be_built_and_searched(name, n, d):
    choice = resolve(name, n, d, None)
    chance = np.random.default_rng(n)
    vectors = chance.standard_normal((n, d)).astype(np.float32)
    query = chance.standard_normal((1, d)).astype(np.float32)
    assert choice.reasons
    if choice.name == "flat":
        assert choice.factory == "Flat"
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "structure")
        write_structure(path, vectors, choice)
        structure = open_structure(path, n, d)
        ((positions, _),) = structure.searcher.search(
            vectors, query, n, effort=structure.searcher.efforts[-1]
        )
        assert sorted(positions.tolist()) == list(range(n))
        assert positions[0] == best(vectors, query[0], 1)[0]


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivf-sq8", "ivf-pq"])
@pytest.mark.parametrize("d", [30, pytest.param(32, marks=pytest.mark.soak)])
def test_estimated_memory_is_near_the_file_size(tmp_path, kind, d):
    vectors = np.random.default_rng(3).standard_normal((10_000, d)).astype(np.float32)
    choice = resolve(kind, 10_000, d, None)
    for other in (1, 5, 384):
        factory = resolve(kind, 20_000, other, None).factory
        assert load_faiss().index_factory(other, factory, 0).d == other
    write_structure(tmp_path / "structure", vectors, choice)
    size = (tmp_path / "structure").stat().st_size
    assert 0.95 * size <= choice.memory_bytes <= 1.2 * size
    # The same price when FAISS is asked what the string means.
    assert resolve(choice.factory, 10_000, d, None).memory_bytes == pytest.approx(
        choice.memory_bytes, rel=0.02
    )


@pytest.mark.parametrize(
    ("name", "n", "kind", "reason"),
    [
        ("ivf-pq", 5_000, "ivf-sq8", "5,000 passages are too few to train a product quantizer"),
        ("ivf-pq", 20, "flat", "20 passages are too few"),
        ("ivf", 38, "flat", "38 passages are too few"),
        ("hnsw", 0, "flat", "0 passages are too few"),
        ("IVF4096,Flat", 4_095, "flat", "which needs 4,096"),
        ("PQ4", 255, "flat", "which needs 256"),
        ("Flat", 10**6, "flat", "Flat is flat"),
        ("IVF4096,Flat", 4_096, "IVF4096,Flat", "159,744 in all; there are 4,096"),
    ],
)
def test_too_few_passages_fall_back_to_a_trainable_type_with_a_reason(name, n, kind, reason):
    choice = resolve(name, n, 8, None)
    assert choice.name == kind
    assert reason in choice.reasons[-1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nonsense", "could not parse index string nonsense"),
        ("", "could not parse index string"),
        ("IVF", "could not parse"),
        ("IVF0,Flat", "it has no lists"),
        ("IVF99999999999,Flat", "stoi"),
        ("PQ7", "should be a multiple of the number of subquantizers"),
        ("LSH", "metric == METRIC_L2"),
        ("IDMap,Flat", "leave IDMap out"),
        ("IVF8,Flat,IDMap2", "leave IDMap out"),
        ("HNSW0", "at least 4 links, found 0"),
        ("PCA4,HNSW1_SQ8", "at least 4 links, found 1"),
        ("x" * 300, "could not parse"),
    ],
)
def test_invalid_faiss_index_type_is_refused_in_one_line(name, reason):
    with pytest.raises(ConfigError) as refused:
        resolve(name, 1000, 32, None)
    message = str(refused.value)
    assert reason in message
    assert "auto, flat, hnsw, ivf, ivf-sq8, ivf-pq" in message
    assert "\n" not in message
    assert "/project" not in message
