"""The service in this process: its answers are those of the Python API, and it refuses the rest."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from urllib.parse import urljoin

import numpy as np
import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount

from retriever import ConfigError, Index, IndexLockedError, RetrieverError, Synonyms
from retriever.search import queries
from retriever.search.phrases import OperatorFilter
from retriever.service import ServiceSettings, create_app
from retriever.service.batching import Batcher
from tests.retriever.covered import by_coverage

pytestmark = pytest.mark.filterwarnings("ignore:filter. ")
DOCUMENTS = [
    {"id": "a", "text": "red apples and green pears", "lang": "en", "year": 2001},
    {"id": "b", "title": "Boats", "text": "sailing boats need wind", "lang": "en", "year": 2002},
    {"id": "c", "text": "rote Äpfel und Birnen", "lang": "de", "year": 2003},
    {"id": "d/e", "text": "wind and apples", "lang": "de", "year": 2004, "tags": ["x", "y"]},
]


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "fruit") as index:
        index.add(DOCUMENTS)
        yield index


def client_of(*indexes, headers=None, reranker=None, **settings):
    app = create_app(
        {one.folder.name: one for one in indexes}, ServiceSettings(**settings), reranker=reranker
    )
    return TestClient(
        app, base_url="http://127.0.0.1:8765", headers=headers, raise_server_exceptions=False
    )


@pytest.fixture
def client(index):
    with client_of(index) as client:
        yield client


@pytest.fixture
def writer(index):
    with client_of(index, writable=True) as client:
        yield client


def hits_of(answer, place=0):
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][place]["hits"]


def search(client, **asked):
    return client.post("/search", json=asked)


def together(*calls):
    """Run each call in its own thread; return the results in the order of the calls."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [one.result() for one in [threads.submit(call) for call in calls]]


def error_of(answer, status):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "message"}
    assert body["error"]["message"] == body["message"]
    return body["message"]


SETTINGS = [
    {"raw": True},
    {},
    {"mode": "bm25", "k": 2, "k1": 0.9, "b": 0.1, "variant": "bm25+"},
    {"mode": "dense", "recall": 0.5, "where": 'lang = "de" and year > 2003'},
    {"alpha": 0.3, "normalization": "z-score", "depth": 3},
    {"fusion": "rrf", "rrf_k": 10},
]


@pytest.mark.parametrize("mode", ["bm25", "hybrid"])
def test_a_result_without_hits_says_why(client, mode):
    (result,) = search(client, query='"green wind"', mode=mode).json()["results"]
    assert result["no_hits"] == 'no document has "green wind" as written: remove quotation marks'
    for result in search(client, query=["wind", "apples"], where="year = 1").json()["results"]:
        assert result["no_hits"] == "no document passes the filter: change it or leave it out"
    (result,) = search(client, query="wind", mode=mode).json()["results"]
    assert "no_hits" not in result


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_a_result_says_what_the_query_leaves_out(client, mode):
    request = {"query": ["wind -apples", "wind -m apples", "-ab wind"], "mode": mode}
    left_out, *texts = search(client, **request).json()["results"]
    assert left_out["excluded"] == ["apples"]
    assert left_out["note"] == (
        'documents with "apples" are left out, since the query has -apples; "raw": true searches '
        "for the query as it is"
    )
    raw = search(client, **request, raw=True).json()["results"]
    assert raw[1:] == texts
    assert not any("excluded" in result or "note" in result for result in [*texts, *raw])
    message = error_of(search(client, query=["wind", "-apples -wind"]), 400)
    assert message.startswith("query 2 has only words to leave out")


@pytest.mark.parametrize("settings", SETTINGS)
def test_hits_are_those_of_the_python_api(client, index, settings):
    text = 'apples "wind" -zzz'
    expected = [hit.to_json() for hit in index.search(text, **{"raw": False, **settings})]
    asked = {"query": text, **settings}
    assert hits_of(search(client, **asked)) == expected
    assert hits_of(client.get("/search", params=asked)) == expected


def test_a_word_that_no_document_has_is_corrected(client):
    (result,) = search(client, query="wnid -apples").json()["results"]
    assert result["did_you_mean"] == "wind"
    (result,) = search(client, query="wind").json()["results"]
    assert "did_you_mean" not in result


def test_beginnings_and_synonyms_are_found_counted_and_marked(client, index):
    index.synonyms = Synonyms([["zephyr", "wind"]])
    request = {"mode": "bm25", "facets": ["lang"], "highlight": True}
    for query, word in (("app*", "apples"), ("zephyr", "wind")):
        (result,) = search(client, query=query, **request).json()["results"]
        assert result["hits"]
        assert result["facets"]["matches"] >= len(result["hits"])
        for hit in result["hits"]:
            marked = {hit["passage"][start:stop].lower() for start, stop in hit["marks"]}
            assert marked == {word}
    (result,) = search(client, query="app*", raw=True, **request).json()["results"]
    assert (result["hits"], result["facets"]["matches"]) == ([], 0)
    # A path is for whoever starts the server.
    assert search(client, query="zephyr", synonyms="/etc/passwd").status_code == 422


def test_a_query_of_stop_words_alone_is_a_phrase_and_a_warning(client, index):
    index.add([{"id": "stop", "text": "an and, or a not"}])
    answer = search(client, query="and or a", mode="bm25").json()
    assert [hit["id"] for hit in answer["results"][0]["hits"]] == ["stop"]
    assert answer["warnings"] == [
        index.search_note(index.search("and or a", mode="bm25"), mode="bm25")
    ]
    assert search(client, query="wind", mode="bm25").json()["warnings"] == []


def test_hits_that_hold_no_answer_are_withheld_if_a_probability_is_asked_for(client, index):
    asked = {"query": ["wind apples", "xylophones"], "min_probability": 0.5}
    assert "learn them with `retriever calibrate" in error_of(search(client, **asked), 400)
    assert "has_answer" not in search(client, query="wind").json()["results"][0]
    index.keep_calibration(by_coverage("hybrid", passages=4))
    good, bad = search(client, **asked).json()["results"]
    assert (good["has_answer"], good["probability"]) == (True, pytest.approx(0.9526, abs=1e-4))
    assert good["hits"][0]["probability"] == good["probability"]
    assert (bad["has_answer"], bad["hits"]) == (False, [])
    (bad,) = search(client, query="xylophones").json()["results"]
    assert not bad["has_answer"]
    assert bad["hits"]
    answer = search(client, query="wind", alpha=0.2).json()
    assert answer["warnings"] == [
        "probabilities were learned with other settings of fusion or BM25; learn them again with "
        "`retriever calibrate`"
    ]
    like = {"like": {"id": "a"}, "min_probability": 0.5}
    assert "min_probability: it applies only to queries" in error_of(search(client, **like), 400)


def test_search_parameter_q_is_alias_of_query(client):
    asked = {"mode": "bm25", "k": 1}
    short = client.get("/search", params={"q": "wind", **asked})
    assert hits_of(short) == hits_of(client.get("/search", params={"query": "wind", **asked}))
    error_of(client.get("/search", params={"q": "wind", "query": "mill"}), 422)
    assert "query: field required" in error_of(client.get("/search", params=asked), 422)


def test_validation_error_names_first_fault_only(client):
    # All of them would take some hundred bytes each.
    texts = [1] * 1000
    for path, asked in (("/search", {"query": texts}), ("/v1/rerank", {"documents": texts})):
        message = error_of(client.post(path, json={"query": "a", **asked}), 422)
        assert ".0" in message
        assert ".1" not in message


def test_several_queries_are_answered_in_their_order(client, index):
    texts = ["wind", "Birnen", "wind"]
    answer = client.post("/search", json={"query": texts, "k": 1})
    assert [result["query"] for result in answer.json()["results"]] == texts
    found = [hits[0].id for hits in index.search_many(texts, k=1)]
    assert [hits_of(answer, place)[0]["id"] for place in range(3)] == found
    assert client.get("/search", params={"query": texts, "k": 1}).json() == answer.json()


def test_facets_and_marks_are_those_of_the_python_api(client, index):
    answer = client.post(
        "/search", json={"query": "wind", "facets": ["lang"], "facet_limit": 1, "highlight": True}
    )
    facets = answer.json()["results"][0]["facets"]
    assert (facets["documents"], facets["matches"]) == (4, 2)
    expected = index.facets(["lang"], "wind", limit=1).fields["lang"].values[0]
    assert facets["fields"]["lang"]["values"] == [
        {"value": expected.value, "documents": 2, "matches": 1, "where": 'lang = "de"'}
    ]
    marked = [hit for hit in hits_of(answer) if hit["marks"]]
    assert {hit["passage"][slice(*hit["marks"][0])] for hit in marked} == {"wind"}


def test_documents_are_listed_without_a_query(client, index):
    asked = {"where": ['lang = "de"', "year > 0"], "facets": ["lang"], "k": 1}
    answer = client.post("/browse", json=asked)
    matching = sorted(
        document.id
        for document in index
        if document.metadata["lang"] == "de" and document.metadata.get("year", 0) > 0
    )
    assert [hit["id"] for hit in hits_of(answer)] == matching[:1]
    assert answer.json()["results"][0]["facets"]["documents"] == len(matching)
    assert answer.json()["results"][0]["facets"]["matches"] is None
    assert [hit["id"] for hit in hits_of(client.post("/browse", json={}))] == sorted(
        document.id for document in index
    )
    assert client.post("/browse", json={"where": "yeer = 3"}).json()["warnings"]
    error_of(client.post("/browse", json={"where": "year ="}), 400)
    error_of(client.post("/browse", json={"k": 10**6}), 400)
    with pytest.raises(ConfigError, match="k: expected 1 or more, found 0"):
        index.browse(k=0)


def test_documents_like_one_leave_it_out(client, index):
    answer = client.post("/search", json={"like": {"id": "d/e"}, "k": 2})
    expected = [hit.to_json() for hit in index.more_like("d/e", k=2)]
    assert hits_of(answer) == expected
    assert "d/e" not in {hit["id"] for hit in expected}
    error_of(client.post("/search", json={"like": {"id": "zz"}}), 404)


def test_several_filters_select_what_matches_all_of_them(client, index):
    several = ['lang = "de" or lang = "en"', "year > 2003 or year < 1000"]
    expected = index.search("wind", where=" and ".join(f"({one})" for one in several))
    assert 0 < len(expected) < len(index)
    for asked in (several, [], several[:1]):
        answer = search(client, query="wind", where=asked)
        by_address = client.get("/search", params={"query": "wind", "where": asked})
        assert hits_of(answer) == hits_of(by_address)
    answer = search(client, query="wind", where=several)
    assert hits_of(answer) == [hit.to_json() for hit in expected]
    (told,) = search(client, query="wind", where="yeer = 3").json()["warnings"]
    assert "did you mean 'year'" in told


@pytest.mark.parametrize(
    "typed", ["year > ", "year > 1 year", "year in (1", "year > 1) or (lang = 1"]
)
def test_an_error_in_one_of_several_filters_is_that_of_the_filter_alone(client, typed):
    alone = search(client, query="wind", where=typed)
    beside = search(client, query="wind", where=['lang = "de"', typed])
    assert error_of(beside, 400) == error_of(alone, 400)
    assert "')'" not in error_of(search(client, query="a", where="x = 1 y"), 400)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v2/rerank"])
def test_any_name_of_a_model_means_the_first_index_if_the_service_says_so(index, path):
    asked = {"input": "wind", "query": "wind", "documents": ["wind"], "model": "rerank-v3.5"}
    with client_of(index) as client:
        error_of(client.post(path, json=asked), 404)
    with client_of(index, any_model=True) as client:
        own = client.post(path, json={**asked, "model": ""}).json()
        answer = client.post(path, json=asked).json()
        assert answer.pop("model") == "rerank-v3.5"
        del own["model"]
        assert answer == own


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({}, 400, "query: expected either"),
        ({"query": "a", "like": {"id": "a"}}, 400, "query: expected either"),
        ({"query": []}, 400, "found none"),
        ({"query": " "}, 400, "query 1 is empty: expected at least one word"),
        ({"query": "a\ud800"}, 400, "surrogate"),
        ({"query": "a" * 101}, 413, "at most 100 characters, found 101"),
        ({"query": ["a"] * 4}, 400, "queries: expected at most 3, found 4"),
        ({"query": "a", "k": 51}, 400, "k: expected at most 50, found 51"),
        ({"query": "a", "k": 0}, 400, "k: expected at least 1, found 0"),
        ({"query": "a", "alpha": 1.5}, 400, "alpha: expected"),
        ({"query": "a", "variant": "okapy"}, 422, "variant: input should be 'lucene'"),
        ({"query": "a", "normalization": "none"}, 400, "normalization: expected"),
        ({"query": "a", "kk": 1}, 422, "kk: unknown field; /openapi.json lists the fields"),
        ({"query": "a", "index": "../fruit"}, 404, "there is no index '../fruit'"),
        ({"query": "a", "where": "x ="}, 400, "filter, character 4"),
        ({"query": "a", "fusion": "rrf", "alpha": 0.5}, 400, "alpha"),
        ({"query": "a", "facets": ["title"]}, 400, "field 'title'"),
        ({"query": "a", "rerank": True}, 400, "no reranker"),
        ({"like": {"id": "\ud800"}}, 404, "holds no document '\\ud800'"),
        ({"like": {"id": "a\0"}}, 404, "holds no document 'a\\x00'"),
        ({"query": "a", "\ud800": 1}, 422, "unicode"),
        ({f"field {number}": 1 for number in range(101)}, 422, "at most 100 fields, found 101"),
        ({"input": []}, 400, "found none"),
        ({"input": [1, 2]}, 400, "expected texts alone"),
        ({"input": ["a", " "]}, 400, "2 is empty"),
        ({"input": "a", "model": "gpt"}, 404, "no model 'gpt'"),
        ({"input": "a", "dimensions": 3}, 400, "the encoder has 16, found 3"),
        ({"input": ["a"] * 4}, 400, "input: expected at most 3, found 4"),
    ],
)
def test_faulty_requests_are_refused_with_one_object(index, asked, status, says):
    with client_of(index, max_text=100, max_queries=3, max_texts=3, max_k=50) as client:
        body = json.dumps(asked).encode()
        path = "/v1/embeddings" if "input" in asked else "/search"
        answer = client.post(path, content=body, headers={"content-type": "application/json"})
        assert says in error_of(answer, status)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ('{"query": "a"}', "application/x-www-form-urlencoded", "Content-Type: application/json"),
        ('{"query": a}', "application/json", "body: not JSON: Expecting value at character 11"),
    ],
)
def test_a_body_that_is_not_json_or_not_said_to_be_is_named(client, body, kind, says):
    answer = client.post("/search", content=body, headers={"content-type": kind})
    assert says in error_of(answer, 422)


def test_documents_are_read_with_their_passages(client, index):
    answer = client.get("/documents/d/e")
    assert answer.json() == {
        "id": "d/e",
        "text": "wind and apples",
        "title": None,
        "metadata": {"lang": "de", "tags": ["x", "y"], "year": 2004},
        "passages": [[0, 15]],
    }
    assert "holds no document 'zz'" in error_of(client.get("/documents/zz"), 404)


def test_documents_are_added_replaced_and_deleted(writer, index):
    record = {"title": "T", "text": "a zebra", "nested": {"x": [1]}}
    assert writer.put("/documents/a", json=record).json()["updated"] == 1
    assert index["a"].metadata == {"nested": {"x": [1]}}
    lines = '{"id": "n1", "text": "one"}\n\n{"id": "b", "text": "two", "year": 1}\n'
    report = writer.post("/documents", content=lines).json()
    assert (report["added"], report["updated"]) == (1, 1)
    assert writer.delete("/documents/d/e").json() == {"deleted": 1}
    error_of(writer.delete("/documents/d/e"), 404)
    assert sorted(document.id for document in index) == ["a", "b", "c", "n1"]
    assert error_of(writer.put("/documents/a", json={"id": "b", "text": "x"}), 400)


IDS = ["a\n", "\n", "a\nb", "..", "../info", "a/b", "a//b", "a?b#c", "ü 𝔘", " a"]


@pytest.mark.parametrize("id_", IDS)
@pytest.mark.parametrize("parameter", [False, True])
def test_an_address_names_one_document_and_no_other(writer, index, id_, parameter):
    index.add({"id": one, "text": f"text {one!r}"} for one in IDS if one.strip())
    before = {document.id: document for document in index}
    # With every character in percent signs, no client takes the id for another path.
    path = "/documents/" + "".join(f"%{byte:02X}" for byte in id_.encode())
    ask = {"url": "/documents", "params": {"id": id_}} if parameter else {"url": path}
    if "\n" in id_ and not parameter:
        # Its documents are named by the parameter alone.
        for method in ("GET", "PUT", "DELETE"):
            error_of(writer.request(method, path, json={"text": "new"}), 404)
    elif not id_.strip():
        error_of(writer.put(**ask, json={"text": "new"}), 400)
        error_of(writer.get(**ask), 404)
        error_of(writer.delete(**ask), 404)
    else:
        assert writer.get(**ask).json()["text"] == f"text {id_!r}"
        assert writer.put(**ask, json={"text": "new"}).json()["updated"] == 1
        assert writer.get(**ask).json()["text"] == index[id_].text == "new"
        assert writer.delete(**ask).json() == {"deleted": 1}
        del before[id_]
    assert {document.id: document for document in index} == before


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/documents/%FF", 400),
        ("/documents/%ED%A0%80", 400),
        ("/documents?id=%FF", 400),
        ("/search?query=%FF", 400),
        ("/health%0A", 404),
        ("/search%0A?query=wind", 404),
        ("/documents", 422),
        ("/documents/a%00", 404),
        ("/v1/rerank", 405),
    ],
)
def test_malformed_or_ambiguous_document_address_is_refused(client, path, status):
    error_of(client.get(path), status)


def test_a_document_without_text_is_refused_and_its_fields_are_named(writer, index):
    for path in ("/documents/a", "/documents/new"):
        message = error_of(writer.put(path, json={"txt": "x", "text": " "}), 400)
        assert "expected a text or a title, found" in message
        assert "'txt'" in message
    assert index["a"].text == DOCUMENTS[0]["text"]
    assert writer.put("/documents/new", json={"title": "x"}).json()["added"] == 1


def test_a_faulty_line_is_named_and_those_before_it_are_added(writer, index):
    lines = '{"id": "n1", "text": "one"}\nnot json\n{"id": "n2", "text": "two"}\n'
    assert "body:2: not JSON" in error_of(writer.post("/documents", content=lines), 400)
    assert "n1" in index
    assert "n2" not in index


def test_a_service_is_read_only_unless_it_is_writable(client, index):
    for method, path in (("PUT", "/a"), ("POST", ""), ("DELETE", "/a")):
        answer = client.request(method, f"/documents{path}", json={"text": "x"})
        assert "--writable" in error_of(answer, 403)
    assert index["a"].text == DOCUMENTS[0]["text"]


def test_refused_request_is_answered_before_its_body_is_read(index):
    for settings, headers, status in (
        ({}, [], 403),
        ({"writable": True, "token": "s3cret"}, [], 401),
        ({"writable": True}, [(b"host", b"evil.org")], 421),
        ({"writable": True, "max_body": 100}, [(b"content-length", b"101")], 413),
    ):
        happened = []

        async def receive(happened=happened):
            happened.append("read")
            return {"type": "http.request", "body": b"[" * 1000, "more_body": len(happened) < 4}

        async def send(message, happened=happened):
            happened.append(message.get("status", message.get("more_body", False)))

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "PUT",
            "path": "/documents/a",
            "raw_path": b"/documents/a",
            "query_string": b"",
            "headers": [*headers, (b"host", b"localhost")],
            "root_path": "",
        }
        app = create_app({"fruit": index}, ServiceSettings(**settings))
        asyncio.run(app(scope, receive, send))
        # What a client still sends is thrown away, before the answer ends.
        assert happened == [status, True, "read", "read", False], settings


def test_an_index_that_is_locked_is_tried_again_later(writer, index, monkeypatch):
    def locked(*_, **__):
        raise IndexLockedError("another writer holds the index")

    monkeypatch.setattr(Index, "add", locked)
    answer = writer.put("/documents/a", json={"text": "x"})
    assert error_of(answer, 503) == "another writer holds the index"
    assert answer.headers["retry-after"] == "1"


def test_indexes_are_chosen_by_the_names_of_their_folders(tmp_path, index):
    with Index.create(tmp_path / "other") as other, client_of(index, other) as client:
        other.add([{"id": "z", "text": "wind"}])
        assert {hit["id"] for hit in hits_of(client.get("/search?query=wind&index=other"))} == {"z"}
        assert client.get("/documents/z?index=other").status_code == 200
        info = client.get("/info").json()
        assert list(info["indexes"]) == ["fruit", "other"]
        assert info["default"] == "fruit"
        assert str(tmp_path) not in json.dumps(info)


def test_embeddings_are_those_of_the_encoder_in_both_formats(client, index):
    texts = ["red apples", "wind"]
    expected = index.encoder.encode(texts)
    answer = client.post("/v1/embeddings", json={"input": texts, "model": "fruit"}).json()
    assert [one["index"] for one in answer["data"]] == [0, 1]
    assert np.array_equal(np.array([one["embedding"] for one in answer["data"]], "f4"), expected)
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7, "truncated": 0}
    asked = {"input": "wind", "model": "fake::max-length=32", "encoding_format": "base64"}
    (only,) = client.post("/v1/embeddings", json=asked).json()["data"]
    assert np.array_equal(np.frombuffer(base64.b64decode(only["embedding"]), "<f4"), expected[1])


def test_texts_that_are_cut_before_they_are_encoded_are_counted(client, index):
    window = index.encoder.spec.max_length
    texts = ["word " * (window - 2), "word " * (window - 1), "wind"]
    usage = client.post("/v1/embeddings", json={"input": texts}).json()["usage"]
    assert usage == {
        "prompt_tokens": 2 * window + 3,
        "total_tokens": 2 * window + 3,
        "truncated": 1,
    }


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_texts_are_reranked_by_cosine_without_a_reranker(client, index, path):
    texts = ["red apples", {"text": "wind in the sails"}, "wind"]
    asked = {"query": "wind", "documents": texts, "top_n": 2, "return_documents": True}
    results = client.post(path, json=asked).json()["results"]
    vectors = index.encoder.encode(["red apples", "wind in the sails", "wind"])
    scores = vectors @ index.encoder.encode(["wind"], query=True)[0]
    assert [result["index"] for result in results] == np.argsort(-scores)[:2].tolist()
    assert results[0]["document"] == {"text": "wind"}
    assert results[0]["relevance_score"] == pytest.approx(1)


class Shortest:
    """Prefers short passages."""

    reads_vectors = False

    def check(self, encoder):
        pass

    def score(self, query, vector, passages, vectors):
        return np.array([-len(passage) for passage in passages], np.float32)


def test_hits_and_texts_are_ranked_by_the_reranker_that_is_asked_for(index):
    with client_of(index, reranker=Shortest()) as client:
        found = hits_of(client.post("/search", json={"query": "wind", "rerank": True, "k": 1}))
        assert [(hit["id"], hit["rank"]) for hit in found] == [("d/e", 1)]
        assert "first_rank" in found[0]
        assert "first_rank" not in hits_of(client.get("/search?query=wind"))[0]
        answer = client.post("/v1/rerank", json={"query": "a", "documents": ["xxx", "x"]})
        assert [result["index"] for result in answer.json()["results"]] == [1, 0]


def test_queries_that_arrive_together_are_encoded_as_one_batch(index, fake_encoder, monkeypatch):
    batches = []
    encode = type(fake_encoder).encode

    def noted(self, texts, *, query=False):
        batches.append(len(texts))
        return encode(self, texts, query=query)

    monkeypatch.setattr(type(fake_encoder), "encode", noted)
    asked = [{"query": f"wind {mode}", "mode": mode} for mode in ("hybrid", "dense", "bm25")]
    # A faulty one leaves the others.
    asked += [{"query": "apples"}, {"query": "wind", "where": "x ="}]
    with client_of(index, batch_wait=0.3) as client:
        client.get("/health")
        batches.clear()
        answers = together(*(partial(search, client, **one) for one in asked))
        assert 'retriever_batch_size_sum{work="search"} 5.0' in client.get("/metrics").text
    assert [one.status_code for one in answers] == [200, 200, 200, 200, 400]
    assert max(batches) == 4


def test_threads_share_what_waits_while_a_batch_runs():
    sizes, gate = [], threading.Event()

    def run(jobs):
        sizes.append(len(jobs))
        assert gate.wait(30)
        return list(jobs)

    async def until(count):
        end = time.monotonic() + 30
        while len(sizes) < count:
            assert time.monotonic() < end
            await asyncio.sleep(0.001)

    async def scenario():
        batcher = Batcher(run, size=64, wait=0.0, queue=100, threads=2, observe=lambda weight: None)
        batcher.start()
        answers = [asyncio.create_task(batcher.submit(n)) for n in range(4)]
        await until(1)
        answers += [asyncio.create_task(batcher.submit(n)) for n in range(4, 16)]
        await until(2)
        assert batcher.waiting == 4
        gate.set()
        assert await asyncio.gather(*answers) == list(range(16))
        await batcher.stop()

    asyncio.run(scenario())
    assert sizes == [4, 8, 4]


def test_a_full_queue_answers_503_and_when_to_try_again(index):
    with client_of(index, batch_wait=0.5, queue=2, batch=8) as client:
        answers = together(*[partial(client.get, "/search?query=wind&mode=bm25")] * 4)
    refused = [one for one in answers if one.status_code == 503]
    assert len(refused) == 2
    assert all(one.headers["retry-after"] == "1" for one in refused)


def test_a_request_that_takes_too_long_is_given_up(index):
    with client_of(index, batch_wait=0.5, timeout=0.05) as client:
        assert "0.05 seconds" in error_of(client.get("/search?query=wind"), 504)


def test_the_work_of_a_request_that_was_given_up_ends(index, monkeypatch):
    ended = threading.Event()
    holds_phrase = OperatorFilter.__call__

    def slow(self, document, passage):
        time.sleep(0.2)
        return holds_phrase(self, document, passage)

    def run(*arguments):
        try:
            return ranked_hits(*arguments)
        except RetrieverError:
            ended.set()
            raise

    ranked_hits = queries.ranked_hits
    monkeypatch.setattr(OperatorFilter, "__call__", slow)
    monkeypatch.setattr(queries, "ranked_hits", run)
    with client_of(index, timeout=0.1) as client:
        error_of(client.get("/search", params={"query": '"and and"', "k": 1}), 504)
        assert ended.wait(5)


def test_a_change_that_takes_long_is_finished(index, monkeypatch):
    add = Index.add

    def slow(self, documents, **keywords):
        time.sleep(0.1)
        return add(self, documents, **keywords)

    monkeypatch.setattr(Index, "add", slow)
    with client_of(index, writable=True, timeout=0.05) as client:
        assert client.put("/documents/new", json={"text": "x"}).json()["added"] == 1


def test_bodies_are_limited_with_and_without_their_length(index):
    with client_of(index, max_body=200, max_upload=300, writable=True) as client:
        long = json.dumps({"query": "a" * 200}).encode()
        kind = {"content-type": "application/json"}
        error_of(client.post("/search", content=long, headers=kind), 413)
        error_of(client.post("/search", content=iter([long[:150], long[150:]]), headers=kind), 413)
        line = b'{"text": "' + b"a" * 120 + b'"}\n'
        assert client.post("/documents", content=line * 2).status_code == 200
        error_of(client.post("/documents", content=line * 3), 413)
        error_of(client.post("/documents", content=iter([line] * 3)), 413)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8765"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:8765"}, 200),
        ({"host": "192.168.1.7"}, 200),
        ({"host": "Search.example.org:80"}, 200),
        ({"host": "evil.org"}, 421),
        ({"host": "127.0.0.1.evil.org"}, 421),
        ({"host": ""}, 421),
        ({"host": "["}, 421),
        ({"host": "[::1"}, 421),
        ({"host": "localhost:80:80"}, 421),
        ({"host": "evil.org@localhost"}, 421),
        ({"origin": "http://["}, 403),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "https://app.example.org"}, 200),
        ({"origin": "http://127.0.0.1:8765"}, 200),
        ({"origin": "https://app.example.org"}, 200),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "https://evil.org"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_hosts_and_origins_are_checked(index, headers, status):
    allowed = {"hosts": ("search.example.org",), "origins": ("https://app.example.org",)}
    with client_of(index, **allowed) as client:
        answer = client.get("/search?query=wind&mode=bm25", headers=headers)
        assert answer.status_code == status
        shared = answer.headers.get("access-control-allow-origin")
        assert shared == (
            "https://app.example.org" if "app.example" in headers.get("origin", "") else None
        )


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_web_pages_may_link_to_the_page_and_embed_nothing(client, site):
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/?q=wind", headers=link).status_code == 200
    for path, headers in (
        ("/", {**link, "sec-fetch-dest": "iframe"}),
        ("/", {**link, "sec-fetch-mode": "no-cors"}),
        ("/page.js", {**link, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}),
        ("/search?query=wind", link),
        ("/documents/a", link),
    ):
        assert "other web pages" in error_of(client.get(path, headers=headers), 403)
    error_of(client.post("/", headers=link), 403)


def test_a_token_opens_everything_but_the_page_and_health(index):
    with client_of(index, token="s3cret") as client:
        for path in ("/", "/page.css", "/page.js", "/health"):
            assert client.get(path).status_code == 200
        assert client.head("/health").status_code == 200
        for path in ("/search?query=wind", "/info", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401
            for wrong in ("Bearer s3cre", "Basic s3cret", "s3cret", "Bearer ", "Bearer é"):
                answer = client.get(path, headers={"authorization": wrong.encode()})
                assert "token" in error_of(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
            for right in ("Bearer s3cret", "bearer s3cret"):
                assert client.get(path, headers={"authorization": right}).status_code == 200


def test_metrics_count_requests_by_route(client):
    client.get("/documents/a")
    client.get("/documents/zz")
    client.get("/made/up")
    text = client.get("/metrics").text
    for status in ("200", "404"):
        assert (
            f'retriever_requests_total{{method="GET",route="/documents/{{id:path}}",status="{status}"}}'
            " 1.0"
        ) in text
    assert "made" not in text
    assert 'retriever_documents{index="fruit"} 4.0' in text


def test_the_page_loads_nothing_from_elsewhere_and_every_address_is_described(client):
    answer = client.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search("https?://", answer.text)
    assert "/openapi.json lists them" in error_of(client.get("/nothing"), 404)
    described = client.get("/openapi.json").json()
    assert {"/search", "/v1/embeddings"} < described["paths"].keys()
    depth = described["components"]["schemas"]["SearchRequest"]["properties"]["depth"]
    assert depth["description"].endswith("Expected: at least 1; 100 by default.")


def behind_proxy(app, root_path, *, strips):
    """An application as a proxy such as nginx gives it below a path, taken off or not."""

    async def proxy(scope, receive, send):
        if scope["type"] == "http":
            path = scope["path"]
            if path != root_path and not path.startswith(f"{root_path}/"):
                await send({"type": "http.response.start", "status": 599, "headers": []})
                await send({"type": "http.response.body", "body": b"not the service"})
                return
            if strips:
                path = path.removeprefix(root_path) or "/"
            # The proxy speaks plain HTTP to the service.
            scope = {**scope, "path": path, "raw_path": path.encode(), "scheme": "http"}
        await app(scope, receive, send)

    return proxy


@contextmanager
def proxied_client(index, root_path="/search", *, strips, told=True, **settings):
    told_path = root_path if told else ""
    limits = ServiceSettings(hosts=("example.org",), root_path=told_path, **settings)
    app = behind_proxy(create_app({"fruit": index}, limits), root_path, strips=strips)
    with TestClient(app, "https://example.org", raise_server_exceptions=False) as client:
        yield client


# Whether the proxy takes off the path, and whether the service is told the path.
PROXIES = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize(("strips", "told"), PROXIES)
@pytest.mark.parametrize("root_path", ["/search", "/a/b.c/search", "/tools"])
def test_service_works_below_a_path_of_a_proxy(index, root_path, strips, told):
    with proxied_client(index, root_path, strips=strips, told=told) as client:
        page = client.get(f"{root_path}/", params={"q": "wind"})
        links = re.findall(r'(?:href|src)="([^"#:]+)"', page.text)
        assert {"page.css", "page.js", "openapi.json"} <= set(links)
        for link in links:
            answer = client.get(urljoin(str(page.url), link))
            assert answer.status_code == 200, link
        # Addresses in the script are relative, too.
        script = client.get(f"{root_path}/page.js").text
        assert "call(`documents?" in script
        assert not re.search(r"""(call|fetch|href:|src:)\W*["`']/""", script)
        asked = {"query": "wind", "mode": "bm25"}
        expected = hits_of(client.post(f"{root_path}/search", json=asked))
        assert hits_of(client.get(f"{root_path}/search", params=asked)) == expected
        assert client.get(f"{root_path}/documents/d/e").json()["id"] == "d/e"
        assert client.get(f"{root_path}/info/").json()["default"] == "fruit"
        assert client.get(f"{root_path}/health").history == []
        assert client.get(f"{root_path}/nothing").status_code == 404
        rerank = {"query": "wind", "documents": ["wind"]}
        versions = [
            client.post(f"{root_path}/v{n}/rerank", json=rerank).json()["meta"] for n in (1, 2)
        ]
        assert [one["api_version"]["version"] for one in versions] == ["1", "2"]
        if told:
            described = client.get(f"{root_path}/openapi.json").json()
            assert described["servers"] == [{"url": root_path}]


@pytest.mark.parametrize(("strips", "told"), PROXIES)
def test_guards_hold_below_a_path_of_a_proxy(index, strips, told):
    settings = {"strips": strips, "told": told, "token": "s3cret", "origins": ("https://a.org",)}
    with proxied_client(index, **settings) as client:
        assert client.get("/search/").status_code == 200
        error_of(client.get("/search/info"), 401)
        client.headers["authorization"] = "Bearer s3cret"
        for method, path in (("PUT", "/a"), ("POST", ""), ("DELETE", "/a"), ("DELETE", "?id=a")):
            answer = client.request(method, f"/search/documents{path}", json={"text": "x"})
            assert "--writable" in error_of(answer, 403)
        for headers, status in (
            ({"host": "evil.org"}, 421),
            ({"origin": "https://evil.org"}, 403),
            ({"origin": "https://example.org"}, 200),
            ({"origin": "https://a.org"}, 200),
            ({"sec-fetch-site": "cross-site"}, 403),
        ):
            assert client.get("/search/info", headers=headers).status_code == status
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        link["sec-fetch-dest"] = "document"
        assert client.get("/search/", headers=link).status_code == 200
        assert client.get("/search/search?q=wind", headers=link).status_code == 403
    assert index["a"].text == DOCUMENTS[0]["text"]


def test_root_path_without_its_slash_leads_to_the_page(index):
    for root_path in ("/search", "/tools/docs"):
        with proxied_client(index, root_path, strips=False) as client:
            answer = client.get(root_path, follow_redirects=False)
            assert answer.status_code == 307
            assert urljoin(f"https://example.org{root_path}", answer.headers["location"]) == (
                f"https://example.org{root_path}/"
            )
            assert "<title>Search" in client.get(root_path).text
    with proxied_client(index, "/tools", strips=False) as client:
        assert client.get("/tools?q=wind&k=3").url.query == b"q=wind&k=3"


def test_application_that_another_one_mounts_is_guarded_and_works(index):
    app = Starlette(routes=[Mount("/inner", create_app({"fruit": index}))])
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        assert "--writable" in error_of(client.delete("/inner/documents/a"), 403)
        assert client.get("/inner/").status_code == 200
        assert client.get("/inner/documents/d/e").json()["id"] == "d/e"
        assert client.get("/inner/openapi.json").json()["servers"] == [{"url": "/inner"}]


@pytest.mark.parametrize(
    "root_path",
    [
        *("search", "//search", "/a//b", "/a b", "/a?b", "/../a", "/a/.", "/%73earch"),
        *("/documents", "/documents/x", "/v1", "/info", "/page.js/x"),
    ],
)
def test_malformed_or_ambiguous_root_path_is_refused(index, root_path):
    with pytest.raises(ConfigError, match=r"^root_path: ") as caught:
        create_app({"fruit": index}, ServiceSettings(root_path=root_path))
    assert "\n" not in str(caught.value)


def test_slash_at_the_end_of_a_root_path_says_no_more():
    assert ServiceSettings(root_path="/search/") == ServiceSettings(root_path="/search")
    assert ServiceSettings(root_path="/").root_path == ""
