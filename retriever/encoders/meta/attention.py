"""Attention-weighted meta-embeddings: UNSUP and SUP of Takahashi and Bollegala (2022).

A source i has a projection A_i (d_meta, d_i) and a weight α_i: φ_i(w, s) = α_i A_i f_i(w, s). UNSUP
trains them to bring projections of the same word by two sources together, and projections of
different words apart (Eqs. 6 to 10). SUP trains cosines to equal gold similarities (Eq. 15).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.settings import MetaSettings, WordPooling
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import BadInputError, ConfigError
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import EarlyStopping, silent

if TYPE_CHECKING:
    import torch

# Words of a block, within which pairs are made. The cost of a large batch therefore grows linearly
# with its words.
BLOCK = 1024


class WordTensors:
    """A batch of words as tensors; `present` marks the words that each source has."""

    def __init__(self, batch: WordBatch) -> None:
        import torch

        self.vectors = [torch.from_numpy(vectors) for vectors in batch.vectors]
        self.present = [(vectors != 0).any(1) for vectors in self.vectors]
        self.sentences = torch.from_numpy(batch.sentences)
        self.types = torch.from_numpy(batch.types)


class AttentionModel:
    """Projections, random orthogonal at first, and weights, equal at first.

    `tensors` are the trained parameters by name.
    """

    def __init__(self, widths: Sequence[int], settings: MetaSettings) -> None:
        import torch

        self._sources = len(widths)
        dimensions = settings.dimensions or max(widths)
        generator = torch.Generator().manual_seed(settings.seed)
        self.tensors: dict[str, torch.Tensor] = {}
        for source, width in enumerate(widths):
            matrix = torch.empty(dimensions, width)
            torch.nn.init.orthogonal_(matrix, generator=generator)
            self.tensors[f"matrix {source}"] = matrix
        if settings.training.weights:
            self.tensors["weights"] = torch.zeros(self._sources)
        for tensor in self.tensors.values():
            tensor.requires_grad_()

    @property
    def matrices(self) -> list[torch.Tensor]:
        """A_j of each source, (d_meta, d_j)."""
        return [self.tensors[f"matrix {source}"] for source in range(self._sources)]

    @property
    def weights(self) -> torch.Tensor:
        """(sources,) weights α with sum 1; equal if they are not trained."""
        import torch

        if "weights" not in self.tensors:
            return torch.full((self._sources,), 1 / self._sources)
        return self.tensors["weights"].softmax(0)

    def project(self, words: WordTensors) -> list[torch.Tensor]:
        """Return φ of each source, (words, d_meta), with weights of mean 1 (Eqs. 1 and 2)."""
        return [
            factor * (vectors @ matrix.T)
            for factor, vectors, matrix in zip(
                self.weights * self._sources, words.vectors, self.matrices, strict=True
            )
        ]

    def embed_sentences(self, words: WordTensors, count: int, pooling: WordPooling) -> torch.Tensor:
        """Return the meta-vectors of sentences, over words that any source has (Eq. 3)."""
        import torch

        has_word = torch.stack(words.present).any(0)
        vectors = torch.stack(self.project(words)).mean(0)[has_word]
        return pool(vectors, words.sentences[has_word], count, pooling)

    def projection(self) -> Projection:
        """Return the map of words as a `Projection`, up to a constant factor."""
        matrices = tuple(matrix.detach().numpy().copy() for matrix in self.matrices)
        means = tuple(np.zeros(matrix.shape[1], np.float32) for matrix in matrices)
        return Projection(matrices, means, self.weights.detach().numpy().copy())


def pair_means(
    projected: Sequence[torch.Tensor],
    present: Sequence[torch.Tensor],
    sentences: torch.Tensor,
    types: torch.Tensor,
    margin: float,
) -> list[torch.Tensor]:
    """Return the mean costs of pairs: d² for the same word, max(0, margin - d²) for others.

    A pair is φ_i(w, s) and φ_j(w', s') for sources i < j that have the words w and w'. Both (w, w')
    and (w', w) are pairs. Each pair has the same weight in the mean of its term. Two occurrences of
    a form in one sentence are no pair: they are neither the same word nor different words.

    Eq. 10 subtracts squared distances without a bound. Here they count up to the margin. Cosines
    have bounds too, but would not train the weights, since they ignore positive factors.

    For each source, `projected` is (words, d_meta) and `present` (words,) bool. `types` is the form
    of each word. Pairs are made among `BLOCK` consecutive words. The four means, 0 without pairs,
    are of the same word (Eq. 6), different words of a sentence (Eq. 7), a word in different
    sentences (Eq. 8), and different words of different sentences (Eq. 9).
    """
    import torch

    zero = projected[0].new_zeros(())
    sums = [zero] * 4
    counts = [0] * 4

    def add(term: int, costs: torch.Tensor, selected: torch.Tensor) -> None:
        sums[term] = sums[term] + costs.masked_fill(~selected, 0).sum()
        counts[term] += int(selected.sum())

    for start in range(0, len(sentences), BLOCK):
        rows = slice(start, start + BLOCK)
        pushed = _pushed_pairs(sentences[rows], types[rows])
        for i, j in combinations(range(len(projected)), 2):
            left = projected[i][rows]
            right = projected[j][rows]
            has_left = present[i][rows]
            has_right = present[j][rows]
            add(0, (left - right).square().sum(1), has_left & has_right)
            lengths = left.square().sum(1)[:, None] + right.square().sum(1)
            costs = (margin - torch.addmm(lengths, left, right.T, alpha=-2)).relu()
            both = has_left[:, None] & has_right
            for term, pairs in enumerate(pushed, 1):
                add(term, costs, pairs & both)
    return [total / max(count, 1) for total, count in zip(sums, counts, strict=True)]


def _pushed_pairs(sentences: torch.Tensor, types: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return (words, words) bool for the terms of Eqs. 7, 8 and 9."""
    same_sentence = sentences[:, None] == sentences[None]
    same_form = types[:, None] == types[None]
    return (
        same_sentence & ~same_form,
        ~same_sentence & same_form,
        ~(same_sentence | same_form),
    )


def orthogonality(matrix: torch.Tensor) -> torch.Tensor:
    """Return ||A Aᵀ - I||² of a (d_meta, d) projection A if d_meta < d, else ||Aᵀ A - I||².

    Eq. 10 always has Aᵀ A. Its rank is at most d_meta, so that term is never below d - d_meta.
    """
    import torch

    rows, columns = matrix.shape
    gram = matrix @ matrix.T if rows < columns else matrix.T @ matrix
    return (gram - torch.eye(len(gram), dtype=gram.dtype)).square().sum()


def pool(
    words: torch.Tensor, sentences: torch.Tensor, count: int, pooling: WordPooling
) -> torch.Tensor:
    """Pool (words, d) to (count, d) sentence vectors; zeros without words (Eqs. 4 and 5)."""
    import torch

    sizes = torch.bincount(sentences, minlength=count)[:, None]
    zeros = words.new_zeros(count, words.shape[1])
    if pooling == "mean":
        return zeros.index_add(0, sentences, words) / sizes.clamp_min(1)
    # Rows without words stay zero.
    rows = sentences[:, None].expand_as(words)
    return zeros.scatter_reduce(0, rows, words, "amax", include_self=False)


def unsup_loss(model: AttentionModel, words: WordTensors, margin: float) -> torch.Tensor:
    """Return the scalar loss of a batch; see `fit_attention`."""
    pull, within, same_word, across = pair_means(
        model.project(words), words.present, words.sentences, words.types, margin
    )
    return pull + (within + same_word + across) + sum(map(orthogonality, model.matrices))


@dataclass(frozen=True, slots=True)
class MetaEpoch:
    """The result of an epoch; epoch 0 is before training. Missing values are None."""

    epoch: int
    # Mean loss of the training batches during the epoch, and of the held-out batches after it.
    loss: float | None
    held_out: float | None
    # Pearson correlation on dev.
    score: float | None
    # Weights of the sources.
    weights: tuple[float, ...]

    @property
    def worth(self) -> float:
        """The score, else the negative loss on held-out data. Higher is better."""
        return -(self.held_out or 0.0) if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class History:
    """All epochs of a training, and the number of the best."""

    curve: tuple[MetaEpoch, ...]
    best: int


@dataclass(frozen=True, slots=True, eq=False)
class ScoredBatch:
    """Pairs of sentences 2k and 2k + 1 with similarities gold[k], float32 from 0 to 1."""

    words: WordBatch
    gold: NDArray[np.float32]


TrainingBatch = WordBatch | ScoredBatch


def fit_attention(
    epochs: Callable[[int], Iterable[TrainingBatch]],
    widths: Sequence[int],
    settings: MetaSettings,
    *,
    held_out: Sequence[WordBatch] = (),
    dev: Sequence[ScoredBatch] = (),
    done: Callable[[MetaEpoch], object] = silent,
    checkpoint: Checkpoint | None = None,
) -> tuple[Projection, History]:
    """Train projections and weights, on words without labels (UNSUP) or on scored pairs (SUP).

    UNSUP: the loss of a batch is pull + within + same_word + across + Σ_i orthogonality. The first
    four terms are means over pairs (`pair_means`). The loss is Eq. 10 with a lower bound and
    coefficients 1. A pushed pair costs at most the margin. Weights are n softmax, so equal weights
    equal Eq. 1 for every n. The product of A and Aᵀ with full rank is pulled to I. Eq. 10
    as printed has no lower bound, and the authors' code turns each push into a pull. Words that a
    source lacks, zero rows, are in no pair of the source.

    SUP: the loss is the mean of (cos(m(s), m(s')) - r)² (Eq. 15), with pooled sentence meta-vectors
    and r from 0 to 1. The paper scales cosines to the range of r. Here they are not scaled, so a
    similarity of 0 asks for orthogonal vectors, not for opposite ones. Projections are not pulled
    to orthogonality.

    The same seed gives the same bits on the same machine and number of threads, even if training
    is interrupted and resumed.

    `epochs` returns the batches of epoch n, from 1, the same in each call. The best epoch has the
    lowest loss on `held_out`. With `dev` it has the highest Pearson correlation with the gold
    scores, which is 0 for constant cosines. The first of equal epochs is best. `done` is called
    after each epoch, and first for the epochs of a checkpoint. The result is the projection of the
    best epoch, with weights of sum 1.
    """
    return _AttentionTraining(
        AttentionModel(widths, settings), settings, held_out, dev, checkpoint
    ).run(epochs, done)


@dataclass
class _AttentionTraining:
    """The model, optimizer and progress of a training."""

    model: AttentionModel
    settings: MetaSettings
    held_out: Sequence[WordBatch]
    dev: Sequence[ScoredBatch]
    checkpoint: Checkpoint | None

    def __post_init__(self) -> None:
        import torch

        gold = np.concatenate([batch.gold for batch in self.dev]) if self.dev else np.arange(2)
        if len(np.unique(gold)) < 2:
            raise BadInputError(
                f"dev: expected pairs of different gold similarities, found {len(gold)} of one"
            )
        tensors = self.model.tensors
        training = self.settings.training
        self._optimizer = torch.optim.AdamW(
            list(tensors.values()),
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            fused=True,
        )
        self._stopping: EarlyStopping[MetaEpoch] = EarlyStopping(
            tensors,
            lambda curve: max(curve, key=lambda epoch: epoch.worth),
            training.epochs,
            training.patience,
        )

    def _cosines(self, batch: ScoredBatch) -> torch.Tensor:
        import torch

        count = 2 * len(batch.gold)
        pooling = self.settings.word_pooling
        pooled = self.model.embed_sentences(WordTensors(batch.words), count, pooling)
        return torch.nn.functional.cosine_similarity(pooled[0::2], pooled[1::2])

    def _loss(self, batch: TrainingBatch) -> torch.Tensor:
        import torch

        if isinstance(batch, WordBatch):
            return unsup_loss(self.model, WordTensors(batch), self.settings.training.margin)
        return (self._cosines(batch) - torch.from_numpy(batch.gold)).square().mean()

    def _evaluate(self) -> tuple[float | None, float | None]:
        """Return the loss on held-out data and the score on dev; None without such data."""
        losses = [float(self._loss(batch)) for batch in self.held_out]
        loss = float(np.mean(losses)) if losses else None
        if not self.dev:
            return loss, None
        gold = np.concatenate([batch.gold for batch in self.dev])
        cosines = np.concatenate([self._cosines(batch).numpy() for batch in self.dev])
        return loss, 0.0 if np.ptp(cosines) == 0 else float(np.corrcoef(cosines, gold)[0, 1])

    def run(
        self, epochs: Callable[[int], Iterable[TrainingBatch]], done: Callable[[MetaEpoch], object]
    ) -> tuple[Projection, History]:
        """Train until early stopping; see `fit_attention`."""
        stopping = self._stopping
        stored = self.checkpoint.read() if self.checkpoint else None
        if stored is None:
            self._end_epoch(None)
        else:
            tensors, values = stored
            for epoch_values in values["curve"]:
                weights = tuple(epoch_values["weights"])
                stopping.curve.append(MetaEpoch(**{**epoch_values, "weights": weights}))
            stopping.restore(tensors, self._optimizer)
        for epoch in stopping.curve:
            done(epoch)
        while not stopping.finished:
            self._end_epoch(self._train(epochs(len(stopping.curve))))
            done(stopping.curve[-1])
        best = stopping.selected
        last = stopping.curve[-1]
        assert best is not None
        if best.epoch == 0 and last.worth < best.worth and best.score is None:
            raise self._divergence_error(
                "on held-out sentences is never lower than before training"
            )
        stopping.restore_selected()
        return self.model.projection(), History(tuple(stopping.curve), best.epoch)

    def _train(self, batches: Iterable[TrainingBatch]) -> float:
        """Train an epoch and return its mean loss; end early if a loss is not finite."""
        losses = []
        for batch in batches:
            loss = self._loss(batch)
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                break
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        return float(np.mean(losses))

    def _end_epoch(self, loss: float | None) -> None:
        """Evaluate and record an epoch, and write the checkpoint."""
        import torch

        finite = all(bool(tensor.isfinite().all()) for tensor in self.model.tensors.values())
        if finite:
            with torch.no_grad():
                held_out, score = self._evaluate()
                weights = tuple(self.model.weights.tolist())
            values = (loss, held_out, score)
            finite = all(value is None or math.isfinite(value) for value in values)
        if not finite:
            raise self._divergence_error("is not finite")
        curve = self._stopping.curve
        self._stopping.record(MetaEpoch(len(curve), loss, held_out, score, weights))
        if self.checkpoint is not None:
            tensors = self._stopping.tensors(self._optimizer)
            self.checkpoint.write(tensors, {"curve": [asdict(epoch) for epoch in curve]})

    def _divergence_error(self, what: str) -> ConfigError:
        return ConfigError(
            f"learning_rate: the training diverged in epoch {len(self._stopping.curve)}, the loss "
            f"{what}; expected a lower rate, found {self.settings.training.learning_rate:g}"
        )
