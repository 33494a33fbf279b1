"""Structure files: what is written is what is searched, damage is named; recall and effort."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexes.vectors.build
from indexes.errors import ConfigError, DamagedIndexError, FormatVersionError
from indexes.passage_mask import PassageMask
from indexes.vectors.choice import Choice, resolve
from indexes.vectors.library import load_faiss
from indexes.vectors.recall import Measured, measure, recall_at, sample_queries
from indexes.vectors.segment_structure import SegmentStructure
from indexes.vectors.structure import open_structure, write_structure
from tests.indexes.vectors.structure_samples import best, build, clustered

N, D = 3000, 16
VECTORS, _, QUERIES = clustered(N, D)
TYPES = [
    "hnsw",
    "ivf",
    "ivf-sq8",
    "IVF16,PQ4x4",
    "Pad20,IVF16,SQ4",
    "HNSW8_SQ8",
    "IVF16,Flat,RFlat",
]


@pytest.fixture(autouse=True)
def _one_thread():
    """Build on one thread: several may add to a graph in any order."""
    faiss = load_faiss()
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


def write(path, name):
    write_structure(path, VECTORS, resolve(name, N, D, None))
    return path.read_bytes()


@pytest.mark.parametrize("name", TYPES)
def test_structure_file_is_deterministic(tmp_path, name):
    assert write(tmp_path / "first", name) == write(tmp_path / "second", name)


def test_structure_file_depends_on_the_training_sample(tmp_path, monkeypatch):
    whole = write(tmp_path / "whole", "ivf")
    monkeypatch.setattr(indexes.vectors.build, "training_size", lambda n, lists: n // 2)
    half = write(tmp_path / "half", "ivf")
    assert whole != half == write(tmp_path / "again", "ivf")
    assert open_structure(tmp_path / "half", N, D).facts.passages == N


def test_opening_loads_no_faiss_and_reads_no_vectors(tmp_path):
    write(tmp_path / "structure", "ivf")
    code = (
        "import pathlib, sys; from indexes.vectors.structure import open_structure; "
        f"open_structure(pathlib.Path({str(tmp_path / 'structure')!r}), {N}, {D}); "
        "sys.exit('faiss' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", ["hnsw", "ivf", "ivf-sq8"])
def test_the_file_is_mapped_while_it_is_searched(tmp_path, name):
    structure = build(tmp_path / "structure", VECTORS, name)
    structure.searcher.search(VECTORS, QUERIES, 5)
    assert str(tmp_path / "structure") in Path("/proc/self/maps").read_text()


def test_a_structure_that_faiss_cannot_train_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"'IVF5000,Flat': FAISS cannot build .*3,000 vectors"):
        write_structure(tmp_path / "x", VECTORS, Choice("IVF5000,Flat", "IVF5000,Flat", (), 0, 0))


@pytest.mark.parametrize("name", TYPES)
def test_a_flipped_byte_is_named_or_does_no_harm(tmp_path, name):
    path = tmp_path / "structure"
    content = write(path, name)
    chance = np.random.default_rng(1)
    # Every byte of the head, where sizes are declared, and of the end, and others between.
    places = {*range(0, 400, 7), *range(len(content) - 1024, len(content) - 700, 7)}
    places |= set(chance.integers(0, len(content), 60).tolist())
    refused = 0
    for place in sorted(places):
        altered = bytearray(content)
        altered[place] ^= 0x80
        path.write_bytes(altered)
        try:
            results = open_structure(path, N, D).searcher.search(VECTORS, QUERIES[:3], 10)
        except DamagedIndexError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
            continue
        for query, (positions, scores) in zip(QUERIES, results, strict=False):
            assert len(set(positions.tolist())) == 10
            np.testing.assert_allclose(scores, VECTORS[positions] @ query, rtol=1e-5, atol=1e-5)
    assert refused >= 90


@pytest.mark.parametrize("allowed", [None, PassageMask(np.arange(N) != 5)])
def test_structure_with_an_unknown_passage_is_damage(tmp_path, allowed):
    path = tmp_path / "structure"
    content = bytearray(write(path, "ivf"))
    last = slice(len(content) - 1024 - 8, len(content) - 1024)
    lost = int.from_bytes(content[last], "little")
    content[last] = (10**9).to_bytes(8, "little")
    path.write_bytes(content)
    structure = open_structure(path, N, D)
    with pytest.raises(DamagedIndexError, match="structure: it holds a passage"):
        structure.searcher.search(VECTORS, VECTORS[lost : lost + 1], 10, allowed)


def test_a_structure_of_other_vectors_is_refused(tmp_path):
    write(tmp_path / "structure", "ivf")
    with pytest.raises(DamagedIndexError, match="expected 2999 vectors of 16 dimensions, found 30"):
        open_structure(tmp_path / "structure", N - 1, D)
    with pytest.raises(DamagedIndexError, match="of 15 dimensions, found 3000 of 16"):
        open_structure(tmp_path / "structure", N, D - 1)


def test_a_file_of_another_release_of_faiss_says_so(tmp_path, monkeypatch):
    structure = build(tmp_path / "structure", VECTORS, "ivf")

    def refuse(*_):
        raise RuntimeError("Index type 0x12345678 not recognized")

    monkeypatch.setattr(load_faiss(), "read_index", refuse)
    with pytest.raises(FormatVersionError, match=r"structure: FAISS .* wrote it"):
        structure.searcher.search(VECTORS, QUERIES, 5)


@pytest.mark.parametrize("name", ["hnsw", "ivf"])
def test_truncated_structure_file_is_refused(tmp_path, name):
    path = tmp_path / "structure"
    content = write(path, name)
    sizes = (0, 100, 1024, 1025, len(content) // 2, len(content) - 1)
    for cut in (
        *(content[:size] for size in sizes),
        content[: len(content) // 2] + content[-1024:],
    ):
        path.write_bytes(cut)
        with pytest.raises(
            DamagedIndexError, match=r"structure: (expected .* bytes|it does not end)"
        ):
            open_structure(path, N, D)
    path.unlink()
    with pytest.raises(DamagedIndexError, match="structure: the file is missing"):
        open_structure(path, N, D)


def results(*rows):
    return [tuple(map(np.array, zip(*row, strict=True))) for row in rows]


def test_recall_is_the_share_of_the_best_that_was_found():
    exact = results([(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6)], [(5, 0.9), (6, 0.8), (7, 0.7)])
    results_found = results([(1, 0.9), (3, 0.7), (4, 0.6)], [(6, 0.8), (7, 0.7), (9, 0.1)])
    assert recall_at(results_found, exact, 3) == pytest.approx(4 / 6)
    assert recall_at(results_found, exact, 1) == pytest.approx(1 / 2)
    assert recall_at(exact, exact, 10) == 1


def test_recall_counts_any_of_equal_scores():
    exact = results([(1, 0.9), (2, 0.5), (3, 0.5)])
    assert recall_at(results([(1, 0.9), (7, 0.5)]), exact, 2) == 1
    assert recall_at(results([(7, 0.5), (3, 0.5)]), exact, 2) == 1
    assert recall_at(results([(1, 0.9), (8, 0.49)]), exact, 2) == 0.5


def test_sampled_queries_are_near_their_passages_and_repeatable():
    queries, own = sample_queries(VECTORS, 50)
    assert queries.dtype == np.float32
    assert queries.shape == (50, D)
    assert len(set(own.tolist())) == 50
    assert (np.diff(own) > 0).all()
    passage_vectors = VECTORS[own]
    lengths = np.linalg.norm(queries, axis=1) * np.linalg.norm(passage_vectors, axis=1)
    cosines = (queries * passage_vectors).sum(axis=1) / lengths
    assert ((cosines > 0.7) & (cosines < 0.99)).all()
    np.testing.assert_array_equal(queries, sample_queries(VECTORS, 50)[0])
    assert (sample_queries(VECTORS, 50, seed=1)[1] != own).any()
    assert len(sample_queries(VECTORS[:7], 50)[1]) == 7


@pytest.mark.parametrize("name", ["ivf", "hnsw", "PQ4x4fs"])
def test_measured_recall_equals_brute_force(tmp_path, name):
    searcher = build(tmp_path / "structure", VECTORS, name).searcher
    queries, sources = sample_queries(VECTORS, 40)
    measured = measure(searcher, VECTORS, queries, sources)
    assert [measurement.effort for measurement in measured] == list(
        searcher.efforts[: len(measured)]
    )
    assert len(measured) == len(searcher.efforts) or measured[-1].recall == 1
    assert name != "ivf" or measured[0].recall < measured[-1].recall == 1
    for measurement in measured[:3]:
        hits = 0
        results = searcher.search(VECTORS, queries, 11, effort=measurement.effort)
        for query, own, (positions, _) in zip(queries, sources, results, strict=True):
            other_rows = np.arange(len(VECTORS)) != own
            positions = positions[positions != own][:10]
            hits += len(np.intersect1d(positions, best(VECTORS, query, 10, other_rows)))
        assert measurement.recall == pytest.approx(hits / 400)


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1),
    st.none() | st.floats(0, 1, exclude_min=True),
)
def test_the_least_effort_that_reaches_the_target_is_chosen(pairs, target):
    structure = SegmentStructure("ivf", (), tuple(Measured(*pair) for pair in pairs))
    most = max(recall for _, recall in pairs)
    least = min(0.95, most) if target is None else target
    enough = sorted(effort for effort, recall in pairs if recall >= least)
    if enough:
        assert structure.effort(target) == enough[0]
    else:
        with pytest.raises(ConfigError, match=f"the best .* {most:.4f}"):
            structure.effort(target)


@pytest.mark.parametrize("target", [0.0, -1.0, 1.5, float("nan")])
def test_recall_target_outside_zero_to_one_is_refused(target):
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        SegmentStructure("ivf", (), (Measured(1, 1.0),)).effort(target)
    assert SegmentStructure("flat").effort(target) is None
