"""Attention-weighted meta-embeddings: UNSUP and SUP of Takahashi and Bollegala (2022).

A source i has a projection A_i (d_meta, d_i) and a weight α_i: φ_i(w, s) = α_i A_i f_i(w, s). UNSUP
trains them so that the projections of a word by two sources agree and those of other words do not
(Eqs. 6 to 10), SUP so that cosines are gold similarities (Eq. 15).
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

# Pairs are made within blocks of this many words: all of a small batch, and a work that grows with
# the words of a large one, not with their square.
BLOCK = 1024


class Words:
    """A batch of words as tensors; `present` says per source which of the words it has."""

    def __init__(self, batch: WordBatch) -> None:
        import torch

        self.vectors = [torch.from_numpy(vectors) for vectors in batch.vectors]
        self.present = [(vectors != 0).any(1) for vectors in self.vectors]
        self.sentences = torch.from_numpy(batch.sentences)
        self.types = torch.from_numpy(batch.types)


class AttentionModel:
    """Projections, orthogonal at random, and weights, equal; `tensors` are trained, by name."""

    def __init__(self, widths: Sequence[int], settings: MetaSettings) -> None:
        import torch

        self._sources = len(widths)
        dimensions = settings.dimensions or max(widths)
        chance = torch.Generator().manual_seed(settings.seed)
        self.tensors: dict[str, torch.Tensor] = {}
        for source, width in enumerate(widths):
            matrix = torch.empty(dimensions, width)
            torch.nn.init.orthogonal_(matrix, generator=chance)
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
        """(sources,) α of sum 1; without trained ones, equal ones."""
        import torch

        if "weights" not in self.tensors:
            return torch.full((self._sources,), 1 / self._sources)
        return self.tensors["weights"].softmax(0)

    def projected(self, words: Words) -> list[torch.Tensor]:
        """φ of each source, (words, d_meta), with weights of mean 1: Eq. 1 is Eq. 2 with 1."""
        return [
            factor * (vectors @ matrix.T)
            for factor, vectors, matrix in zip(
                self.weights * self._sources, words.vectors, self.matrices, strict=True
            )
        ]

    def sentences(self, words: Words, count: int, pooling: WordPooling) -> torch.Tensor:
        """The meta-vectors of sentences, over the words that any source has (Eq. 3)."""
        import torch

        known = torch.stack(words.present).any(0)
        vectors = torch.stack(self.projected(words)).mean(0)[known]
        return pool(vectors, words.sentences[known], count, pooling)

    def projection(self) -> Projection:
        """The same map of words, up to a constant factor."""
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
    """What the pairs of all i < j of sources cost: d² of the same word, else max(0, margin - d²).

    A pair is φ_i(w, s) and φ_j(w', s') of words of a batch that source i and source j have.
    Both (w, w') and (w', w) are pairs, and each pair counts the same in the mean of its term, of
    whatever sources. Two occurrences of a form in one sentence are no pair: they are neither the
    same word nor different ones.

    A pushed pair costs margin - min(d², margin): the squared distance that Eq. 10 subtracts, which
    has no bound, counts up to the margin. A cosine has bounds too, but does not depend on positive
    factors of the two vectors, so that the weights of the sources would not be trained.

    Per source, `projected` is (words, d_meta) and `present` (words,) bool; `types` is the form of
    each word. Pairs are among `BLOCK` consecutive words. The four means, 0 without a pair, are of
    the same word (Eq. 6), different words of a sentence (Eq. 7), a word in different sentences
    (Eq. 8) and different words of different ones (Eq. 9).
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
        same_sentence = sentences[rows, None] == sentences[None, rows]
        same_form = types[rows, None] == types[None, rows]
        pushed = (
            same_sentence & ~same_form,
            ~same_sentence & same_form,
            ~(same_sentence | same_form),
        )
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


def orthogonality(matrix: torch.Tensor) -> torch.Tensor:
    """||A Aᵀ - I||² of a (d_meta, d) projection A if d_meta < d, else ||Aᵀ A - I||².

    Eq. 10 has Aᵀ A in any case: its rank is at most d_meta, so that the term is never below
    d - d_meta.
    """
    import torch

    rows, columns = matrix.shape
    gram = matrix @ matrix.T if rows < columns else matrix.T @ matrix
    return (gram - torch.eye(len(gram), dtype=gram.dtype)).square().sum()


def pool(
    words: torch.Tensor, sentences: torch.Tensor, count: int, pooling: WordPooling
) -> torch.Tensor:
    """(count, d) sentence vectors of (words, d); zero for one without words (Eqs. 4 and 5)."""
    import torch

    sizes = torch.bincount(sentences, minlength=count)[:, None]
    zeros = words.new_zeros(count, words.shape[1])
    if pooling == "mean":
        return zeros.index_add(0, sentences, words) / sizes.clamp_min(1)
    # Rows that no word belongs to stay what they are.
    rows = sentences[:, None].expand_as(words)
    return zeros.scatter_reduce(0, rows, words, "amax", include_self=False)


def unsup_loss(model: AttentionModel, words: Words, margin: float) -> torch.Tensor:
    """The loss of a batch, () (see `fit_attention`)."""
    pull, within, same_word, across = pair_means(
        model.projected(words), words.present, words.sentences, words.types, margin
    )
    return pull + (within + same_word + across) + sum(map(orthogonality, model.matrices))


@dataclass(frozen=True, slots=True)
class MetaEpoch:
    """The result of an epoch; 0 is before training. What there is not is None."""

    epoch: int
    # Mean over the batches as training met them, and over the held-out batches.
    loss: float | None
    held_out: float | None
    # On dev.
    score: float | None
    # Of the sources.
    weights: tuple[float, ...]

    @property
    def worth(self) -> float:
        """Higher is better: the score, else the negative loss on held-out data."""
        return -(self.held_out or 0.0) if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class History:
    """All epochs of a training, and the number of the one that is kept."""

    curve: tuple[MetaEpoch, ...]
    best: int


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of sentences: 2k and 2k + 1 have the similarity gold[k], float32 from 0 to 1."""

    words: WordBatch
    gold: NDArray[np.float32]


Batch = WordBatch | ScoredPairs


def fit_attention(
    epochs: Callable[[int], Iterable[Batch]],
    widths: Sequence[int],
    settings: MetaSettings,
    *,
    held_out: Sequence[WordBatch] = (),
    dev: Sequence[ScoredPairs] = (),
    done: Callable[[MetaEpoch], object] = silent,
    checkpoint: Checkpoint | None = None,
) -> tuple[Projection, History]:
    """Train projections and weights, on words without labels (UNSUP) or on scored pairs (SUP).

    UNSUP: the loss of a batch is pull + within + same_word + across + Σ_i orthogonality, where the
    first four terms are means over pairs (`pair_means`). It is Eq. 10 with a lower bound: the
    coefficients are 1, a pushed pair costs at most the margin, the weights are n softmax, so
    that equal weights are those of Eq. 1 whatever n is, and of A Aᵀ and Aᵀ A the one of full rank
    is drawn to I. Eq. 10 as it is printed falls without bound, and the authors' code turns each
    push into a pull. Zero rows, words that a source lacks, are in no pair of it.

    SUP: the loss is the mean of (cos(m(s), m(s')) - r)² (Eq. 15) with sentence meta-vectors pooled
    as the settings say and r from 0 to 1. The paper scales cosines to the same range; here they are
    as they are, so that a similarity of 0 asks for orthogonal vectors and not for opposite ones. No
    term draws the projections to orthogonal ones.

    The same seed gives the same bits on the same machine and number of threads, also if training
    was interrupted and resumes.

    `epochs` gives the batches of epoch n, from 1, the same in each call. The loss on `held_out`
    says which epoch is best, or with `dev` Pearson's correlation with its gold scores, 0 where
    cosines are constant. `done` is called after each epoch, first for those before a checkpoint.
    The projection is that of the best epoch, the first of equal ones, with weights of sum 1.
    """
    return _Training(AttentionModel(widths, settings), settings, held_out, dev, checkpoint).run(
        epochs, done
    )


@dataclass
class _Training:
    """A model, its optimizer and its progress."""

    model: AttentionModel
    settings: MetaSettings
    held_out: Sequence[WordBatch]
    dev: Sequence[ScoredPairs]
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

    def _cosines(self, batch: ScoredPairs) -> torch.Tensor:
        import torch

        count = 2 * len(batch.gold)
        pooling = self.settings.word_pooling
        pooled = self.model.sentences(Words(batch.words), count, pooling)
        return torch.nn.functional.cosine_similarity(pooled[0::2], pooled[1::2])

    def _loss(self, batch: Batch) -> torch.Tensor:
        import torch

        if isinstance(batch, WordBatch):
            return unsup_loss(self.model, Words(batch), self.settings.training.margin)
        return (self._cosines(batch) - torch.from_numpy(batch.gold)).square().mean()

    def _evaluate(self) -> tuple[float | None, float | None]:
        """Loss on held-out data and score on dev; None of what there is not."""
        losses = [float(self._loss(batch)) for batch in self.held_out]
        error = float(np.mean(losses)) if losses else None
        if not self.dev:
            return error, None
        gold = np.concatenate([batch.gold for batch in self.dev])
        found = np.concatenate([self._cosines(batch).numpy() for batch in self.dev])
        return error, 0.0 if np.ptp(found) == 0 else float(np.corrcoef(found, gold)[0, 1])

    def run(
        self, epochs: Callable[[int], Iterable[Batch]], done: Callable[[MetaEpoch], object]
    ) -> tuple[Projection, History]:
        """Train to the end; see `fit_attention`."""
        stopping = self._stopping
        state = self.checkpoint.read() if self.checkpoint else None
        if state is None:
            self._end_epoch(None)
        else:
            tensors, values = state
            for one in values["curve"]:
                stopping.curve.append(MetaEpoch(**{**one, "weights": tuple(one["weights"])}))
            stopping.restore(tensors, self._optimizer)
        for epoch in stopping.curve:
            done(epoch)
        while not stopping.finished:
            self._end_epoch(self._train(epochs(len(stopping.curve))))
            done(stopping.curve[-1])
        best = stopping.kept
        last = stopping.curve[-1]
        assert best is not None
        if best.epoch == 0 and last.worth < best.worth and best.score is None:
            raise self._diverged("on held-out sentences is never lower than before training")
        stopping.use_kept()
        return self.model.projection(), History(tuple(stopping.curve), best.epoch)

    def _train(self, batches: Iterable[Batch]) -> float:
        """Mean loss of an epoch, which ends early if it is not finite."""
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
        """Record an epoch and save the state."""
        import torch

        finite = all(bool(one.isfinite().all()) for one in self.model.tensors.values())
        if finite:
            with torch.no_grad():
                held_out, score = self._evaluate()
                weights = tuple(self.model.weights.tolist())
            values = (loss, held_out, score)
            finite = all(value is None or math.isfinite(value) for value in values)
        if not finite:
            raise self._diverged("is not finite")
        curve = self._stopping.curve
        self._stopping.record(MetaEpoch(len(curve), loss, held_out, score, weights))
        if self.checkpoint is not None:
            tensors = self._stopping.tensors(self._optimizer)
            self.checkpoint.write(tensors, {"curve": [asdict(epoch) for epoch in curve]})

    def _diverged(self, what: str) -> ConfigError:
        return ConfigError(
            f"learning_rate: the training diverged in epoch {len(self._stopping.curve)}, the loss "
            f"{what}; expected a lower rate, found {self.settings.training.learning_rate:g}"
        )
