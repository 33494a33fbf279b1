"""Training a head on frozen vectors by pairwise hinge loss (Ma et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadInputError, ConfigError
from retriever.training.sampling import JudgedPools, SamplingSettings, epoch_batches

if TYPE_CHECKING:
    import torch

    from retriever.rerankers.head.model import InteractionHead
    from retriever.rerankers.head.settings import HeadSettings

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HeadTrainingSettings:
    """How a head is trained.

    The loss of a triple is max(0, margin - S(q, a+) + S(q, a-)).

    Attributes:
        margin: 0 or more; the paper's is 0, for which a constant scorer has no loss. Scores start
            as cosines, which are rarely 1 apart: with a margin of 1 nearly all triples count at
            first, with one of 0.2 those alone that are out of order or nearly so. A scale on the
            scores would do nothing that the margin does not: Adam's steps do not depend on it.
        optimizer: ``adam`` or ``sgd`` (momentum 0.9).
        learning_rate: of either, constant.
        weight_decay: how strongly weights are drawn to where they started, times the learning rate
            at each step; to 0 where they started at random. Decoupled from the gradient as in AdamW
            (Loshchilov and Hutter 2019), towards the start as in L2-SP (Li et al. 2018).
        epochs: at most.
        patience: epochs without a better dev score after which training stops.
        seed: of the first weights, dropout and the order of questions.
        sampling: pairs of a question, questions of a step.

    Raises:
        ConfigError: a value that is out of range.
    """

    margin: float = 1.0
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    epochs: int = 50
    patience: int = 5
    seed: int = 0
    sampling: SamplingSettings = field(default_factory=SamplingSettings)

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "sgd"):
            raise ConfigError(f"optimizer: expected adam or sgd, found {self.optimizer!r}")
        for name, low in (
            ("margin", 0),
            ("learning_rate", 0),
            ("weight_decay", 0),
            ("epochs", 1),
            ("patience", 1),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if not low <= value < math.inf:
                raise ConfigError(f"{name}: expected {low} or more, found {value:g}")
        self.sampling.require_triples()


@dataclass(frozen=True, slots=True)
class Epoch:
    """The result of an epoch of training.

    Attributes:
        epoch: from 1; 0 is the untrained head.
        loss: mean over the triples as training met them; None of the untrained head.
        active: share of the triples that had a loss; None of the untrained head.
        dev: the dev score after it.
    """

    epoch: int
    loss: float | None
    active: float | None
    dev: float


@dataclass(frozen=True, slots=True, eq=False)
class TrainedHead:
    """The result of a training.

    Attributes:
        head: with the weights of the best epoch, ready to score.
        settings: of the training.
        curve: all epochs, from the untrained head on.
        best: the epoch with the highest dev score, the earliest of equal ones.
    """

    head: InteractionHead
    settings: HeadTrainingSettings
    curve: tuple[Epoch, ...]
    best: int


class Scorer(Protocol):
    """Scores pairs, as `InteractionHead.score` does."""

    def __call__(
        self,
        questions: Vectors,
        passages: Vectors,
        question_rows: Rows | None = None,
        passage_rows: Rows | None = None,
    ) -> Vectors:
        """(pairs,) float32."""


def _silent(_: Epoch) -> None:
    """Do nothing."""


def train_head(
    settings: HeadTrainingSettings,
    head_settings: HeadSettings,
    questions: Vectors,
    passages: Vectors,
    pools: JudgedPools,
    dev_score: Callable[[Scorer], float],
    done: Callable[[Epoch], object] = _silent,
) -> TrainedHead:
    """Train a head; the untrained one counts among those of which the best on dev is kept.

    The same seed gives the same bits on the same machine. PyTorch's random state is afterwards what
    it was before.

    Args:
        settings: how.
        head_settings: what.
        questions: (n, d) float32; row i is question i of the pools.
        passages: (m, d) float32.
        pools: which passages answer a question, and which do not.
        dev_score: higher is better; gets the head's `score` after each epoch.
        done: called after each epoch.

    Raises:
        BadInputError: the pools are of other questions or passages, or no question has a passage
            that answers and one that does not.
    """
    import torch

    from retriever.rerankers.head.model import InteractionHead

    if (len(pools), pools.passages) != (len(questions), len(passages)):
        raise BadInputError(
            f"expected vectors of the {len(pools)} questions and {pools.passages} passages of the "
            f"pools, found {len(questions)} and {len(passages)}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        head = InteractionHead(head_settings, questions.shape[1])
        steps = _Steps(head, settings, torch.from_numpy(questions), torch.from_numpy(passages))
        curve = [Epoch(0, None, None, dev_score(head.score))]
        done(curve[0])
        best, weights = curve[0], _copy(head)
        while len(curve) <= settings.epochs and len(curve) <= best.epoch + settings.patience:
            loss, active = steps.epoch(pools, len(curve))
            curve.append(Epoch(len(curve), loss, active, dev_score(head.score)))
            if curve[-1].dev > best.dev:
                best, weights = curve[-1], _copy(head)
            done(curve[-1])
    head.load_state_dict(weights)
    return TrainedHead(head.eval(), settings, tuple(curve), best.epoch)


def hinge(
    scores: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, margin: float
) -> torch.Tensor:
    """The loss of each triple, max(0, margin - S(q, a+) + S(q, a-)).

    Args:
        scores: (pairs,).
        positive: (triples,) int64, the pair of each triple that is to score higher.
        negative: (triples,) int64, the pair that is to score lower.
        margin: 0 or more.

    Returns:
        (triples,), 0 or more.
    """
    gaps = scores.index_select(0, positive) - scores.index_select(0, negative)
    return (margin - gaps).relu()


class _Steps:
    """A head, its optimizer and the vectors it is trained on."""

    def __init__(
        self,
        head: InteractionHead,
        settings: HeadTrainingSettings,
        questions: torch.Tensor,
        passages: torch.Tensor,
    ) -> None:
        import torch

        self._head = head
        self._settings = settings
        self._vectors = questions, passages
        self._weights = list(head.parameters())
        towards = torch.clone if head.settings.starts_as_cosine else torch.zeros_like
        self._starts = [towards(weight.detach()) for weight in self._weights]
        rate = settings.learning_rate
        self._optimizer: torch.optim.Optimizer
        if settings.optimizer == "adam":
            self._optimizer = torch.optim.Adam(self._weights, rate, fused=True)
        else:
            self._optimizer = torch.optim.SGD(self._weights, rate, momentum=0.9, fused=True)

    def epoch(self, pools: JudgedPools, number: int) -> tuple[float, float]:
        """Mean loss and share of active triples."""
        self._head.train()
        chance = np.random.default_rng([self._settings.seed, number])
        loss, active, triples = 0.0, 0, 0
        for batch in epoch_batches(pools, self._settings.sampling, chance):
            if len(batch.positive) == 0:
                # All negatives drawn at random happen to be relevant.
                continue
            losses = self._step(batch.question, batch.passage, batch.positive, batch.negative)
            loss += float(losses.sum())
            active += int(losses.count_nonzero())
            triples += len(losses)
        return loss / max(triples, 1), active / max(triples, 1)

    def _step(self, *batch: Rows) -> torch.Tensor:
        import torch

        question, passage, positive, negative = map(torch.from_numpy, batch)
        settings = self._settings
        scores = self._head.pairs(*self._vectors, question, passage)
        losses = hinge(scores, positive, negative, settings.margin)
        self._optimizer.zero_grad()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        if settings.weight_decay:
            share = settings.learning_rate * settings.weight_decay
            with torch.no_grad():
                for weight, start in zip(self._weights, self._starts, strict=True):
                    weight.lerp_(start, share)
        return losses.detach()


def _copy(head: InteractionHead) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in head.state_dict().items()}
