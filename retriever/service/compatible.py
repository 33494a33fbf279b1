"""Routes that are compatible with OpenAI's embeddings and with Cohere's and Jina's rerank."""

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
from retriever.service.batching import Batcher, run_in_groups
from retriever.service.limits import Catalog, ServiceError, check_number

Scores = NDArray[np.float32]
_Model = Annotated[
    str, Field(description="An index, or the encoder of one; the first index by default.")
]


class EmbeddingsRequest(BaseModel):
    """A request as OpenAI defines it; fields without meaning here are ignored."""

    # Any list, since token ids have an error message of their own.
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
    """A request as Cohere and Jina define it; fields without meaning here are ignored."""

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
    """Texts, passages or queries, for the encoder of an index."""

    index: Index
    texts: tuple[str, ...]
    query: bool


class EncodedTexts(NamedTuple):
    """The vectors of a job."""

    # (texts, dimensions)
    vectors: NDArray[np.float32]
    # Number of word pieces that were read.
    pieces: int
    # Number of texts that were cut.
    truncated: int


@dataclass(frozen=True, slots=True)
class RerankJob:
    """A query and texts to score for it."""

    index: Index
    query: str
    texts: tuple[str, ...]


def _ranked_results(
    body: RerankRequest, texts: Sequence[str], scores: Scores
) -> list[dict[str, Any]]:
    """Return the best texts with their scores, the highest first; equal scores by position."""
    results: list[dict[str, Any]] = []
    for position in np.argsort(-scores, kind="stable")[: body.top_n].tolist():
        results.append({"index": position, "relevance_score": float(scores[position])})
        if body.return_documents:
            results[-1]["document"] = {"text": texts[position]}
    return results


def router(
    catalog: Catalog,
    encoding: Batcher[EncodingJob, EncodedTexts],
    reranking: Batcher[RerankJob, Scores],
) -> APIRouter:
    """Return the routes; the batchers run `encode_jobs` and `score_jobs`."""
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
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Any:
        """Vectors by the encoder of an index. Texts beyond its window are cut;
        `usage.truncated` counts them.
        """
        job = _encoding_job(catalog, body)
        result = await encoding.result(request, job, len(job.texts))
        return _embeddings_response(body, body.model or catalog.default, result)

    @routes.post("/v1/rerank", summary="Rank texts for a query, as Cohere and Jina do")
    @routes.post("/v2/rerank", summary="The same, where Cohere's second version expects it")
    async def rerank(request: Request, body: RerankRequest) -> Any:
        """By the reranker of the service; without one by cosine (or inner product, if the encoder
        does not normalize). Equal scores are in the order of the documents.
        """
        catalog.check_text("query", body.query)
        check_query(body.query)
        texts = [text if isinstance(text, str) else text.text for text in body.documents]
        _check_texts(catalog, "documents", texts)
        job = RerankJob(catalog.of_model(body.model), body.query, tuple(texts))
        scores = await reranking.result(request, job, len(texts))
        return {
            "id": "",
            "model": body.model or catalog.default,
            "results": _ranked_results(body, texts, scores),
            "meta": {"api_version": {"version": request.scope["route"].path[2:3]}},
            "usage": {"total_tokens": 0},
        }

    return routes


def _encoding_job(catalog: Catalog, body: EmbeddingsRequest) -> EncodingJob:
    """Check a request."""
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not texts:
        raise BadInputError("input: expected one text or several, found none")
    if not all(isinstance(text, str) for text in texts):
        raise ServiceError(
            400, "input: expected texts alone; token ids depend on another tokenizer"
        )
    _check_texts(catalog, "input", texts)
    index = catalog.of_model(body.model)
    dimensions = index.encoder_spec.dimensions
    if body.dimensions not in (None, dimensions):
        raise BadInputError(
            f"dimensions: the encoder has {dimensions}, found {body.dimensions}; leave it out"
        )
    return EncodingJob(index, tuple(texts), body.input_type == "query")


def _embeddings_response(
    body: EmbeddingsRequest, model: str, result: EncodedTexts
) -> dict[str, Any]:
    data = []
    for position, row in enumerate(result.vectors.astype("<f4")):
        embedding: Any = row.tolist()
        if body.encoding_format == "base64":
            embedding = base64.b64encode(row.tobytes()).decode()
        data.append({"object": "embedding", "index": position, "embedding": embedding})
    usage = {
        "prompt_tokens": result.pieces,
        "total_tokens": result.pieces,
        "truncated": result.truncated,
    }
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _check_texts(catalog: Catalog, what: str, texts: Sequence[str]) -> None:
    check_number(what, len(texts), catalog.settings.max_texts)
    for number, text in enumerate(texts, start=1):
        check_query(text, number)


def encode_jobs(jobs: Sequence[EncodingJob]) -> list[EncodedTexts | Exception]:
    """Encode the texts of jobs; the jobs of one encoder run together."""
    return run_in_groups(jobs, lambda job: (id(job.index), job.query), _encode_together)


def _encode_together(jobs: Sequence[EncodingJob]) -> list[EncodedTexts]:
    encoder = jobs[0].index.encoder
    query = jobs[0].query
    texts = [text for job in jobs for text in job.texts]
    lengths = np.array([len(tokens) for tokens in encoder.tokenize(texts, query=query)])
    vectors = encoder.encode(texts, query=query)
    window = encoder.spec.max_length
    stop = 0
    results = []
    for job in jobs:
        start = stop
        stop += len(job.texts)
        job_lengths = lengths[start:stop]
        pieces = int(np.minimum(job_lengths, window).sum())
        truncated = int(np.count_nonzero(job_lengths > window))
        results.append(EncodedTexts(vectors[start:stop], pieces, truncated))
    return results


def score_jobs(jobs: Sequence[RerankJob], reranker: Reranker | None) -> list[Scores]:
    """Score the texts of one job, by a reranker or by the encoder of the index."""
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
