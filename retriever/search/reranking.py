"""Rerank the hits of a search with a saved reranker."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.rerankers.folders import is_reranker, reranker_kind

if TYPE_CHECKING:
    from indexes import View
    from retriever.encoders.settings import Backend, Dtype
    from retriever.encoders.spec import EncoderSpec
    from retriever.rerankers.cross import CrossEncoder, LightCrossEncoder
    from retriever.search.engine import Hit

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
# Names that a reranker has.
_INTERFACE = ("reads_vectors", "check", "score")


class Reranker(Protocol):
    """Scores hits again, by vectors or by texts."""

    reads_vectors: bool

    def check(self, encoder: EncoderSpec) -> None:
        """Raise EncoderMismatchError if it was trained on the vectors of another encoder."""

    def score(
        self,
        query: str,
        vector: NDArray[np.float32] | None,
        passages: Sequence[str],
        vectors: NDArray[np.float32] | None,
    ) -> NDArray[np.float32]:
        """Return one score for each passage; higher is better.

        Args:
            query: the query.
            vector: (dimensions,) vector of the query; None if the reranker reads no vectors.
            passages: texts with their titles, as they were encoded.
            vectors: (passages, dimensions) vectors; None if the reranker reads no vectors.
        """
        ...


def check_reranker(reranker: Reranker) -> None:
    """Raise TypeError if `reranker` is no reranker, such as the folder of one."""
    if not all(hasattr(reranker, name) for name in _INTERFACE):
        raise TypeError(
            f"reranker: expected a loaded reranker, found {reranker!r:.60}; load one from its "
            "folder with load_reranker(folder)"
        )


def load_reranker(
    folder: str | Path,
    *,
    device: str | None = None,
    backend: Backend = "auto",
    dtype: Dtype = "float32",
    download: bool = False,
) -> Reranker:
    """Load a reranker that `retriever train` wrote, or a CrossEncoder of sentence-transformers.

    Args:
        folder: folder of a head on embeddings or of a cross-encoder, or the hub id of a
            CrossEncoder.
        device: torch device of a cross-encoder; None uses a GPU if there is one.
        backend: engine of a cross-encoder; ``auto`` takes OpenVINO if it is installed.
        dtype: number format of a cross-encoder's matrix products.
        download: whether a hub id that is not in the cache may be downloaded.

    Returns:
        A reranker, for `Index.search(reranker=...)`.

    Raises:
        ModelError: the folder holds no reranker, a file is missing or altered, or the scores of a
            CrossEncoder cannot be computed, for instance because it has several labels.
        ConfigError: the backend cannot run the cross-encoder.
        MissingExtraError: OpenVINO is requested and not installed.
    """
    from retriever.rerankers.cross import KIND, load_classifier, load_cross_encoder
    from retriever.rerankers.head import HeadReranker

    folder = Path(folder)
    is_hub_id = not folder.exists() and _HUB_ID.fullmatch(folder.as_posix())
    if not is_reranker(folder) and (is_hub_id or (folder / "config.json").is_file()):
        model = load_classifier(
            folder.as_posix(), device=device, backend=backend, dtype=dtype, download=download
        )
        return _CrossEncoderReranker(model)
    if reranker_kind(folder) == KIND:
        return _CrossEncoderReranker(
            load_cross_encoder(folder, device=device, backend=backend, dtype=dtype)
        )
    return HeadReranker.load(folder)


def rerank(
    view: View,
    reranker: Reranker,
    query: str,
    vector: NDArray[np.float32] | None,
    hits: Sequence[Hit],
) -> list[Hit]:
    """Return the hits of one query by descending scores of a reranker, then by document id."""
    if not hits:
        return []
    passages = [f"{hit.title} {hit.passage}" if hit.title else hit.passage for hit in hits]
    vectors = None
    if reranker.reads_vectors:
        vectors = view.vectors([hit.passage_number for hit in hits])
    scores = reranker.score(query, None if vectors is None else vector, passages, vectors)
    order = sorted(range(len(hits)), key=lambda i: (-float(scores[i]), hits[i].id))
    return [
        replace(hits[i], rank=rank, score=float(scores[i]), first_rank=hits[i].rank)
        for rank, i in enumerate(order, start=1)
    ]


class _CrossEncoderReranker:
    reads_vectors = False

    def __init__(self, model: CrossEncoder | LightCrossEncoder) -> None:
        self._model = model

    def check(self, encoder: EncoderSpec) -> None:
        """Accept any encoder, since a cross-encoder reads texts."""

    def score(
        self,
        query: str,
        vector: NDArray[np.float32] | None,
        passages: Sequence[str],
        vectors: NDArray[np.float32] | None,
    ) -> NDArray[np.float32]:
        cut_before = self._model.cut
        scores = self._model.score([query] * len(passages), passages)
        cut = self._model.cut - cut_before
        if cut:
            warnings.warn(
                f"{cut} of {len(passages)} passages are longer, with the query, than the "
                f"reranker's window of {self._model.max_length} tokens and were cut",
                stacklevel=2,
            )
        return scores
