"""SBERT-WK's vector of one text beside that of the reference, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from retriever.encoders.fusion.sbert_wk import (
    SBERTWKSettings,
    first_state,
    sbert_wk,
    sbert_wk_weights,
)
from retriever.errors import ConfigError
from tests.retriever.encoders.fusion.sbert_wk_reference import reference

OMEGAS = {"combined": 0.5, "alignment": 1.0, "novelty": 0.0}
VARIANTS = [("paper", "all"), ("paper", "fused"), ("released", "fused")]


def settings_of(depth: int, **chosen: Any) -> SBERTWKSettings:
    return SBERTWKSettings(**chosen).resolved(depth)


def embed(
    hidden: NDArray[Any], settings: SBERTWKSettings, kept: Sequence[bool] | None = None
) -> NDArray[np.float64]:
    """The vector of one text from (hidden states, pieces, d)."""
    places = torch.ones(1, hidden.shape[1], dtype=torch.bool)
    if kept is not None:
        places[0] = torch.tensor(kept)
    states = list(hidden[first_state(settings) :, None])
    found = sbert_wk(list(map(torch.tensor, states)), places, settings).numpy()
    arrays = sbert_wk(states, places.numpy(), settings)
    assert found.dtype == arrays.dtype == np.float32
    np.testing.assert_allclose(arrays, found, rtol=1e-5, atol=1e-6 * np.abs(hidden).max())
    return found[0].astype(np.float64)


def weigh(
    hidden: NDArray[Any], settings: SBERTWKSettings, kept: Sequence[bool] | None = None
) -> SimpleNamespace:
    """The weights in one text, as the reference has them, by torch and by NumPy."""
    places = np.array([kept or [True] * hidden.shape[1]])
    states = list(hidden[first_state(settings) :, None])
    found = sbert_wk_weights(list(map(torch.tensor, states)), torch.tensor(places), settings)
    arrays = sbert_wk_weights(states, places, settings)
    for name in ("layers", "words", "beta", "nu"):
        one, other = getattr(found, name).numpy(), getattr(arrays, name)
        assert one.dtype == other.dtype == np.float64
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9)
    return SimpleNamespace(
        layers=arrays.layers.T, words=arrays.words, beta=arrays.beta.T, nu=arrays.nu.T
    )


def expect(
    hidden: NDArray[Any], settings: SBERTWKSettings, kept: Sequence[bool] | None = None
) -> Any:
    return reference(
        hidden,
        np.ones(hidden.shape[1], bool) if kept is None else np.array(kept),
        preset=settings.preset,
        start=settings.start_layer or 0,
        window=settings.window,
        omega=settings.omega,
        variance=settings.variance or "",
        word_weights=settings.words,
        layer_weights=settings.layers,
    )


def assert_same_vector(found: NDArray[Any], expected: NDArray[Any], relative: float = 1e-5) -> None:
    lengths = np.linalg.norm(found) * np.linalg.norm(expected)
    assert found @ expected / lengths > 1 - 1e-9
    assert np.linalg.norm(found - expected) < relative * np.linalg.norm(expected)


def variants(depth: int) -> list[SBERTWKSettings]:
    """Every preset, variance, window of 1 to 4, weight and some start layers that exist."""
    found = []
    for (preset, variance), window, start, omega in product(
        VARIANTS, (1, 2, 3, 4), (0, 1, depth // 2, depth - 1), OMEGAS.values()
    ):
        try:
            found.append(
                settings_of(
                    depth,
                    preset=preset,
                    start_layer=start,
                    window=window,
                    omega=omega,
                    variance=variance,
                )
            )
        except ConfigError:
            continue
    return found
