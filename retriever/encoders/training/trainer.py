"""Fine-tuning an encoder on pairs of texts, or on questions with passages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.training import objectives
from retriever.encoders.training.examples import (
    Examples,
    LabeledExamples,
    ScoredExamples,
    check_objective,
)
from retriever.encoders.training.model import TrainableEncoder
from retriever.encoders.training.settings import EncoderTrainingSettings
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import Epoch, Step, adamw, fine_tune, seeded, uses_bfloat16
from retriever.training.sampling import (
    TrainingSet,
    TripleBatch,
    batches_in_epoch,
    epoch_batches,
)

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.int64]
DevScore = Callable[[TrainableEncoder], float]


def _silent(_: object) -> None:
    """Do nothing."""


def train_encoder(
    encoder: TrainableEncoder,
    examples: Examples,
    settings: EncoderTrainingSettings,
    dev_score: DevScore,
    *,
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = _silent,
    on_epoch: Callable[[Epoch], object] = _silent,
) -> tuple[Epoch, ...]:
    """Train; the encoder ends with the weights of the best epoch on dev, 0 being the untrained one.

    What dev scores and what is kept is the moving average of the weights that `settings.averaging`
    says. The same seed gives the same weights on the same machine, interrupted or not.

    Args:
        encoder: what is trained; adapters are merged at the end.
        examples: of the kind that the objective needs.
        settings: how.
        dev_score: higher is better; called before training and after each epoch.
        checkpoint: the state to resume from, and where to save states; None saves nothing.
        on_step: called after each step.
        on_epoch: called after each epoch, and first for the epochs before a checkpoint.

    Returns:
        The learning curve, from epoch 0.

    Raises:
        ConfigError: the examples do not fit the objective, the model has no such weights to train,
            or the checkpoint is of other settings or data.
        BadInputError: no question has what the objective needs.
    """
    from retriever.training.adapters import choose_weights, merge_adapters

    check_objective(settings.objective, examples)
    backbone = encoder.backbone
    backbone.autocast = uses_bfloat16(settings.precision, backbone.device)
    with seeded(backbone.device, settings.seed):
        weights = choose_weights(backbone, settings.trained, words=settings.train_word_embeddings)
        task = _task(encoder, weights, examples, settings, dev_score)
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


def _task(
    encoder: TrainableEncoder,
    weights: dict[str, torch.Tensor],
    examples: Examples,
    settings: EncoderTrainingSettings,
    dev_score: DevScore,
) -> _PairTask | _RankingTask:
    if isinstance(examples, TrainingSet):
        return _RankingTask(encoder, weights, examples, settings, dev_score)
    return _PairTask(encoder, weights, examples, settings, dev_score)


class _EncoderTask:
    """What the two kinds of examples share.

    Args:
        encoder: what is trained.
        weights: of its backbone, by name.
        settings: how.
        dev_score: of the encoder.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        weights: dict[str, torch.Tensor],
        settings: EncoderTrainingSettings,
        dev_score: DevScore,
    ) -> None:
        self.device = encoder.backbone.device
        self.weights = {f"backbone.{name}": one for name, one in weights.items()}
        self._encoder = encoder
        self._settings = settings
        self._window = min(settings.max_length, encoder.spec.max_length)
        self._dev_score = dev_score

    def optimizer(self) -> torch.optim.Optimizer:
        """The classifier has a rate of its own."""
        settings = self._settings

        def rate(name: str) -> float:
            head = name.startswith("classifier.")
            return settings.head_learning_rate if head else settings.transformer_rate

        return adamw(self.weights, rate, settings.weight_decay)

    def train(self) -> None:
        """Switch dropout on."""
        self._encoder.backbone.model.train()

    def dev(self) -> float:
        """The caller's score."""
        return self._dev_score(self._encoder)


class _PairTask(_EncoderTask):
    """Given pairs: softmax over labels, or squared error of the cosine."""

    def __init__(
        self,
        encoder: TrainableEncoder,
        weights: dict[str, torch.Tensor],
        examples: ScoredExamples | LabeledExamples,
        settings: EncoderTrainingSettings,
        dev_score: DevScore,
    ) -> None:
        import torch

        super().__init__(encoder, weights, settings, dev_score)
        self._examples = examples
        self._batch = settings.sampling.questions
        self.steps = -(-len(examples) // self._batch)
        if isinstance(examples, LabeledExamples):
            classifier = torch.nn.Linear(3 * encoder.dimensions, len(examples.names))
            encoder.classifier = classifier.to(self.device)
            self.weights |= {
                f"classifier.{name}": one for name, one in encoder.classifier.named_parameters()
            }

    def batches(self, chance: np.random.Generator) -> Iterator[Rows]:
        """All pairs in random order."""
        order = chance.permutation(len(self._examples))
        for start in range(0, len(order), self._batch):
            yield order[start : start + self._batch]

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
            return objectives.similarity_error(left, right, scores)
        assert encoder.classifier is not None
        labels = torch.from_numpy(examples.labels[batch]).to(self.device)
        return objectives.classification(left, right, labels, encoder.classifier)


class _RankingTask(_EncoderTask):
    """Questions with passages: ranking within the batch, or the hinge of triples."""

    def __init__(
        self,
        encoder: TrainableEncoder,
        weights: dict[str, torch.Tensor],
        examples: TrainingSet,
        settings: EncoderTrainingSettings,
        dev_score: DevScore,
    ) -> None:
        super().__init__(encoder, weights, settings, dev_score)
        self._examples = examples
        self._in_batch = settings.objective == "mnr"
        self.steps = batches_in_epoch(examples.pools, settings.sampling, in_batch=self._in_batch)

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
            return objectives.pairwise_hinge(positive, negative, self._settings.margin)
        relevant = self._examples.pools.relevant(questions, passages)
        pairs = np.flatnonzero(relevant[question, passage])
        anchor = question[pairs]
        return objectives.multiple_negatives(
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
