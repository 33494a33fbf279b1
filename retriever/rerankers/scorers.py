"""Layers that score (question, passage) pairs, and their loss (Ma et al. 2019, Sec. 3).

S(q, p) is a score, P(q) and N(q) are the relevant and the other passages that were sampled for the
question. This module imports torch; import it where it is used.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from retriever.errors import BadInputError
from retriever.training.sampling import TripleBatch
from retriever.training.settings import PARTS, HeadSettings

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]

# Pairs that are scored at a time.
_CHUNK = 4096


class InteractionHead(torch.nn.Module):
    """Two frozen vectors u and v to a score; higher is better, in no fixed range.

    A linear map of a pair's interaction is the sum of the maps of its parts, and that of u or v
    alone is computed once for each of them, not once for each pair.
    """

    def __init__(self, settings: HeadSettings, dimensions: int) -> None:
        super().__init__()
        self.settings = settings
        self.dimensions = dimensions
        parts = PARTS[settings.interaction]
        width = len(parts) * dimensions
        # One map for each part; those of an MLP are together its hidden layer.
        units = settings.hidden if settings.head == "mlp" else 1
        if settings.interaction == "bilinear":
            self.matrix = _uniform(dimensions, dimensions, fan_in=dimensions)
        if settings.head == "mlp" or settings.interaction != "bilinear":
            self.weights = torch.nn.ParameterDict(
                {part: _uniform(units, dimensions, fan_in=width) for part in parts}
            )
            self.bias = _uniform(units, fan_in=width)
        if settings.head == "mlp":
            self.out = torch.nn.Linear(units, 1)
        if not settings.starts_as_cosine:
            return
        with torch.no_grad():
            if settings.interaction == "bilinear":
                self.matrix.copy_(torch.eye(dimensions))
            if settings.head == "mlp":
                for part, weight in self.weights.items():
                    weight[0] = float(part == "product")
                    weight[1] = -weight[0]
                self.bias[:2] = 0.0
                self.out.weight.zero_()
                self.out.weight[0, 0], self.out.weight[0, 1] = 1.0, -1.0
                self.out.bias.zero_()
            elif settings.interaction != "bilinear":
                for part, weight in self.weights.items():
                    weight.fill_(float(part == "product"))
                self.bias.zero_()

    def pairs(
        self,
        questions: torch.Tensor,
        passages: torch.Tensor,
        question_rows: torch.Tensor,
        passage_rows: torch.Tensor,
    ) -> torch.Tensor:
        """(pairs,) scores of questions[question_rows] and passages[passage_rows]."""
        kept, owner = torch.unique(question_rows, return_inverse=True)
        u = questions.index_select(0, kept)
        v = passages.index_select(0, passage_rows)
        if self.settings.interaction == "bilinear":
            product = (u @ self.matrix).index_select(0, owner) * v
            if self.settings.head == "linear":
                return product.sum(1)
            return self._top(functional.linear(product, self.weights["product"], self.bias))
        # Only the question's part comes for fewer rows than there are pairs.
        first = functional.linear(u, self.weights["u"], self.bias).index_select(0, owner)
        values = torch.addmm(first, v, self.weights["v"].T)
        if self.settings.interaction == "uv":
            each = u.index_select(0, owner)
            values = torch.addmm(values, each * v, self.weights["product"].T)
            values = torch.addmm(values, (each - v).abs_(), self.weights["distance"].T)
        return self._top(values)

    def score(
        self, questions: Vectors, passages: Vectors, question_rows: Rows, passage_rows: Rows
    ) -> Vectors:
        """As `pairs`, of arrays and outside training; dropout is off."""
        for what, vectors in (("questions", questions), ("passages", passages)):
            if vectors.ndim != 2 or vectors.shape[1] != self.dimensions:
                raise BadInputError(
                    f"{what}: expected vectors of {self.dimensions} dimensions, found an array of "
                    f"shape {vectors.shape}; use the encoder the reranker was trained with"
                )
        scores = np.empty(len(question_rows), np.float32)
        was_training = self.training
        self.eval()
        with torch.inference_mode():
            u = torch.from_numpy(questions)
            v = torch.from_numpy(passages)
            for start in range(0, len(scores), _CHUNK):
                rows = slice(start, start + _CHUNK)
                left, right = (torch.from_numpy(one[rows]) for one in (question_rows, passage_rows))
                scores[rows] = self.pairs(u, v, left, right).numpy()
        self.train(was_training)
        return scores

    def _top(self, values: torch.Tensor) -> torch.Tensor:
        """(pairs, 1) of a linear head or (pairs, hidden) before the ReLU, to (pairs,)."""
        if self.settings.head == "linear":
            return values[:, 0]
        units = functional.dropout(torch.relu(values), self.settings.dropout, self.training)
        scores: torch.Tensor = self.out(units)[:, 0]
        return scores


def _uniform(*shape: int, fan_in: int) -> torch.nn.Parameter:
    """Weights as PyTorch's linear layers start with: uniform, up to 1 / sqrt(fan_in)."""
    limit = fan_in**-0.5
    return torch.nn.Parameter(torch.empty(shape).uniform_(-limit, limit))


class CrossHead(torch.nn.Module):
    """[CLS] of the top layer to a score: linear, tanh, linear, with dropout before each."""

    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, cls: torch.Tensor) -> torch.Tensor:
        """(pairs, width) float32 to (pairs,) float32."""
        hidden = torch.tanh(self.dense(self.dropout(cls)))
        scores: torch.Tensor = self.out(self.dropout(hidden)).squeeze(-1)
        return scores


def hinge(scores: torch.Tensor, batch: TripleBatch, margin: float) -> torch.Tensor:
    """max(0, margin - S(q, p) + S(q, n)) for p in P(q), n in N(q): Ma et al. 2019, Sec. 3."""
    positive, negative = (
        torch.from_numpy(rows).to(scores.device) for rows in (batch.positive, batch.negative)
    )
    gaps = scores.index_select(0, positive) - scores.index_select(0, negative)
    return (margin - gaps).relu()
