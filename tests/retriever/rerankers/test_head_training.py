"""Training of heads: the loss, what is kept, what a seed fixes, and that it learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from retriever.errors import BadInputError, ConfigError
from retriever.rerankers.head import Epoch, Scorer, TrainedHead, train_head
from retriever.rerankers.settings import HeadSettings, HeadTrainingSettings
from retriever.training.sampling import JudgedPools, SamplingSettings

D = 8
QUESTIONS, POOL = 24, 6
Vectors = NDArray[np.float32]


def unit(made: NDArray[np.float64]) -> Vectors:
    return (made / np.linalg.norm(made, axis=-1, keepdims=True)).astype(np.float32)


def toy() -> tuple[Vectors, Vectors, JudgedPools]:
    """Questions whose answers are their mirror images: the cosine ranks them last."""
    chance = np.random.default_rng(0)
    questions = unit(chance.standard_normal((QUESTIONS, D)))
    passages = unit(chance.standard_normal((QUESTIONS, POOL, D)))
    passages[:, 0] = unit(-questions + 0.1 * chance.standard_normal((QUESTIONS, D)))
    first = range(0, QUESTIONS * POOL, POOL)
    pools = JudgedPools.of(
        [[row] for row in first], [range(row + 1, row + POOL) for row in first], QUESTIONS * POOL
    )
    return questions, passages.reshape(-1, D), pools


def mean_average_precision(score: Scorer) -> float:
    """Mean reciprocal rank over the toy's pools, whose only answer comes first."""
    questions, passages, _ = toy()
    owners = np.repeat(np.arange(QUESTIONS), POOL)
    scores = score(questions, passages, owners, np.arange(len(passages))).reshape(-1, POOL)
    return float((1 / (scores >= scores[:, :1]).sum(1)).mean())


def train(
    head: HeadSettings,
    dev_score: Callable[[Scorer], float] = mean_average_precision,
    **settings: object,
) -> TrainedHead:
    questions, passages, pools = toy()
    values = {"learning_rate": 0.02, "sampling": SamplingSettings(questions=8), **settings}
    return train_head(
        HeadTrainingSettings(**values),  # type: ignore[arg-type]
        head,
        questions,
        passages,
        pools,
        dev_score,
    )


def scripted(scores: Sequence[float]) -> Callable[[Scorer], float]:
    """Dev scores that are given, whatever the head."""
    left = iter(scores)
    return lambda _: next(left)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("initial", ["cosine", "random"])
@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("interaction", ["bilinear", "uv"])
def test_what_can_be_separated_is_learned(
    interaction: str, head: str, initial: str, optimizer: str
) -> None:
    settings = HeadSettings(interaction, head, 32, 0.0, initial)  # type: ignore[arg-type]
    trained = train(settings, optimizer=optimizer, epochs=150, patience=150)
    if initial == "cosine":
        assert trained.curve[0].dev < 0.25
    assert trained.curve[trained.best].dev == 1.0
    assert mean_average_precision(trained.head.score) == 1.0


def test_a_linear_head_on_a_concatenation_cannot_learn_what_depends_on_both() -> None:
    # Its order of two passages is the same for every question.
    settings = HeadSettings("concat", "linear")
    questions, passages, _ = toy()
    head = train(settings, epochs=20, patience=20).head
    every = np.repeat(np.arange(QUESTIONS), 2), np.tile([0, 1], QUESTIONS)
    scores = head.score(questions, passages, *every).reshape(QUESTIONS, 2)
    apart = scores[:, 0] - scores[:, 1]
    np.testing.assert_allclose(apart, apart[0], atol=1e-5)


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("interaction", ["bilinear", "concat", "uv"])
def test_a_seed_fixes_every_bit(interaction: str, head: str) -> None:
    settings = HeadSettings(interaction, head, 16)  # type: ignore[arg-type]
    sampling = SamplingSettings(count=2, questions=8)
    first, same, other = (
        train(settings, epochs=3, seed=seed, sampling=sampling) for seed in (7, 7, 8)
    )
    assert first.curve == same.curve
    assert first.curve != other.curve
    for name, value in first.head.state_dict().items():
        assert torch.equal(value, same.head.state_dict()[name])


def test_training_leaves_the_random_state_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    train(HeadSettings("uv", "mlp", 8), epochs=2)
    assert torch.equal(torch.rand(4), expected)


def test_the_best_epoch_is_kept_and_the_earliest_of_equal_ones() -> None:
    settings = HeadSettings("uv", "mlp", 8)
    told: list[Epoch] = []
    questions, passages, pools = toy()
    trained = train_head(
        HeadTrainingSettings(epochs=9, patience=3, learning_rate=0.01),
        settings,
        questions,
        passages,
        pools,
        scripted([0.1, 0.3, 0.5, 0.5, 0.2, 0.4, 0.9]),
        told.append,
    )
    assert [epoch.dev for epoch in trained.curve] == [0.1, 0.3, 0.5, 0.5, 0.2, 0.4]
    assert trained.curve == tuple(told)
    assert trained.best == 2
    stopped = train(
        settings, scripted([0, 1, 2]), epochs=2, learning_rate=0.01, sampling=SamplingSettings()
    )
    assert stopped.best == 2
    for name, value in stopped.head.state_dict().items():
        assert torch.equal(value, trained.head.state_dict()[name])


def test_the_untrained_head_is_kept_where_training_only_harms() -> None:
    trained = train(HeadSettings("bilinear"), scripted([0.8, 0.7, 0.6]), patience=2)
    assert trained.best == 0
    assert [epoch.loss is None for epoch in trained.curve] == [True, False, False]
    assert torch.equal(trained.head.matrix, torch.eye(D))


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.0])
def test_loss_and_active_share_of_an_epoch_are_those_of_its_triples(margin: float) -> None:
    # A learning rate of 0 keeps the cosine, whose losses a loop can count.
    trained = train(HeadSettings("uv"), epochs=1, learning_rate=0.0, margin=margin)
    questions, passages, _ = toy()
    cosines = np.einsum("qd,qpd->qp", questions, passages.reshape(QUESTIONS, POOL, D))
    losses = np.maximum(0, margin - cosines[:, :1] + cosines[:, 1:])
    assert trained.curve[1].loss == pytest.approx(losses.mean(), rel=1e-5)
    assert trained.curve[1].active == pytest.approx((losses > 0).mean())


def test_weight_decay_draws_random_weights_to_zero() -> None:
    # Zero vectors have no gradient: what changes the weights is the decay, once in each step.
    questions, passages, pools = toy()
    head = HeadSettings("bilinear", initial="random")
    matrices = []
    for decay in (0.0, 0.5):
        settings = HeadTrainingSettings(
            epochs=1,
            learning_rate=0.1,
            weight_decay=decay,
            sampling=SamplingSettings(questions=QUESTIONS // 3),
        )
        nothing = np.zeros_like(passages)
        trained = train_head(settings, head, questions, nothing, pools, scripted([0, 1]))
        matrices.append(trained.head.matrix)
    torch.testing.assert_close(matrices[1], matrices[0] * (1 - 0.1 * 0.5) ** 3)


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("interaction", ["bilinear", "uv"])
def test_weight_decay_draws_a_cosine_back_to_the_cosine(interaction: str, head: str) -> None:
    # learning_rate * weight_decay is 1: each step ends at the start.
    settings = HeadSettings(interaction, head, 16)  # type: ignore[arg-type]
    trained = train(settings, scripted([0, 1]), epochs=1, learning_rate=0.1, weight_decay=10.0)
    assert trained.curve[1].loss
    u, v, _ = toy()
    v = v[: len(u)]
    np.testing.assert_allclose(trained.head.score(u, v), (u * v).sum(1), atol=1e-6)


def test_random_draws_that_all_answer_are_passed_over() -> None:
    questions, passages = toy()[0][:2], toy()[1][:1]
    pools = JudgedPools.of([[0], [0]], [[], []], 1)
    settings = HeadTrainingSettings(epochs=1, sampling=SamplingSettings("random", count=1))
    head = HeadSettings("bilinear")
    trained = train_head(settings, head, questions, passages, pools, scripted([0, 1]))
    assert trained.curve[1].loss == 0
    assert torch.equal(trained.head.matrix, torch.eye(D))


def test_vectors_of_other_pools_are_refused() -> None:
    questions, passages, pools = toy()
    arguments = HeadTrainingSettings(), HeadSettings()
    with pytest.raises(BadInputError, match=r"24 questions and 144 passages .* found 24 and 143"):
        train_head(*arguments, questions, passages[1:], pools, mean_average_precision)
    nothing = JudgedPools.of([[]] * QUESTIONS, [[]] * QUESTIONS, len(passages))
    with pytest.raises(BadInputError, match="found none"):
        train_head(*arguments, questions, passages, nothing, mean_average_precision)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"margin": -1}, "margin: expected 0 or more, found -1"),
        ({"margin": float("nan")}, "margin: expected 0 or more, found nan"),
        ({"optimizer": "lion"}, "optimizer: expected adam or sgd, found 'lion'"),
        ({"learning_rate": -0.1}, "learning_rate: expected 0 or more, found -0.1"),
        ({"weight_decay": -1}, "weight_decay: expected 0 or more, found -1"),
        ({"epochs": 0}, "epochs: expected 1 or more, found 0"),
        ({"patience": 0}, "patience: expected 1 or more, found 0"),
        ({"seed": -1}, "seed: expected 0 or more, found -1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HeadTrainingSettings(**settings)  # type: ignore[arg-type]
