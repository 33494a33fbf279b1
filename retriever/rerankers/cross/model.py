"""A cross-encoder: question and passage through one transformer together.

Unlike systems that embed each text once, a cross-encoder reads both: [CLS] of its top
layer goes into a two-layer MLP (Ma et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import BATCH_PIECES, token_batches
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.backbone import Backbone, PiecePairs

if TYPE_CHECKING:
    import torch

    from retriever.rerankers.cross.head import CrossHead


def _silent(pairs: int) -> None:
    """Do nothing."""


class CrossEncoder:
    """Scores pairs; higher is better, in no fixed range.

    Args:
        backbone: the transformer.
        head: what follows it, float32, on the same device.
        max_length: the window in word pieces of question and passage together.
        dtype: that of the backbone, which says how large batches are.

    Attributes:
        cut: how many pairs were longer than the window, of all that were scored so far.
        autocast: whether the transformer multiplies in bfloat16 although its weights are float32.
    """

    def __init__(
        self, backbone: Backbone, head: CrossHead, max_length: int, dtype: Dtype = "float32"
    ) -> None:
        self.backbone = backbone
        self.head = head
        self.max_length = max_length
        self.cut = 0
        self.autocast = False
        self._pieces = BATCH_PIECES[dtype]

    def score(
        self,
        questions: Sequence[str],
        passages: Sequence[str],
        done: Callable[[int], object] = _silent,
    ) -> NDArray[np.float32]:
        """One score for each question and the passage beside it.

        Of a pair that is longer than the window the longer text loses its end, and `cut` counts it.

        Args:
            questions: one for each pair.
            passages: as many.
            done: called after each batch with its number of pairs.

        Returns:
            (pairs,) float32. A score does not depend on the other pairs by more than rounding.
        """
        import torch

        pairs = self.backbone.tokenize_pairs(questions, passages, self.max_length)
        self.cut += pairs.cut
        scores = np.zeros(len(questions), np.float32)
        was_training = self.head.training
        self.backbone.model.eval()
        self.head.eval()
        with torch.inference_mode():
            for rows in token_batches([len(ids) for ids in pairs.ids], self._pieces):
                scores[rows] = self.forward(pairs, rows).cpu().numpy()
                done(len(rows))
        self.backbone.model.train(was_training)
        self.head.train(was_training)
        return scores

    def forward(self, pairs: PiecePairs, rows: NDArray[np.int64]) -> torch.Tensor:
        """The scores of some of the pairs as one batch, (rows,) float32."""
        import torch

        types = [pairs.types[row] for row in rows] if pairs.types else []
        batch = self.backbone.batch([pairs.ids[row] for row in rows], types)
        with torch.autocast(self.backbone.device.type, torch.bfloat16, enabled=self.autocast):
            top = self.backbone.top(batch)
        texts = torch.arange(len(rows), device=top.device)
        cls = top[texts, self.backbone.cls_places(batch)]
        scores: torch.Tensor = self.head(cls.float())
        return scores
