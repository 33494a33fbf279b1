"""Contrastive training of an encoder: examples, objectives, the course.

Embeddings are (n, d) float32, not normalized; cosines of a zero vector are 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.training.model import TrainableEncoder, pair_features
from retriever.errors import BadInputError, ConfigError
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import (
    Epoch,
    FineTuningSettings,
    Step,
    fine_tune,
    seeded,
    silent,
    uses_bfloat16,
)
from retriever.training.sampling import (
    JudgedPools,
    SamplingSettings,
    TrainingSet,
    TripleBatch,
    batches_in_epoch,
    epoch_batches,
)

if TYPE_CHECKING:
    import torch

Objective = Literal["nli", "sts", "mnr", "hinge"]
SHORTEST_TEXT = 8
Rows = NDArray[np.int64]
DevScore = Callable[[TrainableEncoder], float]


@dataclass(frozen=True, slots=True)
class EncoderTrainingSettings(FineTuningSettings):
    """How an encoder is fine-tuned.

    The untrained encoder counts as epoch 0: what is kept is never worse on dev.

    Attributes:
        objective: ``nli``, ``sts``, ``mnr`` or ``hinge``; see
            `retriever.encoders.training.trainer`.
        scale: of the cosines in ``mnr``, more than 0.
        margin: of ``hinge``, in units of the cosine; more than 0.
        max_length: the window in word pieces in training, unless the encoder's own is shorter; the
            encoder that is saved keeps its own.
        sampling: negatives of a question and questions of a step; with ``nli`` and ``sts``, whose
            pairs are given, only the pairs of a step count.

    Raises:
        ConfigError: a value that is out of range.
    """

    learning_rate: float = 5e-5
    epochs: int = 3
    tolerance: float = 0.0
    objective: Objective = "mnr"
    scale: float = 20.0
    margin: float = 0.2
    max_length: int = 128
    sampling: SamplingSettings = field(
        default_factory=lambda: SamplingSettings(count=4, positives=1, questions=32)
    )

    def __post_init__(self) -> None:
        # Not super(): a class with slots is another one than the one that is defined here.
        FineTuningSettings.__post_init__(self)
        if self.objective not in get_args(Objective):
            raise ConfigError(
                f"objective: expected {', '.join(get_args(Objective))}, found {self.objective!r}"
            )
        for name in ("scale", "margin"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: expected more than 0, found {getattr(self, name):g}")
        self._require("max_length", SHORTEST_TEXT)
        if self.objective == "hinge":
            self.sampling.require_triples()


def classification(
    left: torch.Tensor, right: torch.Tensor, labels: torch.Tensor, classifier: torch.nn.Module
) -> torch.Tensor:
    """Softmax over (u, v, |u - v|): Reimers and Gurevych 2019, Sec. 3, "classification"."""
    import torch

    logits = classifier(pair_features(left, right))
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def similarity_error(left: torch.Tensor, right: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """(cos(u, v) - score)^2: Reimers and Gurevych 2019, Sec. 3, "regression"."""
    import torch

    return (torch.nn.functional.cosine_similarity(left, right) - scores) ** 2


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


def pairwise_hinge(positive: torch.Tensor, negative: torch.Tensor, margin: float) -> torch.Tensor:
    """max(0, margin - cos(q, a+) + cos(q, a-)): Ma et al. 2019, Sec. 3, for the cosine."""
    import torch

    return torch.relu(margin - positive + negative)


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
        low, high = float(gold.min()), float(gold.max())
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


def check_objective(objective: Objective, examples: Examples) -> None:
    """Refuse examples that an objective cannot be trained on."""
    kind, name = _KINDS[objective]
    if not isinstance(examples, kind):
        fitting = [one for one, (other, _) in _KINDS.items() if isinstance(examples, other)]
        found = _KINDS[fitting[0]][1]
        raise ConfigError(
            f"objective: {objective} is trained on {name}, found {found}; choose "
            f"{' or '.join(fitting)}"
        )


def natural_objective(examples: Examples) -> Objective:
    """The objective of a kind of examples where none is named."""
    return next(name for name, (kind, _) in _KINDS.items() if isinstance(examples, kind))


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
    from retriever.training.adapters import merge_adapters

    check_objective(settings.objective, examples)
    backbone = encoder.backbone
    backbone.autocast = uses_bfloat16(settings.precision, backbone.device)
    with seeded(backbone.device, settings.seed):
        task: _RankingTask | _PairTask
        if isinstance(examples, TrainingSet):
            task = _RankingTask(encoder, examples, settings, dev_score)
        else:
            task = _PairTask(encoder, examples, settings, dev_score)
        curve = fine_tune(
            task,
            settings,
            untrained=True,
            checkpoint=checkpoint,
            on_step=on_step,
            on_epoch=on_epoch,
        )
    merge_adapters(backbone.model)
    return curve


Kind = TypeVar("Kind", bound=Examples)


class _EncoderTask(Generic[Kind]):
    """What the two kinds of examples share."""

    def __init__(
        self,
        encoder: TrainableEncoder,
        examples: Kind,
        settings: EncoderTrainingSettings,
        dev_score: DevScore,
    ) -> None:
        import torch

        from retriever.training.adapters import choose_weights

        words = settings.train_word_embeddings
        weights = choose_weights(encoder.backbone, settings.trained, words=words)
        self.device = encoder.backbone.device
        self.weights = {f"backbone.{name}": one for name, one in weights.items()}
        if isinstance(examples, LabeledExamples):
            classifier = torch.nn.Linear(3 * encoder.dimensions, len(examples.names))
            encoder.classifier = classifier.to(self.device)
            self.weights |= {
                f"classifier.{name}": one for name, one in encoder.classifier.named_parameters()
            }
        self._encoder = encoder
        self._examples = examples
        self._settings = settings
        self._window = min(settings.max_length, encoder.spec.max_length)
        self._dev_score = dev_score

    def rate(self, name: str) -> float:
        """The classifier has one of its own."""
        settings = self._settings
        head = name.startswith("classifier.")
        return settings.head_learning_rate if head else settings.transformer_rate

    def train(self) -> None:
        """Switch dropout on."""
        self._encoder.backbone.model.train()

    def dev(self) -> float:
        """The caller's score."""
        return self._dev_score(self._encoder)


class _PairTask(_EncoderTask[ScoredExamples | LabeledExamples]):
    """Given pairs: softmax over labels, or squared error of the cosine."""

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self._examples) // self._settings.sampling.questions)

    def batches(self, chance: np.random.Generator) -> Iterator[Rows]:
        """All pairs in random order."""
        order = chance.permutation(len(self._examples))
        size = self._settings.sampling.questions
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def size(self, batch: Rows) -> int:
        """Number of pairs."""
        return len(batch)

    def losses(self, batch: Rows) -> torch.Tensor:
        """The loss of each pair."""
        import torch

        examples, encoder = self._examples, self._encoder
        texts = [side[row] for side in (examples.left, examples.right) for row in batch]
        pieces = encoder.tokenize(texts, self._window, query=False)
        left, right = encoder.vectors(pieces).chunk(2)
        if isinstance(examples, ScoredExamples):
            scores = torch.from_numpy(examples.scores[batch]).to(self.device)
            return similarity_error(left, right, scores)
        assert encoder.classifier is not None
        labels = torch.from_numpy(examples.labels[batch]).to(self.device)
        return classification(left, right, labels, encoder.classifier)


class _RankingTask(_EncoderTask[TrainingSet]):
    """Questions with passages: ranking within the batch, or the hinge of triples."""

    @property
    def _in_batch(self) -> bool:
        return self._settings.objective == "mnr"

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        pools, sampling = self._examples.pools, self._settings.sampling
        return batches_in_epoch(pools, sampling, in_batch=self._in_batch)

    def batches(self, chance: np.random.Generator) -> Iterator[TripleBatch]:
        """As `epoch_batches`."""
        pools, sampling = self._examples.pools, self._settings.sampling
        return epoch_batches(pools, sampling, chance, in_batch=self._in_batch)

    def size(self, batch: TripleBatch) -> int:
        """Number of questions with a passage."""
        return len(batch.question)

    def losses(self, batch: TripleBatch) -> torch.Tensor | None:
        """The loss of each relevant passage, or of each triple."""
        import torch

        # Each text is encoded once.
        questions, question = np.unique(batch.question, return_inverse=True)
        passages, passage = np.unique(batch.passage, return_inverse=True)
        if not self._in_batch and not len(batch.positive):
            return None
        u, v = self._vectors(questions, passages)
        if not self._in_batch:
            cosines = (u[torch.from_numpy(question)] * v[torch.from_numpy(passage)]).sum(dim=1)
            positive, negative = (
                cosines[torch.from_numpy(places)] for places in (batch.positive, batch.negative)
            )
            return pairwise_hinge(positive, negative, self._settings.margin)
        relevant = self._examples.pools.relevant(questions, passages)
        pairs = np.flatnonzero(relevant[question, passage])
        anchor = question[pairs]
        return multiple_negatives(
            u[torch.from_numpy(anchor)] @ v.T,
            torch.from_numpy(relevant[anchor]).to(self.device),
            torch.from_numpy(passage[pairs]).to(self.device),
            self._settings.scale,
        )

    def _vectors(self, questions: Rows, passages: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors of length 1."""
        import torch

        encoder, examples, window = self._encoder, self._examples, self._window
        left = [examples.questions[row] for row in questions]
        right = [examples.passages[row] for row in passages]
        pieces = [
            *encoder.tokenize(left, window, query=True),
            *encoder.tokenize(right, window, query=False),
        ]
        vectors = torch.nn.functional.normalize(encoder.vectors(pieces))
        return vectors[: len(left)], vectors[len(left) :]
