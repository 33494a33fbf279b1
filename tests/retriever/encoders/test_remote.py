"""An encoder behind a URL, against a small server on this machine."""

from __future__ import annotations

import contextlib
import email.utils
import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from retriever.encoders.remote import Address, Client, RemoteModel, _retry_after

WIDTH = 8


def vector(text: str) -> list[float]:
    """Letters counted, so that texts with the same letters are near."""
    found = [1.0] * WIDTH
    for letter in text.lower():
        found[ord(letter) % WIDTH] += 1.0
    return found


def answer(texts: list[str]) -> dict[str, Any]:
    """In an order of its own, as the field `index` allows."""
    data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(texts)]
    return {"object": "list", "data": data[::-1]}


@dataclass
class Service:
    """What the server does next, and what it was asked.

    Attributes:
        script: (status, headers, body) of the next answers; a callable gets the texts. Afterwards
            it answers as it should.
        delay: seconds before each answer.
    """

    url: str = ""
    script: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    delay: float = 0.0
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def model(self) -> str:
        return f"{self.url}#letters"

    def reply(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            self.asked.append({"path": path, **body})
            self.headers.append(headers)
            step = self.script.pop(0) if self.script else (200, {}, answer)
        if self.delay:
            time.sleep(self.delay)
        with self.lock:
            self.at_once -= 1
        status, sent, content = step
        return status, sent, content(body["input"]) if isinstance(content, Callable) else content


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("RETRIEVER_API_KEY", "OPENAI_API_KEY", "RETRIEVER_URLS", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Client.__init__, "__kwdefaults__", {"first_wait": 0.001, "timeout": 5.0})
    made = Service()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, content = made.reply(self.path, body, dict(self.headers))
            out = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(out)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def expected(texts: list[str]) -> np.ndarray:
    rows = np.array([vector(text) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_texts_get_the_vectors_of_the_server_in_their_order(service: Service) -> None:
    texts = [f"text {'x' * i}" for i in range(300)]
    encoder = Encoder.load(f"{service.model}::query-prompt=q: ")
    np.testing.assert_allclose(encoder.encode(texts), expected(texts), atol=1e-6)
    assert encoder.spec.dimensions == WIDTH
    assert {one["path"] for one in service.asked} == {"/v1/embeddings"}
    assert {one["model"] for one in service.asked} == {"letters"}
    assert max(len(one["input"]) for one in service.asked) <= 64
    encoder.encode(["words"], query=True)
    assert service.asked[-1]["input"] == ["q: words"]


def test_several_requests_are_in_flight(service: Service) -> None:
    encoder = Encoder.load(service.model)
    service.delay = 0.05
    encoder.encode([f"text {i}" for i in range(64 * 4)])
    assert service.most_at_once > 1


def test_an_index_is_made_searched_and_opened_again(service: Service, tmp_path) -> None:
    texts = ["apples", "pears", " ".join(f"plum{i}" for i in range(40))]
    with Index.create(tmp_path / "index", f"{service.model}::max-length=16") as index:
        report = index.add(texts)
        assert report.split == 1
        best = index.search("pears", k=1, mode="dense")[0]
        assert best.passage == "pears"
        assert best.dense == pytest.approx(1, abs=1e-6)
    with Index.open(tmp_path / "index", service.model) as index:
        assert index.search("pears", k=1, mode="dense")[0].passage == "pears"


def test_a_stored_url_is_used_only_if_the_user_names_it(
    service: Service, tmp_path, monkeypatch
) -> None:
    Index.create(tmp_path / "index", service.model).close()
    service.asked.clear()
    with Index.open(tmp_path / "index") as index:
        with pytest.raises(ModelError, match="only if you ask for it: add --model"):
            index.search("pears", mode="dense")
        assert index.search("pears", mode="bm25") == []
        assert not service.asked
        monkeypatch.setenv("RETRIEVER_URLS", f"http://other/v1 {service.url}/")
        index.search("pears", mode="dense")
    with pytest.raises(EncoderMismatchError, match="other"):
        Index.open(tmp_path / "index", f"{service.url}#other")


def test_reindexing_and_importing_ask_no_stored_url(service: Service, tmp_path) -> None:
    with Index.create(tmp_path / "index", service.model) as index:
        index.add(["apples"])
        index.export(tmp_path / "out.jsonl", vectors=True)
        service.asked.clear()
        with pytest.raises(ModelError, match="only if you ask for it"):
            index.reindex("::max-length=16")
        with pytest.raises(ModelError, match="only if you ask for it"):
            import_documents(tmp_path / "copy", tmp_path / "out.jsonl")
        assert not service.asked
    import_documents(tmp_path / "copy", tmp_path / "out.jsonl", service.model)
    with Index.open(tmp_path / "copy", service.model) as copy:
        assert copy.search("apples", k=1)[0].dense == pytest.approx(1, abs=1e-6)


def test_neither_torch_nor_transformers_are_imported(service: Service) -> None:
    code = (
        "import sys\nfrom retriever import Encoder\n"
        f"assert Encoder.load({service.model!r}).encode(['a']).shape == (1, {WIDTH})\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_server_with_another_model_under_the_name_is_noticed(service: Service, tmp_path) -> None:
    Index.create(tmp_path / "index", service.model).close()

    def other(texts: list[str]) -> dict[str, Any]:
        found = answer(texts)
        for one in found["data"]:
            one["embedding"] = one["embedding"][1:] + one["embedding"][:1]
        return found

    with Index.open(tmp_path / "index", service.model) as index:
        service.script = [(200, {}, other)]
        with pytest.raises(EncoderMismatchError, match="has changed"):
            index.search("pears")
        wider = [{"index": i, "embedding": [1.0] * (WIDTH + 1)} for i in range(3)]
        service.script = [(200, {}, {"data": wider})]
        with pytest.raises(EncoderMismatchError, match="has changed"):
            index.search("pears")


def altered(texts: list[str], change: Callable[[list[float]], Any]) -> dict[str, Any]:
    found = answer(texts)
    found["data"][0]["embedding"] = change(found["data"][0]["embedding"])
    return found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda texts: altered(texts, lambda row: row[1:]), "different lengths"),
        (lambda texts: altered(texts, lambda row: [float("nan"), *row[1:]]), "NaN or infinity"),
        (lambda texts: altered(texts, lambda row: [1e300, *row[1:]]), "NaN or infinity"),
        (lambda texts: altered(texts, lambda row: ["1", *row[1:]]), "other values than numbers"),
        (lambda texts: altered(texts, lambda row: "AAAA"), "different lengths"),
        (lambda texts: {"data": answer(texts)["data"][1:]}, "2 vectors"),
        (lambda texts: {"data": [{**one, "index": 0} for one in answer(texts)["data"]]}, "index"),
        (lambda texts: {"data": None}, "field data"),
        (lambda texts: [], "field data"),
        (b"<html>", "expected JSON"),
    ],
)
def test_answers_that_are_no_vectors_are_refused(service: Service, body, message) -> None:
    client = Client(Address.parse(service.model))
    service.script = [(200, {}, body)]
    if message == "2 vectors":
        message = "found 2"
    with pytest.raises(ModelError, match=message):
        client.vectors(["a", "b", "c"], WIDTH)
    assert len(service.asked) == 1


def test_a_vector_of_another_width_than_before_is_refused(service: Service) -> None:
    encoder = Encoder.load(service.model)
    service.script = [
        (200, {}, lambda texts: {"data": [{"index": 0, "embedding": [1.0] * (WIDTH + 1)}]})
    ]
    with pytest.raises(ModelError, match=r"vectors of 8 .* found vectors of 9"):
        encoder.encode(["a"])


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_passing_failures_are_tried_again(service: Service, status: int) -> None:
    client = Client(Address.parse(service.model))
    service.script = [(status, {}, {}), (status, {}, {})]
    np.testing.assert_allclose(client.vectors(["a"])[0], vector("a"))
    assert len(service.asked) == 3


def test_failures_that_do_not_pass_end_with_what_the_server_says(service: Service) -> None:
    client = Client(Address.parse(service.model))
    service.script = [(503, {}, {"error": {"message": "loading the model"}})] * 6
    with pytest.raises(ModelError, match=r"503 \(loading the model\) \(6 tries\)"):
        client.vectors(["a"])
    assert len(service.asked) == 6


def test_the_wait_that_the_server_asks_for_is_kept(service: Service) -> None:
    service.script = [(429, {"Retry-After": "1"}, {})]
    client = Client(Address.parse(service.model))
    start = time.monotonic()
    client.vectors(["a"])
    assert time.monotonic() - start >= 0.9


def test_a_wait_can_be_a_date() -> None:
    date = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert _retry_after(date) == pytest.approx(60, abs=2)
    assert _retry_after("soon") is None


def test_a_wait_of_hours_is_not_kept(service: Service) -> None:
    service.script = [(429, {"Retry-After": "7200"}, {})]
    with pytest.raises(ModelError, match="answered 429"):
        Client(Address.parse(service.model)).vectors(["a"])


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "too long"),
        (401, "RETRIEVER_API_KEY"),
        (404, "name of the model"),
        (413, "max-length"),
    ],
)
def test_refusals_are_not_tried_again(service: Service, status: int, message: str) -> None:
    service.script = [(status, {}, {"error": "the text is too long"})]
    with pytest.raises(ModelError, match=message):
        Client(Address.parse(service.model)).vectors(["a"])
    assert len(service.asked) == 1


def test_a_redirect_is_refused_and_gets_neither_texts_nor_the_key(
    service: Service, monkeypatch
) -> None:
    monkeypatch.setenv("RETRIEVER_API_KEY", "secret")
    service.script = [(307, {"Location": f"{service.url}/elsewhere"}, {})]
    with pytest.raises(ModelError, match=r"redirects to .*elsewhere"):
        Client(Address.parse(service.model)).vectors(["a"])
    assert len(service.asked) == 1


def test_the_key_comes_from_the_environment_and_is_not_stored(
    service: Service, tmp_path, monkeypatch
) -> None:
    # Somebody else's key stays at home.
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai-alone")
    Client(Address.parse(service.model)).vectors(["a"])
    assert "Authorization" not in service.headers[-1]
    assert Address.parse("https://api.openai.com/v1#m").key() == "for-openai-alone"
    monkeypatch.setenv("RETRIEVER_API_KEY", "secret-key")
    with Index.create(tmp_path / "index", service.model) as index:
        index.add(["apples"])
    assert service.headers[-1]["Authorization"] == "Bearer secret-key"
    files = [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
    assert files
    assert not any(b"secret-key" in path.read_bytes() for path in files)


def test_a_server_that_is_not_there_is_not_waited_for() -> None:
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"cannot be reached .*refused"):
        RemoteModel(Client(Address.parse("http://127.0.0.1:9/v1#m"), first_wait=5))
    assert time.monotonic() - start < 2


def test_a_server_that_does_not_answer_in_time_is_given_up(service: Service) -> None:
    client = Client(Address.parse(service.model), timeout=0.05, first_wait=0.001)
    client.vectors(["a"])
    service.delay = 0.3
    with pytest.raises(ModelError, match=r"timed out.* \(6 tries\)"):
        client.vectors(["a"])


def test_a_proxy_is_for_other_machines(service: Service, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert len(Client(Address.parse(service.model)).vectors(["a"])) == 1


@pytest.mark.parametrize(
    "model",
    ["http://host/v1", "http://host/v1#", "http:///v1#m", "http://host:x/v1#m", "http://a b/#m"],
)
def test_an_address_without_host_or_name_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="name of the model"):
        Encoder.load(model)


@pytest.mark.parametrize("model", ["http://me:pass@host/v1#m", "http://host/v1?key=1#m"])
def test_secrets_in_an_address_are_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="would store them"):
        Encoder.load(model)


def test_settings_of_layers_are_refused(service: Service) -> None:
    with pytest.raises(ConfigError, match=r"layers: .* behind a URL"):
        Encoder.load(f"{service.model}::lc:0,6")
    with pytest.raises(ConfigError, match="no layers"):
        _ = Encoder.load(service.model).depth


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("two words", 2), ("検索する", 4), ("internationalization", 2), ("  ", 0), ("a検b", 3)],
)
def test_texts_are_counted_without_the_tokenizer_of_the_model(
    service: Service, text: str, pieces: int
) -> None:
    encoder = Encoder.load(service.model)
    (found,) = encoder.tokenize([text])
    assert len(found) == pieces
    spans = encoder.piece_offsets(text)
    assert "".join(text[start:stop] for start, stop in spans) == "".join(text.split())


def test_a_request_is_that_of_the_official_client(service: Service) -> None:
    openai = pytest.importorskip("openai")
    Client(Address.parse(service.model)).vectors(["one", "two"])
    with openai.OpenAI(base_url=service.url, api_key="key") as client:
        found = client.embeddings.create(
            model="letters", input=["one", "two"], encoding_format="float"
        )
    assert service.asked[0] == service.asked[1]
    by_index = sorted(found.data, key=lambda one: one.index)
    assert [one.embedding for one in by_index] == [vector("one"), vector("two")]


def test_shards_refuse_a_model_that_has_changed(service: Service, tmp_path: Path) -> None:
    encode_shards(["a text", "another"], tmp_path / "shards", service.model)
    asked = len(service.asked)
    assert import_documents(tmp_path / "my.index", tmp_path / "shards").added == 2
    assert len(service.asked) == asked
    with Index.open(tmp_path / "my.index", service.model) as index:
        assert index.search("another", k=1)[0].passage == "another"
    changed = {"data": [{"index": i, "embedding": [1.0, *[0.0] * (WIDTH - 1)]} for i in range(3)]}
    service.script = [(200, {}, changed)]
    with pytest.raises(EncoderMismatchError, match="gives other vectors than when the shards"):
        encode_shards(["a text", "another"], tmp_path / "shards", service.model)
