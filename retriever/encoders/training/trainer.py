"""Contrastive training of an encoder: examples, objectives, the course.

Embeddings are (n, d) float32, not normalized; cosines of a zero vector are 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.training.model import TrainableEncoder, pair_features
from retriever.errors import BadInputError, ConfigError
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import Epoch, Step, Task, fine_tune, seeded, silent, uses_bfloat16
from retriever.training.sampling import (
    JudgedPools,
    TrainingSet,
    TripleBatch,
    batches_in_epoch,
    epoch_batches,
)
from retriever.training.settings import EncoderTrainingSettings, Objective

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.int64]
DevScore = Callable[[TrainableEncoder], float]


def multiple_negatives(
    cosines: torch.Tensor, relevant: torch.Tensor, place: torch.Tensor, scale: float
) -> torch.Tensor:
    """Multiple negatives ranking (Henderson et al. 2017, Sec. 4.4): softmax over a batch.

    The loss of anchor i with passage p is -log(e^(s c_ip) / (e^(s c_ip) + sum e^(s c_ij))), the sum
    over the passages j that are not relevant to i; another relevant passage is not a negative.
    Cosines and `relevant` are (anchors, passages); `place` is the passage p of each anchor.
    """
    import torch

    rows = torch.arange(len(cosines), device=cosines.device)
    # The one at `place` stays, the other relevant ones go.
    others = relevant.clone()
    others[rows, place] = False
    logits = (cosines * scale).masked_fill(others, float("-inf"))
    return torch.nn.functional.cross_entropy(logits, place, reduction="none")


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Pairs of texts; what they are to be is in the fields of a subclass."""

    left: list[str]
    right: list[str]

    def __len__(self) -> int:
        return len(self.left)

    def digest(self) -> str:
        """SHA-256 over all fields, in hexadecimal."""
        values = [getattr(self, one.name) for one in fields(self)]
        content = json.dumps(values, default=np.ndarray.tolist)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ScoredExamples(_Pairs):
    """Pairs of texts with their similarity in [0, 1]."""

    scores: NDArray[np.float32]

    @classmethod
    def of(
        cls, left: Sequence[str], right: Sequence[str], gold: NDArray[np.float64]
    ) -> ScoredExamples:
        """From scores of any scale: the lowest one becomes 0, the highest 1."""
        low = float(gold.min())
        high = float(gold.max())
        if low == high:
            raise BadInputError(
                f"expected pairs with different scores to train on, found {low:g} for all "
                f"{len(gold)} pairs; check the scores"
            )
        return cls(list(left), list(right), ((gold - low) / (high - low)).astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class LabeledExamples(_Pairs):
    """Pairs of texts with a class, such as entailment, by its place in `names`, ascending."""

    labels: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, left: Sequence[str], right: Sequence[str], labels: Sequence[str]
    ) -> LabeledExamples:
        """From the names of the classes."""
        names = tuple(sorted(set(labels)))
        if len(names) < 2:
            raise BadInputError(
                f"expected pairs of at least two classes to train on, found only {names[0]!r} "
                f"in {len(labels)} pairs; check the labels"
            )
        return cls(list(left), list(right), np.array([names.index(one) for one in labels]), names)


Examples = ScoredExamples | LabeledExamples | TrainingSet
_KINDS: Mapping[Objective, tuple[type[Examples], str]] = {
    "sts": (ScoredExamples, "pairs with scores"),
    "nli": (LabeledExamples, "pairs with labels"),
    "mnr": (TrainingSet, "questions or anchors with passages"),
    "hinge": (TrainingSet, "questions or anchors with passages"),
}


def fitting_objective(objective: Objective | None, examples: Examples) -> Objective:
    """The objective, by default that of the kind of examples; refuses one that does not fit."""
    fitting = [name for name, (kind, _) in _KINDS.items() if isinstance(examples, kind)]
    if objective is None:
        return fitting[0]
    if objective not in fitting:
        raise ConfigError(
            f"objective: {objective} is trained on {_KINDS[objective][1]}, found "
            f"{_KINDS[fitting[0]][1]}; choose {' or '.join(fitting)}"
        )
    return objective


def paired_texts(
    anchors: Sequence[str], positives: Sequence[str], negatives: Sequence[str | None]
) -> TrainingSet:
    """Anchors with their passages; equal texts are one anchor or one passage."""
    questions = {text: row for row, text in enumerate(dict.fromkeys(anchors))}
    used = [*positives, *(one for one in negatives if one is not None)]
    passages = {text: row for row, text in enumerate(dict.fromkeys(used))}
    right: list[dict[int, None]] = [{} for _ in questions]
    wrong: list[dict[int, None]] = [{} for _ in questions]
    for anchor, positive, negative in zip(anchors, positives, negatives, strict=True):
        row = questions[anchor]
        right[row][passages[positive]] = None
        if negative is not None:
            wrong[row][passages[negative]] = None
    pools = JudgedPools.of(
        [list(rows) for rows in right],
        [
            [row for row in rows if row not in answers]
            for rows, answers in zip(wrong, right, strict=True)
        ],
        len(passages),
    )
    return TrainingSet(list(questions), list(passages), pools)


def train_encoder(
    encoder: TrainableEncoder,
    examples: Examples,
    settings: EncoderTrainingSettings,
    dev_score: DevScore,
    *,
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = silent,
    on_epoch: Callable[[Epoch], object] = silent,
) -> tuple[Epoch, ...]:
    """Train, as `fine_tune` does; the untrained encoder, epoch 0, may be the best one on dev."""
    objective = fitting_objective(settings.objective, examples)
    backbone = encoder.backbone
    backbone.autocast = uses_bfloat16(settings.precision, backbone.device)
    with seeded(backbone.device, settings.seed):
        task: Task[TripleBatch] | Task[Rows]
        if isinstance(examples, TrainingSet):
            task = _RankingTask(encoder, examples, settings, dev_score, in_batch=objective == "mnr")
        else:
            task = _PairTask(encoder, examples, settings, dev_score)
        return fine_tune(
            task,
            settings,
            untrained=True,
            checkpoint=checkpoint,
            on_step=on_step,
            on_epoch=on_epoch,
        )


class _PairTask(Task[Rows]):
    """Given pairs: softmax over labels, or squared error of the cosine."""

    def __init__(
        self,
        encoder: TrainableEncoder,
        examples: ScoredExamples | LabeledExamples,
        settings: EncoderTrainingSettings,
        dev_score: DevScore,
    ) -> None:
        import torch

        heads = {}
        if isinstance(examples, LabeledExamples):
            classifier = torch.nn.Linear(3 * encoder.dimensions, len(examples.names))
            encoder.classifier = classifier.to(encoder.backbone.device)
            heads["classifier"] = encoder.classifier
        super().__init__(encoder.backbone, heads, settings, lambda: dev_score(encoder))
        self._encoder = encoder
        self._examples = examples
        self._batch = settings.sampling.batch
        self._window = min(settings.max_length, encoder.spec.max_length)
        self.steps = -(-len(examples) // self._batch)

    def batches(self, chance: np.random.Generator) -> Iterator[Rows]:
        order = chance.permutation(len(self._examples))
        for start in range(0, len(order), self._batch):
            yield order[start : start + self._batch]

    def losses(self, batch: Rows) -> torch.Tensor:
        """The loss of each pair."""
        import torch

        examples = self._examples
        encoder = self._encoder
        texts = [side[row] for side in (examples.left, examples.right) for row in batch]
        pieces = encoder.tokenize(texts, self._window, query=False)
        left, right = encoder.vectors(pieces).chunk(2)
        if isinstance(examples, ScoredExamples):
            scores = torch.from_numpy(examples.scores[batch]).to(self.backbone.device)
            # Reimers and Gurevych 2019, Sec. 3, "regression".
            return (torch.nn.functional.cosine_similarity(left, right) - scores) ** 2
        assert encoder.classifier is not None
        labels = torch.from_numpy(examples.labels[batch]).to(self.backbone.device)
        # Sec. 3, "classification".
        logits = encoder.classifier(pair_features(left, right))
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


class _RankingTask(Task[TripleBatch]):
    """Questions with passages: ranking within the batch, or the hinge of triples."""

    def __init__(
        self,
        encoder: TrainableEncoder,
        examples: TrainingSet,
        settings: EncoderTrainingSettings,
        dev_score: DevScore,
        *,
        in_batch: bool,
    ) -> None:
        super().__init__(encoder.backbone, {}, settings, lambda: dev_score(encoder))
        self._encoder = encoder
        self._examples = examples
        self._settings = settings
        self._in_batch = in_batch
        self._window = min(settings.max_length, encoder.spec.max_length)
        self.steps = batches_in_epoch(examples.pools, settings.sampling, in_batch=in_batch)

    def batches(self, chance: np.random.Generator) -> Iterator[TripleBatch]:
        pools = self._examples.pools
        sampling = self._settings.sampling
        return epoch_batches(pools, sampling, chance, in_batch=self._in_batch)

    def losses(self, batch: TripleBatch) -> torch.Tensor | None:
        """The loss of each relevant passage, or of each triple."""
        import torch

        if not self._in_batch and not len(batch.positive):
            return None
        # Each text is encoded once.
        questions, question = np.unique(batch.question, return_inverse=True)
        passages, passage = np.unique(batch.passage, return_inverse=True)
        u, v = self._vectors(questions, passages)
        if not self._in_batch:
            cosines = (u[torch.from_numpy(question)] * v[torch.from_numpy(passage)]).sum(dim=1)
            positive, negative = (
                cosines[torch.from_numpy(places)] for places in (batch.positive, batch.negative)
            )
            # Ma et al. 2019, Sec. 3, for the cosine.
            return torch.relu(self._settings.margin - positive + negative)
        relevant = self._examples.pools.relevant(questions, passages)
        pairs = np.flatnonzero(relevant[question, passage])
        anchor = question[pairs]
        return multiple_negatives(
            u[torch.from_numpy(anchor)] @ v.T,
            torch.from_numpy(relevant[anchor]).to(self.backbone.device),
            torch.from_numpy(passage[pairs]).to(self.backbone.device),
            self._settings.scale,
        )

    def _vectors(self, questions: Rows, passages: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors of length 1."""
        import torch

        encoder = self._encoder
        examples = self._examples
        window = self._window
        left = [examples.questions[row] for row in questions]
        right = [examples.passages[row] for row in passages]
        pieces = [
            *encoder.tokenize(left, window, query=True),
            *encoder.tokenize(right, window, query=False),
        ]
        vectors = torch.nn.functional.normalize(encoder.vectors(pieces))
        return vectors[: len(left)], vectors[len(left) :]
