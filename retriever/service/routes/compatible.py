"""Routes that other programs already speak: OpenAI's embeddings, Cohere's and Jina's rerank."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray

from retriever.encoders.protocol import LoadedEncoder
from retriever.errors import BadInputError
from retriever.index import Index
from retriever.search.queries import check_query
from retriever.search.reranking import Reranker
from retriever.service.batching import Batcher
from retriever.service.catalog import Catalog
from retriever.service.faults import ServiceError
from retriever.service.gone import unless_gone
from retriever.service.schemas import EmbeddingsRequest, RerankRequest


@dataclass(frozen=True, slots=True)
class EncodingJob:
    """Texts to encode.

    Attributes:
        index: whose encoder it is.
        texts: passages, or queries.
        query: which of the two.
    """

    index: Index
    texts: tuple[str, ...]
    query: bool


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Vectors of texts.

    Attributes:
        vectors: (texts, dimensions) float32.
        pieces: number of word pieces that were encoded.
        truncated: number of texts that were cut at the window.
    """

    vectors: NDArray[np.float32]
    pieces: int
    truncated: int


@dataclass(frozen=True, slots=True)
class RerankJob:
    """A query and the texts to score for it."""

    index: Index
    query: str
    texts: tuple[str, ...]


EncodingBatcher = Batcher[EncodingJob, Encoded]
RerankBatcher = Batcher[RerankJob, NDArray[np.float32]]


def router(catalog: Catalog, encoding: EncodingBatcher, reranking: RerankBatcher) -> APIRouter:
    """The routes.

    Args:
        catalog: of the service.
        encoding: runs `encoded`.
        reranking: runs `relevances`.
    """
    routes = APIRouter(tags=["compatible"])
    limits = catalog.settings

    @routes.get("/v1/models", summary="The indexes, as OpenAI lists models")
    async def models() -> dict[str, Any]:
        """Each index stands for its encoder."""
        names = [
            {"id": name, "object": "model", "created": 0, "owned_by": "retriever"}
            for name in catalog.indexes
        ]
        return {"object": "list", "data": names}

    @routes.post("/v1/embeddings", summary="Encode texts, as OpenAI does")
    async def embeddings(request: Request, asked: EmbeddingsRequest) -> Any:
        """Vectors by the encoder of an index. Texts beyond its window are cut;
        `usage.truncated` counts them.
        """
        texts = _texts(asked.input)
        catalog.check_number("input", len(texts), limits.max_texts)
        for number, text in enumerate(texts, start=1):
            check_query(text, number)
        index = catalog.of_model(asked.model)
        dimensions = index.encoder_spec.dimensions
        if asked.dimensions not in (None, dimensions):
            raise BadInputError(
                f"dimensions: the encoder has {dimensions}, found {asked.dimensions}; leave it out"
            )
        job = EncodingJob(index, tuple(texts), asked.input_type == "query")
        found = await unless_gone(request, encoding.submit(job, len(texts)))
        rows = found.vectors.astype("<f4")
        data = [
            {
                "object": "embedding",
                "index": place,
                "embedding": base64.b64encode(row.tobytes()).decode()
                if asked.encoding_format == "base64"
                else row.tolist(),
            }
            for place, row in enumerate(rows)
        ]
        usage = {
            "prompt_tokens": found.pieces,
            "total_tokens": found.pieces,
            "truncated": found.truncated,
        }
        model = asked.model or catalog.default
        return {"object": "list", "data": data, "model": model, "usage": usage}

    @routes.post("/v1/rerank", summary="Rank texts for a query, as Cohere and Jina do")
    @routes.post("/v2/rerank", summary="The same, where Cohere's second version expects it")
    async def rerank(request: Request, asked: RerankRequest) -> Any:
        """By the reranker of the service; without one by cosine (or inner product, if the encoder
        does not normalize). Equal scores are in the order of the documents.
        """
        catalog.check_text("query", asked.query)
        check_query(asked.query)
        texts = [one if isinstance(one, str) else one.text for one in asked.documents]
        catalog.check_number("documents", len(texts), limits.max_texts)
        for number, text in enumerate(texts, start=1):
            check_query(text, number)
        index = catalog.of_model(asked.model)
        job = RerankJob(index, asked.query, tuple(texts))
        scores = await unless_gone(request, reranking.submit(job, len(texts)))
        order = np.argsort(-scores, kind="stable")[: asked.top_n].tolist()
        results: list[dict[str, Any]] = []
        for place in order:
            results.append({"index": place, "relevance_score": float(scores[place])})
            if asked.return_documents:
                results[-1]["document"] = {"text": texts[place]}
        model = asked.model or catalog.default
        return {
            "id": "",
            "model": model,
            "results": results,
            "meta": {"api_version": {"version": request.url.path[2:3]}},
            "usage": {"total_tokens": 0},
        }

    return routes


def encoded(jobs: Sequence[EncodingJob]) -> list[Encoded | Exception]:
    """The vectors of each job; those of one encoder are computed together."""
    found: list[Encoded | Exception] = [RuntimeError("no answer")] * len(jobs)
    groups: dict[tuple[int, bool], list[int]] = {}
    for place, job in enumerate(jobs):
        groups.setdefault((id(job.index), job.query), []).append(place)
    for (_, query), places in groups.items():
        texts = [text for place in places for text in jobs[place].texts]
        try:
            encoder = jobs[places[0]].index.encoder
            pieces = np.array([len(one) for one in encoder.tokenize(texts, query=query)])
            vectors = encoder.encode(texts, query=query)
        except Exception as error:
            for place in places:
                found[place] = error
            continue
        window = encoder.spec.max_length
        start = 0
        for place in places:
            stop = start + len(jobs[place].texts)
            own = pieces[start:stop]
            found[place] = Encoded(
                vectors[start:stop],
                int(np.minimum(own, window).sum()),
                int(np.count_nonzero(own > window)),
            )
            start = stop
    return found


def relevances(
    reranker: Reranker | None,
) -> Callable[[Sequence[RerankJob]], list[NDArray[np.float32] | Exception]]:
    """What scores the texts of each job, with a reranker or else by the encoder of the index."""

    def run(jobs: Sequence[RerankJob]) -> list[NDArray[np.float32] | Exception]:
        found: list[NDArray[np.float32] | Exception] = []
        for job in jobs:
            try:
                found.append(_scores(reranker, job))
            except Exception as error:
                found.append(error)
        return found

    return run


def _scores(reranker: Reranker | None, job: RerankJob) -> NDArray[np.float32]:
    if reranker is not None and not reranker.reads_vectors:
        return reranker.score(job.query, None, job.texts, None)
    encoder = job.index.encoder
    vector, vectors = _vectors(encoder, job)
    if reranker is None:
        return np.asarray(vectors @ vector, np.float32)
    reranker.check(encoder.spec)
    return reranker.score(job.query, vector, job.texts, vectors)


def _vectors(
    encoder: LoadedEncoder, job: RerankJob
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return encoder.encode([job.query], query=True)[0], encoder.encode(job.texts)


def _texts(given: str | list[Any]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not texts:
        raise BadInputError("input: expected one text or several, found none")
    kept = [text for text in texts if isinstance(text, str)]
    if len(kept) < len(texts):
        raise ServiceError(
            400, "input: expected texts alone; token ids depend on another tokenizer"
        )
    return kept
