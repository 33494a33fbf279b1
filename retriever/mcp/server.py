"""Read-only tools `search`, `get`, `multi_get` and `status`, on standard streams or HTTP."""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Literal

import anyio.to_thread
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from indexes.filters import FieldSummary
from retriever.documents.places import DocumentPart, find_part
from retriever.errors import BadInputError, ConfigError, RetrieverError, StorageError
from retriever.index.index import Index
from retriever.mcp.budget import fit_document, fit_documents, fit_hits, fit_state, to_json
from retriever.search.engine import Hit
from retriever.search.queries import Excerpt

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Maximum bytes of a request.
_MOST_BODY_BYTES = 1024 * 1024
# Maximum of k + offset: the candidates of a hybrid search do not depend on so few hits.
_MOST_HITS = 50
_MOST_EXCLUDED = 50
# Maximum number of values that describe a field, and of characters of each.
_MOST_VALUES = 12
_LONGEST_VALUE = 40

_SCORES = (
    "Higher is better. `score` orders the hits. In mode hybrid it lies between 0 and 1, relative "
    "to the candidates of this query: do not compare it between queries. `dense` is the cosine of "
    "query and passage, -1 to 1; `bm25` is 0 or more, and 0 if the passage has no word of the "
    "query. In the modes dense and bm25, `score` is that component. The ranks count candidates."
)
_GRAMMAR = (
    'Filter on metadata: year >= 2020 and lang in ("en", "de") and not (tag = \'x\'). Operators: '
    '= != < <= > >= in like contains exists between before after (dates), "is null", and or not. '
    '`tags contains "a"` looks into an array; backquote odd field names; id and title are the '
    "document's own."
)
# Agents read this and the following texts with every task: at most 2 kB together.
_INSTRUCTIONS = (
    "Search local documents. Start with `search`, read on with `get`, or with `multi_get` what "
    "several hits name. Cite `place`, or id and offsets. Where `truncated` is true, `more` says "
    "how to get the rest."
)
_SEARCH = (
    "Find passages by meaning and by words: the best passage of each document, the best first. "
    "Prefer it to grep for questions, paraphrases and topics in many files. Prefer grep for an "
    "exact string, such as a name or an error code, or every occurrence. `text` is exactly the "
    "document's from character `start` to `stop` of `length`. `place`: notes.md:120-141, or "
    "report.pdf, page 3. `score` is relative to this query: do not compare it between queries."
)
_GET = "Read a document, or its characters from `start` to `stop`."
_MULTI_GET = (
    "Read several documents, or parts of them, in one call; they share max_tokens. Prefer it to "
    "several calls of `get`, and to reading whole files."
)
_STATUS = "What the indexes hold: documents, encoder, metadata fields; what scores mean."


def _output_schema(required: str, **types: str) -> dict[str, Any]:
    """Return the JSON Schema of an answer: the types of its fields, and the required ones."""
    fields = {"index": "string", "truncated": "boolean", "more": "string", **types}
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in fields.items()},
        "required": required.split(),
    }


# JSON Schema of the answer of each tool.
_OUTPUT_SCHEMAS = {
    "search": _output_schema(
        "index hits truncated",
        hits="array",
        notes="array",
        has_answer="boolean",
        probability="number",
    ),
    "get": _output_schema(
        "index id length start stop text truncated",
        id="string",
        title="string",
        metadata="object",
        length="integer",
        start="integer",
        stop="integer",
        text="string",
    ),
    "multi_get": _output_schema("index documents truncated", documents="array"),
    "status": _output_schema(
        "indexes truncated", indexes="array", scores="string", filters="string"
    ),
}


class StatusParameters(BaseModel):
    """The arguments of `status`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    index: str | None = Field(None, description="Which index.")
    max_tokens: int = Field(
        4000, ge=200, le=200_000, description="Size limit of the answer: bytes of its JSON / 4."
    )


class SearchParameters(StatusParameters):
    """The arguments of `search`."""

    query: str = Field(
        min_length=1,
        max_length=10_000,
        description="A question or words, searched for as text.",
    )
    k: int = Field(5, ge=1, le=_MOST_HITS, description="Maximum number of hits.")
    offset: int = Field(
        0, ge=0, lt=_MOST_HITS, description=f"Hits to skip; offset + k <= {_MOST_HITS}."
    )
    mode: Literal["hybrid", "dense", "bm25"] = Field(
        "hybrid", description="dense ranks by meaning, bm25 by words, hybrid by both."
    )
    exclude: list[str] = Field(
        [], max_length=_MOST_EXCLUDED, description="Words or phrases that no hit holds."
    )
    where: str | None = Field(None, max_length=10_000, description=_GRAMMAR)
    min_probability: float | None = Field(
        None,
        ge=0,
        le=1,
        description="No hits unless one of the first ten is an answer with this probability; needs "
        "a calibrated index.",
    )
    recency: float | None = Field(
        None, gt=0, description="Prefer newer documents; days until a quarter of a score is lost."
    )
    sort: Literal["score", "date"] = Field("score", description="date lists the newest hits first.")
    context: int = Field(
        0, ge=0, le=5, description="Neighboring passages on each side; `passage` is then the hit."
    )


class GetParameters(StatusParameters):
    """The arguments of `get`."""

    id: str = Field(description="The id or place of a hit.")
    start: int = Field(0, ge=0, description="First character.")
    stop: int | None = Field(None, ge=0, description="Character to stop before.")


class MultiGetParameters(StatusParameters):
    """The arguments of `multi_get`."""

    ids: list[str] = Field(
        min_length=1,
        max_length=_MOST_HITS,
        description="Each ID, the place of a hit, ID:120-141 (lines) or ID[start:stop].",
    )


def make_server(indexes: Mapping[str, Index], version: str = "") -> Server[Any]:
    """Return an MCP server over open indexes by name; at least one."""
    tools = _Tools(indexes)

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=await anyio.to_thread.run_sync(tools.describe))

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        arguments = params.arguments or {}
        return await anyio.to_thread.run_sync(tools.call, params.name, arguments)

    return Server(
        "retriever",
        version=version,
        title="Search in local documents",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class _Tools:
    """The tools without the protocol."""

    def __init__(self, indexes: Mapping[str, Index]) -> None:
        self._indexes = dict(indexes)
        # Description, arguments and function of each tool.
        self._tools: dict[str, tuple[str, type[BaseModel], Callable[[Any], dict[str, Any]]]] = {
            "search": (_SEARCH, SearchParameters, self._search),
            "get": (_GET, GetParameters, self._get),
            "multi_get": (_MULTI_GET, MultiGetParameters, self._multi_get),
            "status": (_STATUS, StatusParameters, self._status),
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        try:
            if name not in self._tools:
                raise BadInputError(f"no tool {name!r}; expected one of {', '.join(self._tools)}")
            _, parameters, run = self._tools[name]
            answer = run(parameters.model_validate(arguments))
            content = TextContent(text=to_json(answer))
            return CallToolResult(content=[content], structured_content=answer)
        except ValidationError as error:
            text = "; ".join(
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
            )
        except RetrieverError as error:
            text = str(error)
        except Exception:
            logging.getLogger(__name__).exception("the tool %s failed", name)
            text = "the server failed; its log has the reason"
        return CallToolResult(content=[TextContent(text=text)], is_error=True)

    def describe(self) -> list[Tool]:
        fields = "; ".join(
            f"index {name}: {_field_list(index)}" if len(self._indexes) > 1 else _field_list(index)
            for name, index in self._indexes.items()
        )
        tools = [self._tool(name, text, kind) for name, (text, kind, _) in self._tools.items()]
        where = tools[0].input_schema["properties"]["where"]
        where["description"] = f"{_GRAMMAR} Fields: {fields}"
        return tools

    def _tool(self, name: str, text: str, parameters: type[BaseModel]) -> Tool:
        schema = parameters.model_json_schema()
        del schema["description"]
        if len(self._indexes) == 1:
            del schema["properties"]["index"]
        else:
            schema["properties"]["index"] = {
                "type": "string",
                "enum": list(self._indexes),
                "description": "Which index.",
            }
            if name != "status":
                schema["required"] = ["index", *schema.get("required", [])]
        return Tool(
            name=name,
            description=text,
            input_schema=schema,
            output_schema=_OUTPUT_SCHEMAS[name],
            annotations=ToolAnnotations(
                read_only_hint=True, idempotent_hint=True, open_world_hint=False
            ),
        )

    def _search(self, parameters: SearchParameters) -> dict[str, Any]:
        name, index = self._index(parameters.index)
        query = parameters.query
        mode = parameters.mode
        where = parameters.where
        exclude = parameters.exclude
        least = parameters.min_probability
        k = parameters.offset + parameters.k
        if k > _MOST_HITS:
            raise BadInputError(
                f"offset + k: expected at most {_MOST_HITS}, found {k}; ask a narrower question "
                "or add a filter with where"
            )
        notes = []
        if where is not None and (doubt := index.filter_warning(where)):
            notes.append(doubt)
        hits: list[Hit] = index.search(
            query,
            k=k,
            mode=mode,
            where=where,
            exclude=exclude,
            recency=parameters.recency,
            sort=parameters.sort,
        )
        has_hits = bool(hits)
        note = index.search_note(hits, mode=mode, where=where)
        notes += [] if note is None else [note]
        answer = index.answer(hits, mode=mode, least=least)
        details = {}
        if answer is not None:
            details = {"has_answer": answer.has_answer, "probability": round(answer.probability, 4)}
            notes += [answer.warning] if answer.warning else []
            if not answer.has_answer:
                is_withheld = least is not None and has_hits
                remedy = ": lower min_probability to see hits" if is_withheld else ""
                notes.append(f"perhaps nothing relevant was found{remedy}")
                hits = hits if least is None else []
        if not has_hits:
            notes.append(index.no_hits_reason(query, mode=mode, where=where, exclude=exclude))
        elif exclude:
            texts = ", ".join(map(to_json, exclude))
            notes.append(f"documents with these texts of exclude are left out: {texts}")
        if suggestion := index.suggestion(query):
            notes.append(f"no document has a word of the query; did you mean: {suggestion}")
        offset = parameters.offset
        excerpts = [(hit, _excerpt(index, hit, parameters.context)) for hit in hits[offset:]]
        return fit_hits(name, excerpts, offset, parameters.max_tokens, notes, details)

    def _get(self, parameters: GetParameters) -> dict[str, Any]:
        name, index = self._index(parameters.index)
        part = find_part(parameters.id, index.get)
        start = parameters.start or part.start
        stop = part.stop if parameters.stop is None else parameters.stop
        return fit_document(name, part.document, start, stop, parameters.max_tokens)

    def _multi_get(self, parameters: MultiGetParameters) -> dict[str, Any]:
        name, index = self._index(parameters.index)
        parts = [(id_, _part(index, id_)) for id_ in parameters.ids]
        return fit_documents(name, parts, parameters.max_tokens)

    def _status(self, parameters: StatusParameters) -> dict[str, Any]:
        indexes = list(self._indexes.items())
        if parameters.index is not None:
            indexes = [self._index(parameters.index)]
        states = [_describe_index(name, index) for name, index in indexes]
        explanations = {"scores": _SCORES, "filters": _GRAMMAR}
        return fit_state(explanations, states, parameters.max_tokens)

    def _index(self, name: str | None) -> tuple[str, Index]:
        if name is None and len(self._indexes) == 1:
            name = next(iter(self._indexes))
        if name not in self._indexes:
            actual = "nothing" if name is None else repr(name)
            names = ", ".join(self._indexes)
            raise BadInputError(f"index: expected one of {names}, found {actual}")
        return name, self._indexes[name]


def _excerpt(index: Index, hit: Hit, context: int) -> Excerpt:
    try:
        return index.excerpt(hit, context, context)
    except KeyError:
        # The document was replaced after the search.
        return Excerpt(hit.id, hit.start, hit.stop, hit.passage, hit.stop)


def _part(index: Index, name: str) -> DocumentPart | str:
    """Return the part of a document that a text names, or the reason why it cannot be read."""
    try:
        return find_part(name, index.get)
    except BadInputError as error:
        return str(error)


def _describe_index(name: str, index: Index) -> dict[str, Any]:
    info = index.info()
    return {
        "index": name,
        "documents": info["documents"],
        "passages": info["passages"],
        "encoder": info["encoder"]["encoder"],
        "language": info["analyzer"]["language"],
        "created": info["created"],
        "fields": {field.name: _describe_field(field) for field in index.fields()},
    }


def _describe_field(field: FieldSummary) -> dict[str, Any]:
    description: dict[str, Any] = {"types": list(field.types)}
    if field.range is not None:
        description["range"] = list(field.range)
    values = [value for value in field.values if len(str(value)) <= _LONGEST_VALUE][:_MOST_VALUES]
    if values:
        is_complete = field.complete and len(values) == len(field.values)
        description["values" if is_complete else "examples"] = values
    return description


def _field_list(index: Index) -> str:
    """Return the fields of an index in one line."""
    try:
        fields = index.fields()
    except RetrieverError as error:
        # The tools for other indexes are listed nevertheless.
        return f"unknown ({error})"
    lines = [f"{field.name} ({_field_line(field)})" for field in fields[:_MOST_HITS]]
    if len(fields) > len(lines):
        lines.append(f"and {len(fields) - len(lines)} more: see status")
    return ", ".join(lines) or "none"


def _field_line(field: FieldSummary) -> str:
    types = " or ".join(field.types)
    description = _describe_field(field)
    if "values" in description:
        return f"{types}: {', '.join(map(to_json, description['values']))}"
    if field.range is not None:
        return f"{types}, {field.range[0]:g} to {field.range[1]:g}"
    if "examples" in description:
        return f"{types}, such as {to_json(description['examples'][0])}"
    return types


def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on standard input and output, until its input ends."""

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


def serve_http(
    server: Server[Any], host: str, port: int, token: str | None, ready: Callable[[], object]
) -> None:
    """Serve clients at ``http://HOST:PORT/mcp``; `ready` is called when they can connect."""
    import uvicorn

    app = http_app(server, host, token)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise StorageError(
            f"{host}, port {port}: the server cannot listen there ({error.strerror}); choose "
            "another --http or --host"
        ) from error
    with listening:
        ready()
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


def http_app(server: Server[Any], host: str, token: str | None) -> Starlette:
    """Return the ASGI application that `serve_http` runs."""
    if host not in _LOOPBACK and not token:
        raise ConfigError(
            f"--host {host}: other machines can reach this address: set a token with --token or "
            "RETRIEVER_TOKEN"
        )
    # On a loopback address the SDK checks the headers Host and Origin, so that no web page reaches
    # the server through DNS rebinding. On other addresses, a web page lacks the token.
    app = server.streamable_http_app(
        stateless_http=True, json_response=True, max_request_body_size=_MOST_BODY_BYTES, host=host
    )
    if token:
        expected = f"Bearer {token}".encode()

        async def check(request: Request, answer: RequestResponseEndpoint) -> Response:
            header = request.headers.get("authorization", "").encode("latin-1")
            if hmac.compare_digest(header, expected):
                return await answer(request)
            refusal = {"error": "expected the header Authorization: Bearer TOKEN"}
            return JSONResponse(refusal, 401, {"WWW-Authenticate": "Bearer"})

        app.add_middleware(BaseHTTPMiddleware, dispatch=check)
    return app
