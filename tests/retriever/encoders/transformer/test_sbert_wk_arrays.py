"""SBERT-WK in NumPy beside SBERT-WK in torch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state, sbert_wk
from retriever.encoders.fusion.sbert_wk_arrays import sbert_wk as sbert_wk_arrays

DEPTH = 6


def settings():
    variants = [("paper", "all"), ("paper", "fused"), ("released", "fused")]
    for (preset, variance), window, start in product(variants, [1, 2, 4], [0, 2, DEPTH - 1]):
        if preset == "released" and start + window > DEPTH:
            continue
        yield SBERTWKSettings(preset, start, window, 0.3, variance).resolved(DEPTH)
    yield SBERTWKSettings(words="uniform").resolved(DEPTH)
    yield SBERTWKSettings(layers="uniform").resolved(DEPTH)
    yield SBERTWKSettings(layers="last", words="uniform").resolved(DEPTH)


def states_of(kind):
    draw = np.random.default_rng(7)
    states = draw.standard_normal((DEPTH + 1, 5, 9, 12)).astype(np.float32)
    if kind == "equal layers":
        states[:] = states[0]
    elif kind == "zero vectors":
        states[2:4, 1, 3] = 0
        states[:, 2, 2] = 0
    elif kind == "spanned":
        states[4] = states[2] + states[3]
    return states


@pytest.mark.parametrize("kind", ["any", "equal layers", "zero vectors", "spanned"])
def test_it_gives_the_vectors_of_torch(kind):
    states = states_of(kind)
    kept = np.random.default_rng(1).random((5, 9)) < 0.7
    kept[4] = False
    for one in settings():
        read = states[first_state(one) :]
        expected = sbert_wk(list(torch.from_numpy(read)), torch.from_numpy(kept), one)
        found = sbert_wk_arrays(list(read), kept, one)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5, err_msg=str(one))
        assert not found[4].any()


def test_many_pieces_are_measured_in_parts():
    draw = np.random.default_rng(3)
    states = list(draw.standard_normal((DEPTH + 1, 20, 40, 8)).astype(np.float32))
    kept = np.ones((20, 40), bool)
    one = SBERTWKSettings().resolved(DEPTH)
    alone = [sbert_wk_arrays([s[[row]] for s in states], kept[[row]], one) for row in range(20)]
    np.testing.assert_allclose(
        sbert_wk_arrays(states, kept, one), np.concatenate(alone), rtol=0, atol=1e-6
    )
