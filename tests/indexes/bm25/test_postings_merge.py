"""Merged postings equal postings built from scratch, byte for byte."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import indexes.bm25.postings
from indexes.bm25.postings import OFFSETS, POSITIONS, Postings, merge_postings
from indexes.errors import DamagedIndexError

TERMS = st.one_of(
    st.sampled_from(["a", "ab", "b", "é"]), st.text(st.characters(codec=None), max_size=3)
)
SEGMENTS = st.lists(st.lists(st.lists(TERMS, max_size=6), max_size=6), min_size=1, max_size=4)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("block", [1, 3, 10**6])
def test_merged_is_as_built_anew(block, monkeypatch):
    monkeypatch.setattr(indexes.bm25.postings, "_BLOCK", block)

    @settings(max_examples=80, deadline=None)
    @given(SEGMENTS, st.randoms(use_true_random=False))
    # Once two bytes are needed for a frequency, and once the passage that needed them is gone.
    @example([[["a"] * 300, ["b"]], [["a"]]], None)
    @example([[["a"] * 300, ["b"]], [["a"]]], False)
    def check(segments, random):
        masks = []
        for number, passages in enumerate(segments):
            if random is None or (random and random.random() < 0.3):
                masks.append(None)
            elif random is False:
                masks.append(np.array([i > 0 or number > 0 for i in range(len(passages))]))
            else:
                drawn = [random.random() < 0.6 for _ in passages]
                masks.append(np.array(drawn, np.bool_))
        with tempfile.TemporaryDirectory() as place:
            sources = []
            for number, passages in enumerate(segments):
                folder = Path(place) / str(number)
                folder.mkdir()
                Postings.build(passages).write(folder)
                sources.append(Postings.open(folder))
            merged, anew = Path(place) / "merged", Path(place) / "anew"
            merged.mkdir()
            anew.mkdir()
            merge_postings(sources, masks, merged)
            live = [
                passage
                for passages, mask in zip(segments, masks, strict=True)
                for i, passage in enumerate(passages)
                if mask is None or mask[i]
            ]
            Postings.build(live).write(anew)
            assert files(merged) == files(anew)
            assert len(Postings.open(merged)) == len(live)

    check()


@pytest.mark.parametrize(("name", "value"), [(POSITIONS, 2**32 - 1), (OFFSETS, -5)])
def test_impossible_postings_are_refused(tmp_path, name, value):
    Postings.build([["a", "b"], ["b", "c"]]).write(tmp_path)
    array = np.load(tmp_path / name)
    array.reshape(-1)[3] = value
    np.save(tmp_path / name, array)
    (tmp_path / "new").mkdir()
    with pytest.raises(DamagedIndexError, match=name):
        merge_postings([Postings.open(tmp_path)], [None], tmp_path / "new")
