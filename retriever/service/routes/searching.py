"""Routes that search, and the one that shows how words are weighted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import AliasChoices, Field

from retriever.encoders.encoder import Encoder
from retriever.encoders.loading.resolution import sbert_wk_settings
from retriever.errors import ConfigError
from retriever.search.queries import check_query
from retriever.service.batching import Batcher
from retriever.service.catalog import Catalog
from retriever.service.gone import unless_gone
from retriever.service.routes.search_jobs import Answer, SearchJob, search_job
from retriever.service.schemas import Filters, Ranking, SearchRequest, WeightsRequest


class SearchParameters(Ranking):
    """A search as the parameters of an address."""

    query: Annotated[
        list[str],
        Query(
            min_length=1,
            validation_alias=AliasChoices("query", "q"),
            description="One query or several; `q` for short.",
            examples=[["how do cells die"]],
        ),
    ]
    where: Filters = Field(
        [],
        description="Rank only documents that match this filter; all of several.",
        examples=[['year >= 2020 and lang = "en"']],
    )


def router(catalog: Catalog, searches: Batcher[SearchJob, Answer]) -> APIRouter:
    """The routes.

    Args:
        catalog: of the service.
        searches: runs `answers`.
    """
    routes = APIRouter(tags=["search"])

    @routes.post("/search", summary="Search")
    async def search(request: Request, asked: SearchRequest) -> Any:
        """Hits of one query, of several, or of a document to find similar ones of.

        Each result has `hits`, the highest score first, with the scores and ranks of both
        components, and `facets` if fields were named. Offsets count Unicode characters.
        """
        job = search_job(catalog, asked)
        weight = max(1, len(job.texts))
        return JSONResponse(await unless_gone(request, searches.submit(job, weight)))

    @routes.get("/search", summary="Search by address")
    async def search_by_address(
        request: Request, asked: Annotated[SearchParameters, Query()]
    ) -> Any:
        """The same with parameters; repeat `query`, `where` and `facets` for several."""
        job = search_job(catalog, SearchRequest.model_validate(asked.model_dump()))
        return JSONResponse(await unless_gone(request, searches.submit(job, len(job.texts))))

    @routes.post("/weights", summary="Weights of words and layers")
    def weights(asked: WeightsRequest) -> Any:
        """How SBERT-WK weights each word of a passage, and the layers in each word."""
        catalog.check_text("text", asked.text)
        check_query(asked.text)
        encoder = catalog.index(asked.index).encoder
        if not isinstance(encoder, Encoder):
            raise ConfigError(f"{encoder.spec}: its words have no weights")
        words = encoder.word_weights(asked.text)
        start = sbert_wk_settings(encoder.spec.settings, encoder.depth).start_layer
        return {"first_layer": start, "words": [asdict(word) for word in words]}

    return routes
