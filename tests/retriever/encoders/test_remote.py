"""An encoder behind a URL, against a small server on this machine."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from retriever import (
    ConfigError,
    Encoder,
    EncoderMismatchError,
    Index,
    ModelError,
    encode_shards,
    import_documents,
)
from retriever.encoders import remote
from retriever.encoders.spec import PROBES
from tests.retriever.encoders.plain import unit

WIDTH = 8


def vector(text):
    """Letters counted, so that texts with the same letters are near."""
    found = [1.0] * WIDTH
    for letter in text.lower():
        found[ord(letter) % WIDTH] += 1.0
    return found


def answer(texts):
    """In an order of its own, as the field `index` allows."""
    data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(texts)]
    return {"object": "list", "data": data[::-1]}


class Service:
    """Scripted answers of the server, and the requests it received."""

    def __init__(self, url):
        self.url, self.model = url, f"{url}#letters"
        # Status, headers and body of the next answers; a callable gets the texts.
        self.script, self.asked, self.headers = [], [], []
        self.delay, self.at_once, self.most_at_once = 0.0, 0, 0
        self.lock = threading.Lock()

    def reply(self, path, body, headers):
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            self.asked.append({"path": path, **body})
            self.headers.append(headers)
            status, sent, content = self.script.pop(0) if self.script else (200, {}, answer)
        time.sleep(self.delay)
        with self.lock:
            self.at_once -= 1
        return status, sent, content(body["input"]) if callable(content) else content


@pytest.fixture
def service(monkeypatch):
    for name in ("RETRIEVER_API_KEY", "OPENAI_API_KEY", "RETRIEVER_URLS", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(remote, "_FIRST_WAIT", 0.001)
    monkeypatch.setattr(remote, "_TIMEOUT", 5.0)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, content = made.reply(self.path, body, dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(
                    content if isinstance(content, bytes) else json.dumps(content).encode()
                )

        def log_message(self, *_):
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Service(f"http://127.0.0.1:{server.server_port}/v1")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def test_texts_get_the_vectors_of_the_server_in_their_order(service):
    texts = [f"text {'x' * i}" for i in range(300)]
    encoder = Encoder.load(f"{service.model}::query-prompt=q: ")
    service.delay = 0.02
    np.testing.assert_allclose(encoder.encode(texts), unit(list(map(vector, texts))), atol=1e-6)
    assert 1 < service.most_at_once <= 8
    assert encoder.spec.dimensions == WIDTH
    assert {one["path"] for one in service.asked} == {"/v1/embeddings"}
    assert {one["model"] for one in service.asked} == {"letters"}
    assert max(len(one["input"]) for one in service.asked) == 64
    service.asked.clear()
    encoder.encode(["words " * 200] * 40)
    assert sorted(len(one["input"]) for one in service.asked) == [20, 20]
    encoder.encode(["words"], query=True)
    assert service.asked[-1]["input"] == ["q: words"]


def test_a_stored_url_is_used_only_if_the_user_names_it(service, tmp_path, monkeypatch):
    texts = ["apples", "pears", " ".join(f"plum{i}" for i in range(40))]
    with Index.create(tmp_path / "index", f"{service.model}::max-length=16") as index:
        assert index.add(texts).split == 1
        index.export(tmp_path / "out.jsonl", vectors=True)
    service.asked.clear()
    with Index.open(tmp_path / "index") as index:
        for attempt in (
            lambda: index.search("pears", mode="dense"),
            lambda: index.reindex("::max-length=32"),
            lambda: import_documents(tmp_path / "copy", tmp_path / "out.jsonl"),
        ):
            with pytest.raises(ModelError, match="only if you ask for it: add --model"):
                attempt()
        assert len(index.search("pears", mode="bm25")) == 1
        assert not service.asked
        monkeypatch.setenv("RETRIEVER_URLS", f"http://other/v1 {service.url}/")
        (first, *_) = index.search("pears", mode="dense")
        assert (first.passage, first.dense) == ("pears", pytest.approx(1, abs=1e-6))
    monkeypatch.delenv("RETRIEVER_URLS")
    with pytest.raises(EncoderMismatchError, match="other"):
        Index.open(tmp_path / "index", f"{service.url}#other")
    import_documents(tmp_path / "copy", tmp_path / "out.jsonl", service.model)
    for name in ("index", "copy"):
        with Index.open(tmp_path / name, service.model) as index:
            assert index.search("apples", k=1, mode="dense")[0].passage == "apples"


def test_neither_torch_nor_transformers_are_imported(service):
    code = (
        "import sys\nfrom retriever import Encoder\n"
        f"assert Encoder.load({service.model!r}).encode(['a']).shape == (1, {WIDTH})\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def rows_of(width, texts=3):
    return {"data": [{"index": i, "embedding": [1.0, *[0.0] * (width - 1)]} for i in range(texts)]}


def test_a_server_with_another_model_under_the_name_is_noticed(service, tmp_path):
    with Index.create(tmp_path / "index", service.model) as index:
        index.add(["a text", "another"])
    encode_shards(["a text", "another"], tmp_path / "shards", service.model)
    asked = len(service.asked)
    assert import_documents(tmp_path / "copy", tmp_path / "shards").added == 2
    assert len(service.asked) == asked
    with Index.open(tmp_path / "index", service.model) as index:
        for width in (WIDTH, WIDTH + 1):
            service.script = [(200, {}, rows_of(width))]
            with pytest.raises(EncoderMismatchError, match="has changed"):
                index.search("a text")
        assert index.search("another", k=1)[0].passage == "another"
    service.script = [(200, {}, rows_of(WIDTH))]
    with pytest.raises(EncoderMismatchError, match="gives other vectors than when the shards"):
        encode_shards(["a text", "another"], tmp_path / "shards", service.model)
    encoder = Encoder.load(service.model)
    service.script = [(200, {}, rows_of(WIDTH + 1, 1))]
    with pytest.raises(ModelError, match=r"vectors of 8 .* found 1 vectors of 9"):
        encoder.encode(["a"])


def altered(change):
    def body(texts):
        found = answer(texts)
        found["data"][0]["embedding"] = change(found["data"][0]["embedding"])
        return found

    return body


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        *(
            (200, {}, body, message)
            for body, message in (
                (altered(lambda row: row[1:]), "another form"),
                (altered(lambda row: [float("nan"), *row[1:]]), "NaN or infinity"),
                (altered(lambda row: [1e300, *row[1:]]), "NaN or infinity"),
                (altered(lambda row: ["1", *row[1:]]), "another form"),
                (altered(lambda row: "AAAA"), "another form"),
                ({"data": [{"embedding": []}] * 3}, "another form"),
                ({"data": [{"embedding": [1, 2]}] * 2}, "found 2 vectors of 2"),
                (lambda texts: {"data": answer(texts)["data"][:1]}, "another form"),
                (
                    lambda texts: {"data": [one | {"index": 0} for one in answer(texts)["data"]]},
                    "another form",
                ),
                ({"data": None}, "another form"),
                ([], "another form"),
                (b"<html>", "expected JSON"),
            )
        ),
        (400, {}, {"error": "too long"}, r"answered 400 \(too long\)"),
        (401, {}, {}, "RETRIEVER_API_KEY"),
        (404, {}, {}, "name of the model"),
        (413, {}, {}, "max-length"),
        (307, {"Location": "http://127.0.0.1/elsewhere"}, {}, "redirects to .*elsewhere"),
        (429, {"Retry-After": "121"}, b"", r"answered 429 \(1 tries\)"),
    ],
)
def test_permanent_server_error_is_refused_without_retry(service, status, headers, body, message):
    service.script = [(status, headers, body)]
    with pytest.raises(ModelError, match=message):
        Encoder.load(service.model)
    assert len(service.asked) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_temporary_server_errors_are_retried_up_to_six_times(service, status):
    service.script = [(status, {}, {})] * 5
    np.testing.assert_allclose(Encoder.load(service.model).probes, list(map(vector, PROBES)))
    assert len(service.asked) == 6
    service.script = [(status, {}, {"error": {"message": "loading the model"}})] * 6
    with pytest.raises(ModelError, match=rf"{status} \(loading the model\) \(6 tries\)"):
        Encoder.load(service.model)
    assert len(service.asked) == 12


def test_retry_waits_as_long_as_server_asks(service):
    start = time.monotonic()
    service.script = [(429, {"Retry-After": "1"}, {}), (503, {"Retry-After": "soon"}, {})]
    Encoder.load(service.model)
    assert 0.9 <= time.monotonic() - start < 5


def test_a_request_that_fails_ends_the_waiting_of_others(service):
    encoder = Encoder.load(service.model)
    # Both requests are on their way before an answer comes.
    service.delay = 0.2
    service.script = [(429, {"Retry-After": "100"}, {}), (400, {}, {"error": "no"})]
    start = time.monotonic()
    with pytest.raises(ModelError):
        encoder.encode([f"text {i}" for i in range(128)])
    assert time.monotonic() - start < 5


def test_the_key_comes_from_the_environment_and_is_not_stored(service, tmp_path, monkeypatch):
    # Somebody else's key stays at home. A proxy is for other machines.
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai-alone")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    Encoder.load(service.model)
    assert "Authorization" not in service.headers[-1]
    assert remote.Address.parse("https://api.openai.com/v1#m").key() == "for-openai-alone"
    monkeypatch.setenv("RETRIEVER_API_KEY", "secret-key")
    with Index.create(tmp_path / "index", service.model) as index:
        index.add(["apples"])
    assert service.headers[-1]["Authorization"] == "Bearer secret-key"
    files = [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
    assert files
    assert not any(b"secret-key" in path.read_bytes() for path in files)


def test_a_server_that_does_not_answer_is_waited_for_only_if_it_did_before(service, monkeypatch):
    encoder = Encoder.load(service.model)
    monkeypatch.setattr(remote, "_TIMEOUT", 0.05)
    service.delay = 0.3
    with pytest.raises(ModelError, match=r"timed out.* \(6 tries\)"):
        encoder.encode(["a"])
    monkeypatch.setattr(remote, "_FIRST_WAIT", 5)
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"cannot be reached .*refused"):
        Encoder.load("http://127.0.0.1:9/v1#m")
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    ("model", "refusal"),
    [
        *(
            (model, "expected a URL and the name of the model there")
            for model in (
                *("http://host/v1", "http://host/v1#", "http:///v1#m"),
                *("http://host:x/v1#m", "http://host:0/v1#m", "http://a b/#m"),
            )
        ),
        ("http://me:pass@host/v1#m", "would store them"),
        ("http://host/v1?key=1#m", "would store them"),
    ],
)
def test_an_address_without_host_or_name_or_with_a_secret_is_refused(model, refusal):
    with pytest.raises(ConfigError, match=refusal):
        Encoder.load(model)


def test_settings_of_layers_are_refused(service):
    with pytest.raises(ConfigError, match=r"layers: .* behind a URL"):
        Encoder.load(f"{service.model}::lc:0,6")
    with pytest.raises(ConfigError, match="no layers"):
        _ = Encoder.load(service.model).depth


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("two words", 2), ("検索する", 4), ("internationalization", 2), ("  ", 0), ("a検b", 3)],
)
def test_texts_are_counted_without_the_tokenizer_of_the_model(service, text, pieces):
    encoder = Encoder.load(f"{service.model}::max-length=8")
    (found,) = encoder.tokenize([text])
    assert len(found) == pieces
    spans = encoder.piece_offsets(text)
    assert "".join(text[start:stop] for start, stop in spans) == "".join(text.split())
    (cut,) = encoder.truncate(["one 2 3 4 5 6 7 8 nine"])
    assert (cut.text, len(cut)) == ("one 2 3 4 5 6 7 8", 8)


def test_a_request_is_that_of_the_official_client(service):
    openai = pytest.importorskip("openai")
    Encoder.load(service.model)
    with openai.OpenAI(base_url=service.url, api_key="key") as official:
        found = official.embeddings.create(
            model="letters", input=list(PROBES), encoding_format="float"
        )
    assert service.asked[0] == service.asked[1]
    by_index = sorted(found.data, key=lambda one: one.index)
    assert [one.embedding for one in by_index] == list(map(vector, PROBES))
