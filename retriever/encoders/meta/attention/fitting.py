"""Fitting attention-weighted meta-embeddings (Takahashi and Bollegala 2022).

A source i has a projection A_i (d_meta, d_i) and a weight α_i: φ_i(w, s) = α_i A_i f_i(w, s). UNSUP
trains them so that the projections of a word by two sources agree and those of other words do not
(Eqs. 6 to 10), SUP so that cosines are gold similarities (Eq. 15).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.meta.attention.losses import (
    cosine_error,
    distance,
    hinge,
    neg_squared,
    orthogonality,
    pair_cosines,
    pair_means,
    pool,
    squared,
)
from retriever.encoders.meta.attention.model import AttentionModel, Words
from retriever.encoders.meta.attention.settings import (
    AttentionSettings,
    History,
    MetaEpoch,
    UnsupSettings,
)
from retriever.encoders.meta.attention.training import Training
from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import BadInputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of sentences with gold similarities.

    Attributes:
        words: of the sentences; 2k and 2k + 1 are pair k.
        gold: (pairs,) float32 from 0 to 1.
    """

    words: WordBatch
    gold: NDArray[np.float32]


def _silent(_: MetaEpoch) -> None:
    """Do nothing."""


def fit_unsup(
    epochs: Callable[[int], Iterable[WordBatch]],
    widths: Sequence[int],
    settings: UnsupSettings,
    *,
    held_out: Sequence[WordBatch],
    score: Callable[[Projection], float] | None = None,
    done: Callable[[MetaEpoch], object] = _silent,
    checkpoint: Path | None = None,
) -> tuple[Projection, History]:
    """Train projections and weights without labels (UNSUP).

    The loss of a batch is pull + λ within + μ same_word + ν across + ξ Σ_i orthogonality, where the
    four terms are means over pairs (`pair_means`).

    - ``stable``: Eq. 10 with a lower bound. The coefficients are fixed, a pushed pair costs
      max(0, margin - d²), the weights are n softmax, so that equal weights are those of Eq. 1
      whatever n is, and of A Aᵀ and Aᵀ A the one of full rank is drawn to I.
    - ``printed``: Eq. 10. A pushed pair costs -d² and the coefficients are trained, so that the
      loss falls without bound: a coefficient grows for as long as its distances are not 0.
      Training ends where a value is no longer finite, and keeps the best epoch before.
    - ``released``: the authors' code. Distances are not squared. Of a batch the terms are the mean
      of pull, |a within|, |b sentences| and |c mean of ||Aᵀ A - I|| |, with sentences the distance
      of the sentence vectors 2k and 2k + 1. a, b, c and the weights are trained without constraint
      and start between -1 and 1: the absolute values turn each push into a pull. The word
      meta-vector is the concatenation of the φ_i, of width n dimensions. Unlike there, padding
      is in no term.

    The same seed gives the same bits on the same machine and number of threads, also if training
    was interrupted and resumes. Zero rows, words that a source lacks, are in no pair of it.

    Args:
        epochs: the batches of epoch n, from 1, the same in each call. Pairs are made within each
            1,024 consecutive words of a batch.
        widths: d_j of each source, two or more.
        settings: how.
        held_out: batches for the loss that says which epoch is best; may be empty with `score`.
        score: higher is better; says which epoch is best, and may use labels.
        done: called after each epoch, and first for the epochs before a checkpoint.
        checkpoint: a folder for the state after each epoch, from which the same training resumes;
            the caller removes it.

    Returns:
        The projection of the best epoch, with means of 0 and weights of sum 1 (``released``: any),
        and the course of the training.

    Raises:
        BadInputError: fewer than two sources, batches that do not fit them, values that are not
            finite, or no batches.
        ConfigError: the training diverged, or the checkpoint is of other settings or data.
    """
    if score is None and not held_out:
        raise BadInputError("expected held-out sentences or a dev score to stop by, found neither")
    model = AttentionModel(widths, settings)

    def loss(batch: WordBatch) -> torch.Tensor:
        return unsup_loss(model, Words(batch, widths), settings)

    def evaluate() -> tuple[float | None, float | None]:
        losses = [float(loss(batch)) for batch in held_out]
        error = float(np.mean(losses)) if losses else None
        return error, None if score is None else score(model.projection())

    training = Training(model, settings, loss, evaluate)
    if checkpoint is not None:
        digest = _digest(array for batch in held_out for array in _arrays(batch))
        by = "loss" if score is None else "score"
        training.resume(checkpoint, {"method": "unsup", "stopped by": by, "held out": digest})
    return training.run(epochs, done)


def fit_sup(
    epochs: Callable[[int], Iterable[ScoredPairs]],
    widths: Sequence[int],
    settings: AttentionSettings,
    *,
    dev: Sequence[ScoredPairs],
    done: Callable[[MetaEpoch], object] = _silent,
    checkpoint: Path | None = None,
) -> tuple[Projection, History]:
    """Train projections and weights on gold similarities (SUP, Eq. 15).

    The loss is the mean of (cos(m(s), m(s')) - r)² with sentence meta-vectors pooled as the
    settings say and r from 0 to 1. The paper scales cosines to the same range; here they are as
    they are, so that a similarity of 0 asks for orthogonal vectors and not for opposite ones. No
    term draws the projections to orthogonal ones. Words that no source has are left out of the
    pooling. The epoch of the highest Pearson correlation on dev is kept.

    Determinism, `done`, `checkpoint` and what is returned: as with `fit_unsup`.

    Args:
        epochs: the batches of epoch n, from 1, the same in each call.
        widths: d_j of each source, two or more.
        settings: how.
        dev: pairs for the correlation, over all batches together; a constant cosine has 0.
        done: called after each epoch.
        checkpoint: a folder for the state after each epoch.

    Raises:
        BadInputError: fewer than two sources, batches that do not fit them, values that are not
            finite, no pairs, or dev similarities that are all equal.
        ConfigError: the training diverged, or the checkpoint is of other settings or data.
    """
    gold = np.concatenate([np.zeros(0, np.float32), *(_checked(batch) for batch in dev)])
    if len(np.unique(gold)) < 2:
        raise BadInputError(
            f"dev: expected pairs of different gold similarities, found {len(gold)} of one"
        )
    model = AttentionModel(widths, settings)

    def pooled(batch: ScoredPairs) -> torch.Tensor:
        words = Words(batch.words, widths)
        return _pooled(model, words, model.projected(words), settings, 2 * len(batch.gold))

    def loss(batch: ScoredPairs) -> torch.Tensor:
        import torch

        gold = torch.from_numpy(_checked(batch))
        return cosine_error(pooled(batch), gold)

    def evaluate() -> tuple[float | None, float | None]:
        cosines = np.concatenate([pair_cosines(pooled(batch)).numpy() for batch in dev])
        error = float(np.mean(np.square(cosines - gold)))
        constant = np.ptp(cosines) == 0
        return error, 0.0 if constant else float(np.corrcoef(cosines, gold)[0, 1])

    training = Training(model, settings, loss, evaluate)
    if checkpoint is not None:
        digest = _digest(one for batch in dev for one in (*_arrays(batch.words), batch.gold))
        training.resume(checkpoint, {"method": "sup", "dev": digest})
    return training.run(epochs, done)


def unsup_loss(model: AttentionModel, words: Words, settings: UnsupSettings) -> torch.Tensor:
    """The loss of a batch, () (see `fit_unsup`)."""
    if settings.variant == "released":
        return _released_loss(model, words, settings)
    stable = settings.variant == "stable"
    pull, *pushes = pair_means(
        model.projected(words),
        words.present,
        words.sentences,
        words.types,
        pull=squared,
        push=hinge(settings.margin) if stable else neg_squared,
    )
    regularizer = sum(orthogonality(matrix, smaller=stable) for matrix in model.matrices)
    coefficients = (settings.lambda_, settings.mu, settings.nu, settings.xi)
    for coefficient, term in zip(
        coefficients if stable else model.tensors["coefficients"],
        (*pushes, regularizer),
        strict=True,
    ):
        pull = pull + coefficient * term
    return pull


def _released_loss(model: AttentionModel, words: Words, settings: UnsupSettings) -> torch.Tensor:
    import torch

    projected = model.projected(words)
    pull, within, _, _ = pair_means(
        projected, words.present, words.sentences, words.types, pull=distance, push=distance
    )
    pooled = _pooled(model, words, projected, settings)
    pooled = pooled[: len(pooled) // 2 * 2]
    between = distance((pooled[0::2] - pooled[1::2]).square().sum(1))
    regularizers = [distance(orthogonality(one, smaller=False)) for one in model.matrices]
    terms = torch.stack(
        [within, between.sum() / max(len(between), 1), torch.stack(regularizers).mean()]
    )
    return pull + (model.tensors["coefficients"] * terms).abs().sum()


def _pooled(
    model: AttentionModel,
    words: Words,
    projected: Sequence[torch.Tensor],
    settings: AttentionSettings,
    sentences: int | None = None,
) -> torch.Tensor:
    """The meta-vector of each sentence, over the words that any source has."""
    if sentences is None:
        sentences = int(words.sentences.max()) + 1 if len(words) else 0
    known = words.known
    vectors = model.words(projected)[known]
    return pool(vectors, words.sentences[known], sentences, settings.pooling)


def _checked(pairs: ScoredPairs) -> NDArray[np.float32]:
    """The gold similarities."""
    gold, sentences = pairs.gold, pairs.words.sentences
    if len(gold) == 0 or not (gold.min() >= 0 and gold.max() <= 1):
        raise BadInputError("gold: expected similarities from 0 to 1 in each batch, found others")
    if len(sentences) and sentences[-1] >= 2 * len(gold):
        raise BadInputError(
            f"gold: expected one similarity for each two sentences, found {len(gold)} for "
            f"{sentences[-1] + 1} sentences"
        )
    return gold


def _digest(arrays: Iterable[NDArray[np.generic]]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _arrays(batch: WordBatch) -> Iterable[NDArray[np.generic]]:
    return (*batch.vectors, batch.sentences, batch.types)
