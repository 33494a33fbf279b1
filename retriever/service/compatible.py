"""Routes that other programs already speak: OpenAI's embeddings, Cohere's and Jina's rerank."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from retriever.errors import BadInputError
from retriever.index.index import Index
from retriever.search.queries import check_query
from retriever.search.reranking import Reranker
from retriever.service.batching import Batcher, in_groups
from retriever.service.limits import Catalog, ServiceError, check_number

Scores = NDArray[np.float32]
_Model = Annotated[
    str, Field(description="An index, or the encoder of one; the first index by default.")
]


class EmbeddingsRequest(BaseModel):
    """As OpenAI's; fields that make no difference here are ignored."""

    # Anything in a list: token ids are refused in words of their own.
    input: str | list[Any] = Field(
        description="A text or several.", examples=[["Sailing ships need wind."]]
    )
    model: _Model = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="If given, those of the encoder.")
    input_type: Literal["document", "query"] = Field(
        "document", description="Whether the texts are passages or queries, which can have prompts."
    )


class RerankDocument(BaseModel):
    """A document to rank."""

    text: str


class RerankRequest(BaseModel):
    """As Cohere's and Jina's; fields that make no difference here are ignored."""

    query: str = Field(min_length=1, examples=["what moves a boat"])
    documents: list[str | RerankDocument] = Field(
        min_length=1,
        fail_fast=True,
        examples=[["Sailing ships need wind.", "Steam engines need coal."]],
    )
    model: _Model = ""
    top_n: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Maximum number of results; all documents by default."
    )
    return_documents: bool = Field(False, description="Repeat the texts in the results.")


@dataclass(frozen=True, slots=True)
class EncodingJob:
    """Passages, or queries, to encode by the encoder of an index."""

    index: Index
    texts: tuple[str, ...]
    query: bool


class Encoded(NamedTuple):
    """Vectors, (texts, d) float32; how many word pieces they have; how many texts were cut."""

    vectors: NDArray[np.float32]
    pieces: int
    truncated: int


@dataclass(frozen=True, slots=True)
class RerankJob:
    """A query and the texts to score for it."""

    index: Index
    query: str
    texts: tuple[str, ...]


def router(
    catalog: Catalog, encoding: Batcher[EncodingJob, Encoded], reranking: Batcher[RerankJob, Scores]
) -> APIRouter:
    """The routes; the batchers run `encoded` and `relevances`."""
    routes = APIRouter(tags=["compatible"])

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
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        if not texts:
            raise BadInputError("input: expected one text or several, found none")
        if not all(isinstance(text, str) for text in texts):
            raise ServiceError(
                400, "input: expected texts alone; token ids depend on another tokenizer"
            )
        _check_texts(catalog, "input", texts)
        index = catalog.of_model(asked.model)
        dimensions = index.encoder_spec.dimensions
        if asked.dimensions not in (None, dimensions):
            raise BadInputError(
                f"dimensions: the encoder has {dimensions}, found {asked.dimensions}; leave it out"
            )
        job = EncodingJob(index, tuple(texts), asked.input_type == "query")
        result = await encoding.result(request, job, len(texts))
        data = [
            {
                "object": "embedding",
                "index": place,
                "embedding": base64.b64encode(row.tobytes()).decode()
                if asked.encoding_format == "base64"
                else row.tolist(),
            }
            for place, row in enumerate(result.vectors.astype("<f4"))
        ]
        usage = {
            "prompt_tokens": result.pieces,
            "total_tokens": result.pieces,
            "truncated": result.truncated,
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
        _check_texts(catalog, "documents", texts)
        job = RerankJob(catalog.of_model(asked.model), asked.query, tuple(texts))
        scores = await reranking.result(request, job, len(texts))
        results: list[dict[str, Any]] = []
        for place in np.argsort(-scores, kind="stable")[: asked.top_n].tolist():
            results.append({"index": place, "relevance_score": float(scores[place])})
            if asked.return_documents:
                results[-1]["document"] = {"text": texts[place]}
        return {
            "id": "",
            "model": asked.model or catalog.default,
            "results": results,
            "meta": {"api_version": {"version": request.scope["route"].path[2:3]}},
            "usage": {"total_tokens": 0},
        }

    return routes


def _check_texts(catalog: Catalog, what: str, texts: Sequence[str]) -> None:
    check_number(what, len(texts), catalog.settings.max_texts)
    for number, text in enumerate(texts, start=1):
        check_query(text, number)


def encoded(jobs: Sequence[EncodingJob]) -> list[Encoded | Exception]:
    """The vectors of each job; those of one encoder are computed together."""
    return in_groups(jobs, lambda job: (id(job.index), job.query), _encoded_together)


def _encoded_together(jobs: Sequence[EncodingJob]) -> list[Encoded]:
    encoder = jobs[0].index.encoder
    query = jobs[0].query
    texts = [text for job in jobs for text in job.texts]
    pieces = np.array([len(one) for one in encoder.tokenize(texts, query=query)])
    vectors = encoder.encode(texts, query=query)
    window = encoder.spec.max_length
    stop = 0
    results = []
    for job in jobs:
        start = stop
        stop = stop + len(job.texts)
        own = pieces[start:stop]
        read = np.minimum(own, window).sum()
        cut = np.count_nonzero(own > window)
        results.append(Encoded(vectors[start:stop], int(read), int(cut)))
    return results


def relevances(jobs: Sequence[RerankJob], reranker: Reranker | None) -> list[Scores]:
    """The scores of the texts of a batch's one job, by a reranker or the encoder of the index."""
    (job,) = jobs
    if reranker is not None and not reranker.reads_vectors:
        return [reranker.score(job.query, None, job.texts, None)]
    encoder = job.index.encoder
    vector = encoder.encode([job.query], query=True)[0]
    vectors = encoder.encode(job.texts)
    if reranker is None:
        return [np.asarray(vectors @ vector, np.float32)]
    reranker.check(encoder.spec)
    return [reranker.score(job.query, vector, job.texts, vectors)]
