"""Contrastive training of an encoder: examples, objectives, and epochs.

Embeddings are (n, d) float32, not normalized. The cosine of a zero vector is 0.
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
from retriever.training.loop import (
    Epoch,
    Step,
    TrainingTask,
    fine_tune,
    seeded,
    silent,
    uses_bfloat16,
)
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
    """Return the losses of multiple negatives ranking (Henderson et al. 2017, Sec. 4.4).

    The loss of anchor i with passage p is -log(e^(s c_ip) / (e^(s c_ip) + sum e^(s c_ij))). The sum
    is over the passages j that are not relevant to i, so a relevant passage is no negative.
    Cosines and `relevant` are (anchors, passages), and `place` is the passage p of each anchor.
    """
    import torch

    rows = torch.arange(len(cosines), device=cosines.device)
    # Mask the relevant passages, except the passage at `place`.
    other_relevant = relevant.clone()
    other_relevant[rows, place] = False
    logits = (cosines * scale).masked_fill(other_relevant, float("-inf"))
    return torch.nn.functional.cross_entropy(logits, place, reduction="none")


@dataclass(frozen=True, slots=True, eq=False)
class _TextPairs:
    """Pairs of texts; subclasses add scores or labels."""

    left: list[str]
    right: list[str]

    def __len__(self) -> int:
        return len(self.left)

    def digest(self) -> str:
        """Return the SHA-256 over all fields, in hexadecimal."""
        values = [getattr(self, column.name) for column in fields(self)]
        content = json.dumps(values, default=np.ndarray.tolist)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ScoredExamples(_TextPairs):
    """Pairs of texts with their similarity in [0, 1]."""

    scores: NDArray[np.float32]

    @classmethod
    def of(
        cls, left: Sequence[str], right: Sequence[str], gold: NDArray[np.float64]
    ) -> ScoredExamples:
        """Make examples from scores of any scale; the lowest becomes 0, the highest 1."""
        low = float(gold.min())
        high = float(gold.max())
        if low == high:
            raise BadInputError(
                f"expected pairs with different scores to train on, found {low:g} for all "
                f"{len(gold)} pairs; check the scores"
            )
        return cls(list(left), list(right), ((gold - low) / (high - low)).astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class LabeledExamples(_TextPairs):
    """Pairs of texts with a class, such as entailment, as position in the ascending `names`."""

    labels: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, left: Sequence[str], right: Sequence[str], labels: Sequence[str]
    ) -> LabeledExamples:
        """Make examples from the names of classes."""
        names = tuple(sorted(set(labels)))
        if len(names) < 2:
            raise BadInputError(
                f"expected pairs of at least two classes to train on, found only {names[0]!r} "
                f"in {len(labels)} pairs; check the labels"
            )
        classes = np.array([names.index(label) for label in labels])
        return cls(list(left), list(right), classes, names)


Examples = ScoredExamples | LabeledExamples | TrainingSet
# The examples of each objective, and their name in messages.
_KINDS: Mapping[Objective, tuple[type[Examples], str]] = {
    "sts": (ScoredExamples, "pairs with scores"),
    "nli": (LabeledExamples, "pairs with labels"),
    "mnr": (TrainingSet, "questions or anchors with passages"),
    "hinge": (TrainingSet, "questions or anchors with passages"),
}


def fitting_objective(objective: Objective | None, examples: Examples) -> Objective:
    """Return the objective, by default the first for the examples; refuse one that does not fit."""
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
    """Make a training set of anchors and passages; equal texts are one anchor or passage."""
    questions = {text: row for row, text in enumerate(dict.fromkeys(anchors))}
    texts = [*positives, *(negative for negative in negatives if negative is not None)]
    passages = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    positive_rows: list[dict[int, None]] = [{} for _ in questions]
    negative_rows: list[dict[int, None]] = [{} for _ in questions]
    for anchor, positive, negative in zip(anchors, positives, negatives, strict=True):
        row = questions[anchor]
        positive_rows[row][passages[positive]] = None
        if negative is not None:
            negative_rows[row][passages[negative]] = None
    pools = JudgedPools.of(
        [list(rows) for rows in positive_rows],
        [
            [row for row in rows if row not in answers]
            for rows, answers in zip(negative_rows, positive_rows, strict=True)
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
    """Train an encoder with `fine_tune`; the untrained encoder, epoch 0, may be the best on dev."""
    objective = fitting_objective(settings.objective, examples)
    backbone = encoder.backbone
    backbone.autocast = uses_bfloat16(settings.precision, backbone.device)
    with seeded(backbone.device, settings.seed):
        task: TrainingTask[TripleBatch] | TrainingTask[Rows]
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


class _PairTask(TrainingTask[Rows]):
    """Pairs with labels or scores: softmax over labels, or squared error of the cosine."""

    def __init__(
        self,
        encoder: TrainableEncoder,
        examples: ScoredExamples | LabeledExamples,
        settings: EncoderTrainingSettings,
        dev_score: DevScore,
    ) -> None:
        import torch

        modules = {}
        if isinstance(examples, LabeledExamples):
            classifier = torch.nn.Linear(3 * encoder.dimensions, len(examples.names))
            encoder.classifier = classifier.to(encoder.backbone.device)
            modules["classifier"] = encoder.classifier
        super().__init__(encoder.backbone, modules, settings, lambda: dev_score(encoder))
        self._encoder = encoder
        self._examples = examples
        self._batch = settings.sampling.batch
        self._window = min(settings.max_length, encoder.spec.max_length)
        self.steps = -(-len(examples) // self._batch)

    def batches(self, generator: np.random.Generator) -> Iterator[Rows]:
        order = generator.permutation(len(self._examples))
        for start in range(0, len(order), self._batch):
            yield order[start : start + self._batch]

    def losses(self, batch: Rows) -> torch.Tensor:
        """Return the loss of each pair."""
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


class _RankingTask(TrainingTask[TripleBatch]):
    """Questions with passages: ranking within a batch, or hinge loss of triples."""

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

    def batches(self, generator: np.random.Generator) -> Iterator[TripleBatch]:
        pools = self._examples.pools
        sampling = self._settings.sampling
        return epoch_batches(pools, sampling, generator, in_batch=self._in_batch)

    def losses(self, batch: TripleBatch) -> torch.Tensor | None:
        """Return the loss of each relevant passage, or of each triple."""
        import torch

        if not self._in_batch and not len(batch.positive):
            return None
        # Encode each text once.
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
        """Return vectors of length 1."""
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
