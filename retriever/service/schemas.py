"""What clients send, as pydantic models; limits that depend on the service are checked later.

A faulty request costs little: a list is read up to its first fault, since pydantic would keep an
error of several hundred bytes for every item, millions of them in one request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Texts = str | Annotated[list[str], Field(fail_fast=True)]
Filters = Annotated[list[str], Field(max_length=64)]
# More than any request has.
_MOST_FIELDS = 100


class _Request(BaseModel):
    # JSON's NaN and numbers as strings are refused; unknown fields are likely misspelled.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > _MOST_FIELDS:
            raise ValueError(f"expected at most {_MOST_FIELDS} fields, found {len(given):,}")
        return given


class Like(_Request):
    """A passage of a document of the index."""

    id: str = Field(description="Id of the document.", examples=["42"])
    start: int = Field(
        0, ge=0, le=2**53, description="A character offset inside the passage.", examples=[0]
    )


class Ranking(_Request):
    """How to rank; what is left out has the default of the Python API."""

    index: str | None = Field(None, description="Name of the index; the first one by default.")
    mode: Literal["hybrid", "dense", "bm25"] | None = Field(
        None, description="By embeddings (dense), by words (bm25) or by both; hybrid by default."
    )
    k: Annotated[int, Field(ge=1)] | None = Field(None, description="Number of hits; 10.")
    depth: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Candidate passages from each component in hybrid; 100."
    )
    recall: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Recall@10 that approximate search must have reached; 0.95."
    )
    fusion: Literal["convex", "rrf"] | None = Field(
        None, description="Weighted scores or reciprocal ranks; convex."
    )
    alpha: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Weight of the embeddings in convex fusion; 0.6."
    )
    normalization: Literal["min-max", "z-score"] | None = Field(
        None, description="How convex fusion scales scores; min-max."
    )
    rrf_k: Annotated[float, Field(gt=0)] | None = Field(None, description="Constant of rrf; 60.")
    variant: Literal["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"] | None = Field(
        None, description="Formula of BM25; lucene."
    )
    k1: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Saturation of term frequency; 1.2."
    )
    b: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Normalization by passage length; 0.75."
    )
    rerank: bool = Field(
        False, description="Rank the best `depth` hits again with the reranker of the service."
    )
    highlight: bool = Field(
        False, description="Give the character offsets of the words to mark in each passage."
    )
    facets: list[str] = Field(
        [],
        max_length=32,
        description="Metadata fields whose values are counted over the whole result.",
        examples=[["lang"]],
    )
    facet_limit: int = Field(10, ge=1, le=1_000, description="Maximum number of values of a field.")


class SearchRequest(Ranking):
    """One query or several, or a document to find similar ones of."""

    query: Texts | None = Field(
        None,
        description="A query, or several that are ranked with the same settings.",
        examples=["how do cells die"],
    )
    like: Like | None = Field(
        None, description="Find documents like this one, in place of a query."
    )
    where: str | Filters | None = Field(
        None,
        description="Rank only documents that match this filter, or all of several.",
        examples=['year >= 2020 and lang = "en"'],
    )


class DocumentBody(BaseModel):
    """A document; every other field is metadata."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    text: str = Field("", examples=["Sailing ships need wind."])
    title: str | None = Field(None, examples=["Ships"])


class WeightsRequest(_Request):
    """A text whose words are weighted."""

    index: str | None = Field(None, description="Name of the index; the first one by default.")
    text: str = Field(min_length=1, examples=["Sailing ships need wind."])


class EmbeddingsRequest(BaseModel):
    """As OpenAI's; fields that make no difference here are ignored."""

    model_config = ConfigDict(extra="ignore")

    # Anything in a list: token ids are refused in words of their own.
    input: str | list[Any] = Field(
        description="A text or several.", examples=[["Sailing ships need wind."]]
    )
    model: str = Field(
        "",
        description="An index, or the encoder of one; the first index by default.",
        examples=[""],
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="If given, those of the encoder.")
    input_type: Literal["document", "query"] = Field(
        "document", description="Whether the texts are passages or queries, which can have prompts."
    )


class RerankDocument(BaseModel):
    """A document to rank."""

    model_config = ConfigDict(extra="ignore")

    text: str


class RerankRequest(BaseModel):
    """As Cohere's and Jina's; fields that make no difference here are ignored."""

    model_config = ConfigDict(extra="ignore")

    query: str = Field(min_length=1, examples=["what moves a boat"])
    documents: list[str | RerankDocument] = Field(
        min_length=1,
        fail_fast=True,
        examples=[["Sailing ships need wind.", "Steam engines need coal."]],
    )
    model: str = Field(
        "",
        description="An index, or the encoder of one; the first index by default.",
        examples=[""],
    )
    top_n: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Maximum number of results; all documents by default."
    )
    return_documents: bool = Field(False, description="Repeat the texts in the results.")
