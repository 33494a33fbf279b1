"""The tools as the SDK's own client sees them, on each transport."""

from __future__ import annotations

import json
import re
import socket
import sys

import pytest

pytest.importorskip("mcp")

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from retriever import ConfigError, Index, StorageError, Synonyms
from retriever.documents import CorpusReader, Document
from retriever.documents.outline import Mark
from retriever.mcp import make_server, serve_http
from retriever.mcp.server import http_app
from tests.retriever.covered import by_coverage

LONG = " ".join(f"Sentence {i} is about apples." for i in range(40))
DOCUMENTS = [
    {"id": "long", "title": "Apples", "text": LONG, "year": 1999, "lang": "en"},
    {"id": "wide", "text": "Äpfel und Birnen 🍏🍐 im Garten", "year": 2020, "lang": "de"},
    {"id": "note", "text": "apples and pears", "year": 2021, "lang": "en", "tags": ["fruit"]},
]


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "fruit.index") as index:
        index.add(DOCUMENTS)
        yield index


def ask(indexes, *calls):
    """The results of calls by a client in memory; with no call, the list of tools."""

    async def run():
        async with Client(make_server(indexes)) as client:
            if not calls:
                return (await client.list_tools()).tools
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(run)


def answer(index, name, /, **arguments):
    (result,) = ask({"fruit": index}, (name, arguments))
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def refusal(index, name, /, **arguments):
    (result,) = ask({"fruit": index}, (name, arguments))
    assert result.is_error
    return result.content[0].text


def tokens(found):
    """Return the number of tokens as documented: bytes of compact JSON, divided by four."""
    return len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()) / 4


def test_search_gives_the_hits_of_the_index_with_their_scores(index):
    hits = index.search("apples and pears", k=3)
    result = answer(index, "search", query="apples and pears", k=3)
    assert [hit["id"] for hit in result["hits"]] == [hit.id for hit in hits]
    for shown, hit in zip(result["hits"], hits, strict=True):
        assert shown["score"] == round(hit.score, 4)
        assert (shown["dense"], shown["bm25"]) == (round(hit.dense, 4), round(hit.bm25, 4))
        assert shown["metadata"] == hit.metadata
    assert not result["truncated"]
    rest = answer(index, "search", query="apples and pears", offset=1, k=2)["hits"]
    assert rest == result["hits"][1:]


def test_multi_get_takes_the_places_that_hits_show(index, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text("# Kiwis\n\nKiwis grow in spring.\n")
    index.add(CorpusReader([tmp_path / "notes"]))
    (hit,) = answer(index, "search", query="kiwis", mode="bm25", k=1)["hits"]
    (document,) = answer(index, "multi_get", ids=[hit["place"]])["documents"]
    assert (document["id"], document["text"]) == ("a.md", "Kiwis grow in spring.")


@pytest.mark.parametrize("max_tokens", [200, 400, 4000])
def test_tool_answers_match_their_output_schemas(index, max_tokens):
    jsonschema = pytest.importorskip("jsonschema")
    schemas = {tool.name: tool.output_schema for tool in ask({"fruit": index})}
    calls = {
        "search": {"query": "apples"},
        "get": {"id": "long"},
        "multi_get": {"ids": ["long", "nothing"]},
        "status": {},
    }
    assert schemas.keys() == calls.keys()
    for name, arguments in calls.items():
        result = answer(index, name, max_tokens=max_tokens, **arguments)
        jsonschema.validate(result, schemas[name])
        known = schemas[name]["properties"].keys() | {"left_out"}
        assert result.keys() <= known, name


@pytest.mark.parametrize("context", [0, 1, 5])
def test_every_text_is_the_document_between_its_offsets(index, context):
    for hit in answer(index, "search", query="apples 🍏", context=context)["hits"]:
        whole = index[hit["id"]].text
        assert hit["text"] == whole[hit["start"] : hit["stop"]]
        assert hit["length"] == len(whole)
        read = answer(index, "get", id=hit["id"], start=hit["start"], stop=hit["stop"])
        assert read["text"] == hit["text"]


def test_context_adds_the_passages_on_both_sides(index):
    query = "Sentence 20 is about apples."
    alone = answer(index, "search", query=query, where="id = 'long'")["hits"][0]
    around = answer(index, "search", query=query, where="id = 'long'", context=1)["hits"][0]
    assert around["passage"] == [alone["start"], alone["stop"]]
    assert around["start"] < alone["start"]
    assert around["stop"] > alone["stop"]
    assert alone["text"] in around["text"]


@pytest.mark.parametrize("limit", [200, 230, 260, 300, 400, 600, 1000])
def test_answers_fit_their_budget_and_say_what_they_leave_out(index, limit):
    result = answer(index, "search", query="apples", context=5, max_tokens=limit)
    assert tokens(result) <= limit
    assert result["hits"]
    assert result["truncated"] == (
        len(result["hits"]) < len(DOCUMENTS) or any(hit.get("cut") for hit in result["hits"])
    )
    assert ("more" in result) == result["truncated"]
    for hit in result["hits"]:
        assert hit["text"]
        assert hit["text"] == index[hit["id"]].text[hit["start"] : hit["stop"]]


@pytest.mark.parametrize("limit", [200, 300])
def test_a_document_is_read_in_parts_by_following_the_answers(index, limit):
    text, start = "", 0
    while True:
        part = answer(index, "get", id="long", start=start, max_tokens=limit)
        assert tokens(part) <= limit
        assert part["text"]
        text, start = text + part["text"], part["stop"]
        if not part["truncated"]:
            break
        assert f"start={start}" in part["more"]
    assert text == LONG


@pytest.fixture
def lines(tmp_path, fake_encoder):
    """An index of a file with numbered lines below a heading, and the lines."""
    written = ["---", "lang: en", "---", "# Garden", "## Fruit"]
    written += [f"Line {n} has plums." for n in range(6, 41)]
    (tmp_path / "files").mkdir()
    (tmp_path / "files/notes.md").write_text("\n".join(written))
    with Index.create(tmp_path / "notes.index") as index:
        index.add(CorpusReader([tmp_path / "files"]))
        index.add([Document("a.pdf", "A page.", None, {}, (Mark(0, "page", "3"),)), *DOCUMENTS])
        yield index, written


def test_a_place_in_a_file_is_a_path_with_lines_that_multi_get_reads(lines):
    index, written = lines
    found = answer(index, "search", query="Line 22", mode="bm25", k=1)["hits"][0]
    first, last = map(int, re.fullmatch(r"notes\.md:(\d+)-(\d+)", found["place"]).groups())
    assert found["section"] == "Fruit"
    assert found["text"].strip() == "\n".join(written[first - 1 : last])
    (page,) = answer(index, "search", query="page", mode="bm25")["hits"]
    assert page["place"] == "a.pdf, page 3"
    index.add([Document("p" * 250, "Deep " * 99, None, {}, (Mark(0, "line", "1"),))])
    (deep,) = answer(index, "search", query="deep", mode="bm25", max_tokens=200)["hits"]
    assert deep["text"]
    assert "place" not in deep
    asked = [found["place"], "notes.md:22", "notes.md:39-99", "note[7:10]", "wide"]
    parts = answer(index, "multi_get", ids=asked)["documents"]
    texts = [part["text"].rstrip("\n") for part in parts]
    assert texts[0] == "\n".join(written[first - 1 : last])
    assert texts[1:3] == [written[21], "\n".join(written[38:])]
    assert texts[3:] == ["and", DOCUMENTS[1]["text"]]
    for part in parts:
        assert part["text"] == index[part["id"]].text[part["start"] : part["stop"]]
    wrong = answer(index, "multi_get", ids=["notes.md:2", "note:1", "nothing", "nothing:3", "note"])
    said = [document.get("error", "") for document in wrong["documents"]]
    assert ["lines" in one for one in said] == [True, True, False, False, False]
    assert ["no document" in one for one in said] == [False, False, True, True, False]


@pytest.mark.parametrize("limit", [200, 300, 400, 1000, 4000])
def test_several_documents_share_a_budget_and_are_read_by_following_the_answers(index, limit):
    asked, texts = ["long", "note", "nothing", "wide", "long[9:]", "note[2:]"], {}
    while asked:
        result = answer(index, "multi_get", ids=asked, max_tokens=limit)
        assert tokens(result) <= limit
        assert result["documents"]
        assert ("more" in result) == result["truncated"]
        left = asked[len(result["documents"]) :]
        assert bool(left) == (f"ids from number {len(result['documents']) + 1} " in str(result))
        for name, part in zip(asked, result["documents"], strict=False):
            texts.setdefault(name.split(" ")[0], []).append(part.get("text", ""))
            if part.get("cut"):
                left.append(f"{part['id']}[{part['stop']}:]")
                texts[left[-1]] = texts[name]
        asked = left
    whole = {name: "".join(parts) for name, parts in texts.items()}
    assert (whole["long"], whole["long[9:]"], whole["nothing"]) == (LONG, LONG[9:], "")
    assert (whole["note"], whole["note[2:]"]) == (DOCUMENTS[2]["text"], DOCUMENTS[2]["text"][2:])


def test_tool_descriptions_take_at_most_two_kilobytes(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        server, tools = make_server({"notes": index}), ask({"notes": index})
    texts = [server.instructions, *(tool.description for tool in tools)]
    for tool in tools:
        texts += [one.get("description", "") for one in tool.input_schema["properties"].values()]
    assert sum(len(text.encode()) for text in texts) <= 2048
    assert "grep" in tools[0].description


@pytest.mark.filterwarnings("ignore:filter. no document")
@pytest.mark.parametrize("where", [None, "not (unknown = 1)"])
def test_truncated_search_answer_continues_with_next_hit(tmp_path, fake_encoder, where):
    documents = [
        {"id": "title", "title": "t" * 3000, "text": "wind"},
        {"id": "only title", "title": "wind " * 600, "text": ""},
        {"id": "i" * 3000, "text": "wind and waves"},
        {"id": "text", "text": "wind " * 600, **{f"field{i}": "x" for i in range(100)}},
    ]
    arguments = {"query": "wind", "mode": "bm25", "k": 4, "max_tokens": 200}
    if where is not None:
        arguments["where"] = where
    with Index.create(tmp_path / "index") as index:
        index.add(documents)
        found, offset = [], 0
        while offset is not None:
            part = answer(index, "search", **{**arguments, "offset": offset, "k": 4 - offset})
            assert tokens(part) <= 200
            found += part["hits"]
            for hit in part["hits"]:
                assert hit["text"] == index[hit["id"]].text[hit["start"] : hit["stop"]]
            more = re.search(r"offset=(\d+)", part.get("more", ""))
            assert more is None or int(more[1]) > offset
            offset = int(more[1]) if more and int(more[1]) < 4 else None
        title = answer(index, "get", id="title", max_tokens=200)
        fields = answer(index, "get", id="text", max_tokens=200)
    # An id is never cut, and no answer of that size can hold this one.
    assert {hit["id"] for hit in found} == {"title", "only title", "text"}
    for hit in found:
        assert hit["text"] or hit["id"] == "only title"
        assert hit["left_out"] == ["metadata" if hit["id"] == "text" else "title"]
    assert tokens(title) <= 200
    assert (title["text"], title["truncated"], title["left_out"]) == ("wind", False, ["title"])
    assert fields["left_out"] == ["metadata"]


@pytest.mark.parametrize("limit", [200, 300, 500, 700, 1500])
def test_status_answer_fits_token_budget(tmp_path, fake_encoder, limit):
    with Index.create(tmp_path / "index") as index:
        index.add([{"id": "1", "text": "a", **{f"field{i}": "x" * 30 for i in range(40)}}])
        result = answer(index, "status", max_tokens=limit)
    assert tokens(result) <= limit
    assert result["indexes"][0]["documents"] == 1
    assert result["truncated"] == (len(result["indexes"][0]["fields"]) < 40)


def test_status_answer_names_values_of_fields(index):
    (state,) = answer(index, "status")["indexes"]
    assert (state["index"], state["documents"]) == ("fruit", 3)
    assert state["fields"]["lang"] == {"types": ["string"], "values": ["de", "en"]}
    assert state["fields"]["year"]["range"] == [1999, 2021]


def test_http_server_on_used_port_is_refused_with_port(index):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StorageError, match=f"port {port}: the server cannot listen there"):
            serve_http(make_server({"fruit": index}), "127.0.0.1", port, None, print)


def test_filters_apply_and_unknown_fields_are_noted(index):
    result = answer(index, "search", query="apples", where="year >= 2020 and lang = 'en'")
    assert [hit["id"] for hit in result["hits"]] == ["note"]
    with pytest.warns(UserWarning, match="yaer"):
        result = answer(index, "search", query="apples", where="yaer > 1")
    assert "did you mean 'year'" in result["notes"][0]
    with pytest.warns(UserWarning, match="tags"):
        result = answer(index, "search", query="apples", where="tags = 'fruit'")
    assert "has lists and no strings" in result["notes"][0]


def test_a_query_is_text_and_unknown_words_are_noted(index):
    for query in ('"apples and pears" in the -garten', "apples -m pears"):
        result = answer(index, "search", query=query)
        assert [hit["id"] for hit in result["hits"]] == [hit.id for hit in index.search(query, k=5)]
        assert "notes" not in result
    result = answer(index, "search", query="aples")
    assert result["notes"] == ["no document has a word of the query; did you mean: apples"]


def test_synonyms_are_found_and_an_asterisk_is_text(index):
    assert answer(index, "search", query="app*", mode="bm25")["hits"] == []
    index.synonyms = Synonyms([["codling", "apples"]])
    result = answer(index, "search", query="codling", mode="bm25")
    assert [hit["id"] for hit in result["hits"]] == ["long", "note"]


def test_a_query_of_stop_words_alone_is_noted(index):
    result = answer(index, "search", query="and", mode="bm25")
    assert result["hits"]
    assert result["notes"][0].startswith("the query has only stop words")


def test_the_schema_names_the_fields_of_the_corpus(index):
    search, *others = ask({"fruit": index})
    where = search.input_schema["properties"]["where"]["description"]
    for part in ('lang (string: "de", "en")', "year (number: 1999, 2020, 2021)", "tags (array"):
        assert part in where
    assert "index" not in search.input_schema["properties"]
    index.add([{"id": "new", "text": "plums", "color": "blue"}])
    search, *_ = ask({"fruit": index})
    assert 'color (string: "blue")' in search.input_schema["properties"]["where"]["description"]
    assert all(tool.annotations.read_only_hint for tool in (search, *others))


def test_several_indexes_are_distinguished_by_name(index, tmp_path):
    with Index.create(tmp_path / "other") as other:
        other.add([{"id": "a", "text": "apples elsewhere", "place": "x"}])
        both = {"fruit": index, "other": other}
        search, *_ = ask(both)
        assert search.input_schema["properties"]["index"]["enum"] == ["fruit", "other"]
        assert "index" in search.input_schema["required"]
        named, unnamed, states = ask(
            both,
            ("search", {"query": "apples", "index": "other"}),
            ("search", {"query": "apples"}),
            ("status", {}),
        )
        assert [hit["id"] for hit in named.structured_content["hits"]] == ["a"]
        assert unnamed.is_error
        assert "fruit, other" in unnamed.content[0].text
        counts = [one["documents"] for one in states.structured_content["indexes"]]
        assert counts == [3, 1]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search", {}, "query"),
        ("search", {"query": "  "}, "is empty"),
        ("search", {"query": "a", "k": 0}, "k: "),
        ("search", {"query": "a", "k": 50, "offset": 1}, "at most 50, found 51"),
        ("search", {"query": "a", "where": "year >"}, "filter"),
        ("search", {"query": "a", "depth": 3}, "depth"),
        ("search", {"query": "a", "index": "other"}, "fruit"),
        ("get", {"id": "nothing"}, "'nothing'"),
        ("delete", {"id": "note"}, "search, get, multi_get, status"),
    ],
)
def test_unanswerable_tool_calls_return_reason(index, name, arguments, message):
    assert message in refusal(index, name, **arguments)


def over_http(app, headers, mode, call):
    """A call by the SDK's client, of an ASGI application at http://127.0.0.1:8766/mcp."""

    async def run():
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, headers=headers) as http,
            Client(
                streamable_http_client("http://127.0.0.1:8766/mcp", http_client=http), mode=mode
            ) as client,
        ):
            return await client.call_tool(*call)

    return anyio.run(run)


def post_status(app, headers):
    """Return the status of a request sent without the SDK's client."""

    async def run():
        transport = httpx2.ASGITransport(app=app)
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers_of_all = {"Accept": "application/json, text/event-stream", **headers}
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8766") as http,
        ):
            return (await http.post("/mcp", json=message, headers=headers_of_all)).status_code

    return anyio.run(run)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_http_answers_without_a_session(index, mode):
    app = http_app(make_server({"fruit": index}), "127.0.0.1", None)
    found = over_http(app, {}, mode, ("search", {"query": "apples and pears", "k": 1}))
    assert found.structured_content["hits"][0]["id"] == "note"


@pytest.mark.parametrize(
    ("host", "token", "headers", "status"),
    [
        ("127.0.0.1", None, {}, 200),
        # A name that a web page rebinds.
        ("127.0.0.1", None, {"Host": "evil.example"}, 421),
        ("127.0.0.1", None, {"Origin": "https://evil.example"}, 403),
        ("127.0.0.1", None, {"Origin": "http://localhost:8766"}, 200),
        ("0.0.0.0", "yes", {}, 401),
        ("0.0.0.0", "yes", {"Authorization": "Bearer no"}, 401),
        ("0.0.0.0", "yes", {"Authorization": "Bearer yes"}, 200),
    ],
)
def test_http_refuses_web_pages_and_clients_without_the_token(index, host, token, headers, status):
    assert post_status(http_app(make_server({"fruit": index}), host, token), headers) == status
    with pytest.raises(ConfigError, match="--token"):
        http_app(make_server({"fruit": index}), "0.0.0.0", None)


def test_mcp_command_prints_only_protocol_on_standard_output(index):
    async def run():
        command = StdioServerParameters(
            command=sys.executable,
            # The index has an encoder that no other process knows: the search is by words.
            args=["-m", "cli.main", "mcp", f"orchard={index.folder}"],
        )
        async with Client(stdio_client(command)) as client:
            arguments = {"query": "apples and pears", "mode": "bm25", "k": 1}
            return await client.call_tool("search", arguments)

    found = anyio.run(run).structured_content
    assert (found["index"], found["hits"][0]["id"]) == ("orchard", "note")


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_an_agent_excludes_words_and_phrases_by_an_argument(index, mode):
    everything = answer(index, "search", query="apples and pears", mode=mode)
    ids = {hit["id"] for hit in everything["hits"]}
    assert "note" in ids
    excluded = ["Apples and  pears", "xylophone"]
    result = answer(index, "search", query="apples and pears", mode=mode, exclude=excluded)
    assert {hit["id"] for hit in result["hits"]} == ids - {"note"}
    if result["hits"]:
        (note,) = result["notes"]
        assert note == (
            'documents with these texts of exclude are left out: "Apples and  pears", "xylophone"'
        )
    assert "text 1 has no word" in refusal(index, "search", query="apples", exclude=["-"])
    assert "exclude" in refusal(index, "search", query="apples", exclude="apples")


def test_an_agent_learns_why_there_are_no_hits(index):
    (note,) = answer(index, "search", query="apples", mode="bm25", exclude=["apples"])["notes"]
    assert note == (
        'every document with a word of the query has what the query leaves out ("apples"): take '
        "one out of exclude"
    )
    (note,) = answer(index, "search", query="apples", where='id = "none"')["notes"]
    assert note == "no document passes the filter: change it or leave it out"


def test_an_agent_learns_that_nothing_relevant_was_found(index):
    assert "no probabilities were learned" in refusal(
        index, "search", query="apples", min_probability=0.5
    )
    assert "has_answer" not in answer(index, "search", query="apples")
    with index._opened.view() as view:
        index.keep_calibration(by_coverage("hybrid", view.passage_count))
    good = answer(index, "search", query="apples pears", min_probability=0.5)
    assert good["has_answer"]
    assert good["probability"] == 0.9526
    assert good["hits"]
    bad = answer(index, "search", query="xylophone quartet")
    assert (bad["has_answer"], bad["probability"]) == (False, 0.0474)
    assert bad["hits"]
    assert "perhaps nothing relevant was found" in bad["notes"]
    bad = answer(index, "search", query="xylophone quartet", min_probability=0.5)
    assert (bad["has_answer"], bad["hits"]) == (False, [])
    assert "perhaps nothing relevant was found: lower min_probability to see hits" in bad["notes"]
    few = answer(index, "search", query="xylophone", max_tokens=200)
    assert tokens(few) <= 200
