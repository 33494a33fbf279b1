"""Scores of (question, passage) pairs from two frozen vectors u and v (Ma et al. 2019, Sec. 3).

Three interactions of u and v, under a linear head or an MLP of one hidden layer. Nowhere is a
pair's interaction laid out as one long vector: a linear map of it is the sum of the maps of its
parts, and the map of a part that belongs to the question alone, or to the passage alone, is
computed once for each of them and not once for each pair.

This module imports torch; import it where it is used.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from retriever.errors import BadInputError
from retriever.rerankers.head.settings import PARTS, HeadSettings

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]

# Pairs that are scored at a time.
_CHUNK = 4096


class InteractionHead(torch.nn.Module):
    """Two vectors to a score; higher is better, in no fixed range.

    Args:
        settings: what it computes.
        dimensions: of u and of v.

    Attributes:
        settings: as given.
        dimensions: as given.
    """

    def __init__(self, settings: HeadSettings, dimensions: int) -> None:
        super().__init__()
        self.settings = settings
        self.dimensions = dimensions
        parts = PARTS[settings.interaction]
        width = len(parts) * dimensions
        if settings.interaction == "bilinear":
            self.matrix = _uniform(dimensions, dimensions, fan_in=dimensions)
        if settings.head == "mlp":
            # One map for each part; together they are the hidden layer.
            self.weights = _by_part(parts, settings.hidden, dimensions, width)
            self.bias = _uniform(settings.hidden, fan_in=width)
            self.out = torch.nn.Linear(settings.hidden, 1)
        elif settings.interaction != "bilinear":
            self.weights = _by_part(parts, 1, dimensions, width)
            self.bias = _uniform(1, fan_in=width)
        if settings.starts_as_cosine:
            self._start_as_cosine()

    def _start_as_cosine(self) -> None:
        with torch.no_grad():
            if self.settings.interaction == "bilinear":
                self.matrix.copy_(torch.eye(self.dimensions))
            if self.settings.head == "mlp":
                for part, weight in self.weights.items():
                    weight[0] = float(part == "product")
                    weight[1] = -weight[0]
                self.bias[:2] = 0.0
                self.out.weight.zero_()
                self.out.weight[0, 0], self.out.weight[0, 1] = 1.0, -1.0
                self.out.bias.zero_()
            elif self.settings.interaction != "bilinear":
                for part, weight in self.weights.items():
                    weight.fill_(float(part == "product"))
                self.bias.zero_()

    def forward(self, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Score pairs of which each has vectors of its own: two times (pairs, d) to (pairs,)."""
        return self._scores(u, v, None)

    def pairs(
        self,
        questions: torch.Tensor,
        passages: torch.Tensor,
        question_rows: torch.Tensor,
        passage_rows: torch.Tensor,
    ) -> torch.Tensor:
        """As `forward` of questions[question_rows] and passages[passage_rows], but faster.

        Args:
            questions: (n, d) float32; rows that no pair names are not looked at.
            passages: (m, d) float32, likewise.
            question_rows: (pairs,) int64.
            passage_rows: (pairs,) int64.

        Returns:
            (pairs,) float32, equal to `forward` up to rounding.
        """
        kept, owner = torch.unique(question_rows, return_inverse=True)
        return self._scores(_of(questions, kept), _of(passages, passage_rows), owner)

    def score(
        self,
        questions: Vectors,
        passages: Vectors,
        question_rows: Rows | None = None,
        passage_rows: Rows | None = None,
    ) -> Vectors:
        """Score pairs outside training; dropout is off.

        Args:
            questions: (n, d) float32.
            passages: (m, d) float32.
            question_rows: (pairs,) int64, the question of each pair.
            passage_rows: (pairs,) int64, its passage. Without rows n and m are equal, and pair i is
                question i with passage i.

        Returns:
            (pairs,) float32. A score does not depend on the other pairs by more than rounding.

        Raises:
            BadInputError: vectors have other dimensions, or rows do not match.
        """
        for what, vectors in (("questions", questions), ("passages", passages)):
            if vectors.ndim != 2 or vectors.shape[1] != self.dimensions:
                raise BadInputError(
                    f"{what}: expected vectors of {self.dimensions} dimensions, found an array of "
                    f"shape {vectors.shape}; use the encoder the reranker was trained with"
                )
        u_rows = np.arange(len(questions)) if question_rows is None else question_rows
        v_rows = np.arange(len(passages)) if passage_rows is None else passage_rows
        if len(u_rows) != len(v_rows):
            raise BadInputError(
                f"expected as many questions as passages in pairs, found {len(u_rows)} and "
                f"{len(v_rows)}"
            )
        scores = np.empty(len(u_rows), np.float32)
        was_training = self.training
        self.eval()
        with torch.inference_mode():
            u, v = torch.from_numpy(questions), torch.from_numpy(passages)
            for start in range(0, len(scores), _CHUNK):
                rows = slice(start, start + _CHUNK)
                places = torch.from_numpy(u_rows[rows]), torch.from_numpy(v_rows[rows])
                scores[rows] = self.pairs(u, v, *places).numpy()
        self.train(was_training)
        return scores

    def _scores(self, u: torch.Tensor, v: torch.Tensor, owner: torch.Tensor | None) -> torch.Tensor:
        """Score each v with the u that owns it.

        Args:
            u: (questions, d).
            v: (pairs, d).
            owner: (pairs,) int64, rows of u; None if each pair has a row of its own.
        """
        if self.settings.interaction == "bilinear":
            product = _of(u @ self.matrix, owner) * v
            if self.settings.head == "linear":
                return product.sum(1)
            return self._top(functional.linear(product, self.weights["product"], self.bias))
        # Only the question's part comes for fewer rows than there are pairs.
        first = _of(functional.linear(u, self.weights["u"], self.bias), owner)
        values = torch.addmm(first, v, self.weights["v"].T)
        if self.settings.interaction == "uv":
            each = _of(u, owner)
            values = torch.addmm(values, each * v, self.weights["product"].T)
            values = torch.addmm(values, (each - v).abs_(), self.weights["distance"].T)
        return self._top(values)

    def _top(self, values: torch.Tensor) -> torch.Tensor:
        """(pairs, 1) of a linear head or (pairs, hidden) before the ReLU, to (pairs,)."""
        if self.settings.head == "linear":
            return values[:, 0]
        units = functional.dropout(torch.relu(values), self.settings.dropout, self.training)
        scores: torch.Tensor = self.out(units)[:, 0]
        return scores


def _of(values: torch.Tensor, owner: torch.Tensor | None) -> torch.Tensor:
    return values if owner is None else values.index_select(0, owner)


def _by_part(
    parts: tuple[str, ...], units: int, dimensions: int, width: int
) -> torch.nn.ParameterDict:
    return torch.nn.ParameterDict(
        {part: _uniform(units, dimensions, fan_in=width) for part in parts}
    )


def _uniform(*shape: int, fan_in: int) -> torch.nn.Parameter:
    """Weights as PyTorch's linear layers start with: uniform, up to 1 / sqrt(fan_in)."""
    limit = fan_in**-0.5
    return torch.nn.Parameter(torch.empty(shape).uniform_(-limit, limit))
