"""Layers that score (question, passage) pairs, and their loss (Ma et al. 2019, Sec. 3).

S(q, p) is the score of a question and a passage. P(q) and N(q) are the relevant and the other
passages that were sampled for a question. This module imports torch: import it where it is used.
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

# Number of pairs that are scored at once.
_CHUNK = 4096


class InteractionHead(torch.nn.Module):
    """A score of two frozen vectors u and v; higher is better, in no fixed range.

    A linear map of a pair's interaction is the sum of the maps of its parts. The map of u or v is
    computed once for each vector, not once for each pair.
    """

    def __init__(self, settings: HeadSettings, dimensions: int) -> None:
        super().__init__()
        self.settings = settings
        self.dimensions = dimensions
        parts = PARTS[settings.interaction]
        width = len(parts) * dimensions
        # One map for each part; the maps of an MLP add up to its hidden layer.
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
        if settings.starts_as_cosine:
            self._start_as_cosine()

    def _start_as_cosine(self) -> None:
        """Set the weights so that the score is the cosine of u and v."""
        settings = self.settings
        with torch.no_grad():
            if settings.interaction == "bilinear":
                self.matrix.copy_(torch.eye(self.dimensions))
            if settings.head == "mlp":
                for part, weight in self.weights.items():
                    weight[0] = float(part == "product")
                    weight[1] = -weight[0]
                self.bias[:2] = 0.0
                self.out.weight.zero_()
                self.out.weight[0, 0] = 1.0
                self.out.weight[0, 1] = -1.0
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
        """Return (pairs,) scores of questions[question_rows] and passages[passage_rows]."""
        # Each question once, and for each pair the row of its question.
        unique_rows, pair_questions = torch.unique(question_rows, return_inverse=True)
        u = questions.index_select(0, unique_rows)
        v = passages.index_select(0, passage_rows)
        if self.settings.interaction == "bilinear":
            product = (u @ self.matrix).index_select(0, pair_questions) * v
            if self.settings.head == "linear":
                return product.sum(1)
            values = functional.linear(product, self.weights["product"], self.bias)
            return self._output_scores(values)
        question_values = functional.linear(u, self.weights["u"], self.bias)
        values = torch.addmm(
            question_values.index_select(0, pair_questions), v, self.weights["v"].T
        )
        if self.settings.interaction == "uv":
            pair_u = u.index_select(0, pair_questions)
            values = torch.addmm(values, pair_u * v, self.weights["product"].T)
            values = torch.addmm(values, (pair_u - v).abs_(), self.weights["distance"].T)
        return self._output_scores(values)

    def score(
        self, questions: Vectors, passages: Vectors, question_rows: Rows, passage_rows: Rows
    ) -> Vectors:
        """Return (pairs,) float32 scores of arrays, without dropout; see `pairs`."""
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
                left = torch.from_numpy(question_rows[rows])
                right = torch.from_numpy(passage_rows[rows])
                scores[rows] = self.pairs(u, v, left, right).numpy()
        self.train(was_training)
        return scores

    def _output_scores(self, values: torch.Tensor) -> torch.Tensor:
        """Return (pairs,) scores of (pairs, 1) linear or (pairs, hidden) MLP values."""
        if self.settings.head == "linear":
            return values[:, 0]
        units = functional.dropout(torch.relu(values), self.settings.dropout, self.training)
        scores: torch.Tensor = self.out(units)[:, 0]
        return scores


def _uniform(*shape: int, fan_in: int) -> torch.nn.Parameter:
    """Return the initial weights of PyTorch's linear layers: uniform, up to 1 / sqrt(fan_in)."""
    limit = fan_in**-0.5
    return torch.nn.Parameter(torch.empty(shape).uniform_(-limit, limit))


class CrossHead(torch.nn.Module):
    """A score of the top layer's [CLS]: linear, tanh, linear, with dropout before each layer."""

    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, cls: torch.Tensor) -> torch.Tensor:
        """Map (pairs, width) float32 to (pairs,) float32."""
        hidden = torch.tanh(self.dense(self.dropout(cls)))
        scores: torch.Tensor = self.out(self.dropout(hidden)).squeeze(-1)
        return scores


def hinge(scores: torch.Tensor, batch: TripleBatch, margin: float) -> torch.Tensor:
    """Return max(0, margin - S(q, p) + S(q, n)) for p in P(q), n in N(q)."""
    positive = torch.from_numpy(batch.positive).to(scores.device)
    negative = torch.from_numpy(batch.negative).to(scores.device)
    gaps = scores.index_select(0, positive) - scores.index_select(0, negative)
    return (margin - gaps).relu()
