"""Recall against brute force, and the least effort that reaches it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structure_samples import best, build, clustered

from indexes.errors import ConfigError
from indexes.vectors.effort import Measured, SegmentStructure
from indexes.vectors.structure import measure, recall_at, sample_queries

VECTORS, _, _ = clustered(6000, 24)


def results(*rows):
    return [tuple(map(np.array, zip(*row, strict=True))) for row in rows]


def test_recall_is_the_share_of_the_best_that_was_found():
    exact = results([(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6)], [(5, 0.9), (6, 0.8), (7, 0.7)])
    found = results([(1, 0.9), (3, 0.7), (4, 0.6)], [(6, 0.8), (7, 0.7), (9, 0.1)])
    assert recall_at(found, exact, 3) == pytest.approx(4 / 6)
    assert recall_at(found, exact, 1) == pytest.approx(1 / 2)
    assert recall_at(exact, exact, 10) == 1


def test_of_equal_vectors_either_counts():
    exact = results([(1, 0.9), (2, 0.5), (3, 0.5)])
    assert recall_at(results([(1, 0.9), (7, 0.5)]), exact, 2) == 1
    assert recall_at(results([(7, 0.5), (3, 0.5)]), exact, 2) == 1
    assert recall_at(results([(1, 0.9), (8, 0.49)]), exact, 2) == 0.5


def test_queries_are_off_their_passages_and_repeatable():
    queries, own = sample_queries(VECTORS, 50)
    assert queries.dtype == np.float32
    assert queries.shape == (50, 24)
    assert len(set(own.tolist())) == 50
    assert (np.diff(own) > 0).all()
    held = VECTORS[own]
    lengths = np.linalg.norm(queries, axis=1) * np.linalg.norm(held, axis=1)
    cosines = (queries * held).sum(axis=1) / lengths
    assert ((cosines > 0.7) & (cosines < 0.99)).all()
    np.testing.assert_array_equal(queries, sample_queries(VECTORS, 50)[0])
    assert (sample_queries(VECTORS, 50, seed=1)[1] != own).any()
    assert len(sample_queries(VECTORS[:7], 50)[1]) == 7


@pytest.mark.parametrize("name", ["ivf", "hnsw", "PQ6x4fs"])
def test_what_is_measured_is_what_brute_force_finds(tmp_path, name):
    searcher = build(tmp_path / "structure", VECTORS, name).searcher
    queries, sources = sample_queries(VECTORS, 40)
    measured = measure(searcher, VECTORS, queries, sources)
    assert [one.effort for one in measured] == list(searcher.efforts[: len(measured)])
    assert len(measured) == len(searcher.efforts) or measured[-1].recall == 1
    assert name != "ivf" or measured[0].recall < 0.99 < measured[-1].recall == 1
    for one in measured[:3]:
        hits = 0
        found = searcher.search(VECTORS, queries, 11, effort=one.effort)
        for query, own, (positions, _) in zip(queries, sources, found, strict=True):
            others = np.arange(len(VECTORS)) != own
            positions = positions[positions != own][:10]
            hits += len(np.intersect1d(positions, best(VECTORS, query, 10, others)))
        assert one.recall == pytest.approx(hits / 400)


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
def test_a_target_that_is_no_share_is_refused_where_there_is_something_to_choose(target):
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        SegmentStructure("ivf", (), (Measured(1, 1.0),)).effort(target)
    assert SegmentStructure("flat").effort(target) is None
