"""Heads: the split form against the plain concatenation, gradients, and where training starts."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from retriever.errors import BadInputError, ConfigError
from retriever.rerankers.scorers import InteractionHead
from retriever.rerankers.settings import HeadSettings

HEADS = list(product(("bilinear", "concat", "uv"), ("linear", "mlp")))
START_AS_COSINE = [one for one in HEADS if one[0] != "concat"]
D = 6


def head_of(
    interaction: str, head: str, initial: str = "random", dropout: float = 0.0, seed: int = 0
) -> InteractionHead:
    torch.manual_seed(seed)
    settings = HeadSettings(interaction, head, 5, dropout, initial)  # type: ignore[arg-type]
    return InteractionHead(settings, D)


def vectors(rows: int, seed: int) -> NDArray[np.float32]:
    made = np.random.default_rng(seed).standard_normal((rows, D)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def naive(
    model: InteractionHead, u: NDArray[np.float32], v: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Each pair's interaction as one vector in float64, and matrices for the whole of it."""
    state = {name: value.double().numpy() for name, value in model.state_dict().items()}
    interaction = model.settings.interaction
    parts = {
        "bilinear": lambda a, b: [(a @ state["matrix"]) * b],
        "concat": lambda a, b: [a, b],
        "uv": lambda a, b: [a, b, a * b, abs(a - b)],
    }[interaction]
    names = {"bilinear": ["product"], "concat": ["u", "v"], "uv": ["u", "v", "product", "distance"]}
    scores = []
    for a, b in zip(u.astype(np.float64), v.astype(np.float64), strict=True):
        x = np.concatenate(parts(a, b))
        if interaction == "bilinear" and model.settings.head == "linear":
            scores.append(x.sum())
            continue
        weights = np.concatenate([state[f"weights.{one}"] for one in names[interaction]], axis=1)
        values = weights @ x + state["bias"]
        if model.settings.head == "mlp":
            values = state["out.weight"] @ np.maximum(values, 0) + state["out.bias"]
        scores.append(values[0])
    return np.array(scores)


@pytest.mark.parametrize(("interaction", "head"), HEADS)
def test_forward_is_the_map_of_the_whole_interaction(interaction: str, head: str) -> None:
    model = head_of(interaction, head)
    u, v = vectors(40, 1), vectors(40, 2)
    with torch.no_grad():
        scores = model(torch.from_numpy(u), torch.from_numpy(v))
    assert scores.shape == (40,)
    assert scores.dtype == torch.float32
    np.testing.assert_allclose(scores.numpy(), naive(model, u, v), atol=2e-6)


@pytest.mark.parametrize(("interaction", "head"), HEADS)
def test_pairs_by_rows_are_those_of_forward(interaction: str, head: str) -> None:
    model = head_of(interaction, head)
    questions, passages = torch.from_numpy(vectors(7, 1)), torch.from_numpy(vectors(11, 2))
    draw = torch.Generator().manual_seed(3)
    left = torch.randint(7, (60,), generator=draw)
    right = torch.randint(11, (60,), generator=draw)
    # A row that no pair names has no effect.
    questions[2] = torch.nan
    left[left == 2] = 3
    torch.testing.assert_close(
        model.pairs(questions, passages, left, right), model(questions[left], passages[right])
    )


@pytest.mark.parametrize(("interaction", "head"), HEADS)
def test_gradients_of_the_split_form_are_those_of_finite_differences(
    interaction: str, head: str
) -> None:
    model = head_of(interaction, head).double()
    questions = torch.from_numpy(vectors(3, 1)).double()
    passages = torch.from_numpy(vectors(4, 2)).double()
    left, right = torch.tensor([2, 0, 0, 1, 2]), torch.tensor([0, 1, 3, 3, 3])
    names, values = zip(*model.named_parameters(), strict=True)

    def scores(*weights: torch.Tensor) -> torch.Tensor:
        class Pairs(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self) -> torch.Tensor:
                return self.model.pairs(questions, passages, left, right)

        state = {f"model.{name}": one for name, one in zip(names, weights, strict=True)}
        return torch.func.functional_call(Pairs(), state, ())

    weights = [one.detach().clone().requires_grad_() for one in values]
    assert torch.autograd.gradcheck(scores, weights)


@pytest.mark.parametrize(("interaction", "head"), START_AS_COSINE)
def test_untrained_heads_score_as_the_cosine(interaction: str, head: str) -> None:
    model = head_of(interaction, head, "cosine").eval()
    u, v = vectors(200, 1), vectors(200, 2)
    cosines = (u.astype(np.float64) * v).sum(1)
    assert (cosines < 0).any()
    assert (cosines > 0).any()
    np.testing.assert_allclose(model.score(u, v), cosines, atol=1e-6)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_concatenation_cannot_start_as_the_cosine_and_says_so(head: str) -> None:
    cosine, random = (head_of("concat", head, initial) for initial in ("cosine", "random"))
    assert not cosine.settings.starts_as_cosine
    for name, value in cosine.state_dict().items():
        assert torch.equal(value, random.state_dict()[name])


@pytest.mark.parametrize(("interaction", "head"), HEADS)
def test_the_start_belongs_to_the_seed(interaction: str, head: str) -> None:
    first, same, other = (head_of(interaction, head, seed=seed) for seed in (0, 0, 1))
    for name, value in first.state_dict().items():
        assert torch.equal(value, same.state_dict()[name])
        assert not torch.equal(value, other.state_dict()[name])


@pytest.mark.parametrize("initial", ["cosine", "random"])
@pytest.mark.parametrize("interaction", ["bilinear", "concat", "uv"])
def test_random_units_are_within_the_limit_of_linear_layers(interaction: str, initial: str) -> None:
    model = head_of(interaction, "mlp", initial)
    width = {"bilinear": 1, "concat": 2, "uv": 4}[interaction] * D
    for weight in model.weights.values():
        # The first two units hold the cosine where it is the start.
        assert 0.5 * width**-0.5 < weight[2:].abs().max() <= width**-0.5


def test_dropout_is_of_training_alone() -> None:
    model = head_of("uv", "mlp", dropout=0.5).train()
    u, v = vectors(50, 1), vectors(50, 2)
    left, right = torch.from_numpy(u), torch.from_numpy(v)
    assert not torch.equal(model(left, right), model(left, right))
    np.testing.assert_array_equal(model.score(u, v), model.score(u, v))
    assert model.training
    np.testing.assert_allclose(model.score(u, v), naive(model, u, v), atol=2e-6)


@pytest.mark.parametrize(("interaction", "head"), HEADS)
def test_many_pairs_are_scored_in_chunks_to_the_same_values(interaction: str, head: str) -> None:
    model = head_of(interaction, head)
    questions, passages = vectors(20, 1), vectors(30, 2)
    left, right = (
        np.random.default_rng(seed).integers(high, size=9000) for seed, high in ((3, 20), (4, 30))
    )
    scores = model.score(questions, passages, left, right)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, naive(model, questions[left], passages[right]), atol=2e-6)
    assert model.score(questions[:0], passages[:0]).shape == (0,)


def test_vectors_of_another_encoder_and_unlike_rows_are_refused() -> None:
    model = head_of("bilinear", "linear")
    with pytest.raises(BadInputError, match=r"passages: expected vectors of 6 .*\(4, 5\)"):
        model.score(vectors(4, 1), np.zeros((4, 5), np.float32))
    with pytest.raises(BadInputError, match="found 4 and 3"):
        model.score(vectors(4, 1), vectors(3, 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interaction": "dot"}, "interaction: expected bilinear, concat or uv, found 'dot'"),
        ({"head": "deep"}, "head: expected linear or mlp, found 'deep'"),
        ({"initial": "zero"}, "initial: expected cosine or random, found 'zero'"),
        ({"hidden": 1}, "hidden: expected 2 or more, found 1"),
        ({"dropout": 1.0}, "dropout: expected 0 or more and below 1, found 1"),
        ({"dropout": float("nan")}, "dropout: .* found nan"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HeadSettings(**settings)  # type: ignore[arg-type]


def test_training_and_folder_are_imported_without_torch() -> None:
    code = "import sys, retriever.rerankers.head; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
