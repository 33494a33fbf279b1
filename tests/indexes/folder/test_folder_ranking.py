"""Candidates of a folder, against sorting all passages by score and number."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes import Query
from indexes.bm25.postings import Postings
from indexes.bm25.scoring import BM25
from indexes.folder.segment import LiveSegment, Segment
from indexes.folder.view import Commit, FolderRanking
from indexes.passage_mask import PassageMask
from indexes.vectors.segment_structure import FLAT_STRUCTURE

WORDS = ["apple", "pear", "plum"]


@st.composite
def cases(draw):
    """Draw segments of a few distinct passages, with deletions and a filter."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, kinds = draw(st.integers(1, 150)), draw(st.integers(1, 5))
    vectors = chance.standard_normal((kinds, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [chance.choice(WORDS, chance.integers(0, 4)).tolist() for _ in range(kinds)]
    kind = chance.integers(0, kinds, n)
    share = draw(st.sampled_from([None, 0.02, 0.3, 0.8]))
    alive = chance.random(n) < draw(st.sampled_from([1.0, 0.7]))
    return {
        "ids": np.cumsum(chance.integers(1, 4, n)),
        "vectors": vectors.astype(np.float32)[kind],
        "terms": [texts[i] for i in kind],
        "cuts": sorted(draw(st.sets(st.integers(1, n), max_size=4)) | {0, n}),
        "alive": alive,
        "allowed": None if share is None else alive & (chance.random(n) < share),
        "depth": draw(st.integers(1, 40)),
        "queries": [
            Query([str(chance.choice(WORDS))], chance.standard_normal(5).astype(np.float32) / 3)
            for _ in range(3)
        ],
    }


@settings(deadline=None)
@given(cases())
def test_candidates_equal_sorting_by_score_and_passage_number(case):
    ids, depth, allowed = case["ids"], case["depth"], case["allowed"]
    parts = [slice(*ends) for ends in zip(case["cuts"], case["cuts"][1:], strict=False)]
    segments = []
    for part in parts:
        postings = Postings.build(case["terms"][part])
        segment = Segment(
            *(0, Path(), "", ids[part], case["vectors"][part], postings, FLAT_STRUCTURE)
        )
        alive = None if case["alive"][part].all() else case["alive"][part]
        segments.append(LiveSegment(postings=segment.postings, live=alive, segment=segment))
    parts = None if allowed is None else [PassageMask(allowed[part]) for part in parts]
    ranking = FolderRanking(Commit(segments=tuple(segments)), BM25(segments), parts, None)
    counted = case["alive"] if allowed is None else allowed

    def best(scores, counted):
        places = sorted(np.flatnonzero(counted), key=lambda i: (-scores[i], ids[i]))
        return {int(ids[i]) for i in places[:depth]}

    expected = {"dense": [], "bm25": [], "hybrid": []}
    for query in case["queries"]:
        dense = best(np.round(case["vectors"] @ query.vector.astype(np.float64), 6), counted)
        prepared = BM25(segments).query(query.terms)
        everything = [
            prepared.at(i, np.arange(len(segment.postings))) for i, segment in enumerate(segments)
        ]
        scores, matches = map(np.concatenate, zip(*everything, strict=True))
        bm25 = best(scores, counted & matches)
        for mode, passages in (("dense", dense), ("bm25", bm25), ("hybrid", dense | bm25)):
            expected[mode].append(passages)
    for mode, passages in expected.items():
        together = ranking.candidates(case["queries"], mode, depth)
        alone = [ranking.candidates([query], mode, depth)[0] for query in case["queries"]]
        assert [set(candidates.passages.tolist()) for candidates in together] == passages
        assert [set(candidates.passages.tolist()) for candidates in alone] == passages
        for candidates, other in zip(together, alone, strict=True):
            assert len(candidates.passages) == len(set(candidates.passages.tolist()))
            assert (candidates.dense.tolist(), candidates.complete) == (
                other.dense.tolist(),
                other.complete,
            )
