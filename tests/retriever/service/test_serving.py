"""The server of `retriever serve`: requests that never end, and the end of the service."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack

import pytest

from retriever import Index

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from retriever.service import serving
from tests.retriever.service.servers import running

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 150\r\n\r\n"


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add([{"id": "a", "text": "apples"}])
        yield index


def connected(stack, port, data=b""):
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
    client.sendall(data)
    return client


def answer_of(client):
    """All that the server sends until it closes the connection."""
    received = b""
    try:
        while part := client.recv(65_536):
            received += part
    except ConnectionError:
        pass
    return received


def status_of(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(HEAD + b"Connection: close\r\n\r\n")
        return int(answer_of(client).split(b" ")[1])


@pytest.mark.parametrize(
    "start",
    [
        HEAD + b"A: ",
        b"GET /",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ",
    ],
)
def test_oversized_request_head_closes_connection(index, start):
    with running(index) as (_, port), ExitStack() as stack:
        client = connected(stack, port, start)
        with pytest.raises(ConnectionError):
            client.sendall(b"x" * 100_000_000)
        assert status_of(port) == 200


@pytest.mark.parametrize("start", [HEAD, HEAD + b"\r\n", b""])
def test_unfinished_request_head_times_out(index, start):
    with running(index, {"head_seconds": 0.2}) as (_, port), ExitStack() as stack:
        client = connected(stack, port, start)
        begun = time.monotonic()
        answer_of(client)
        assert time.monotonic() - begun < 5


def test_connection_over_limit_gets_503(index):
    with running(index, {"connections": 8}) as (_, port), ExitStack() as stack:
        clients = [connected(stack, port, HEAD) for _ in range(7)]
        assert status_of(port) == 503
        clients[0].close()
        assert status_of(port) == 200


def test_half_of_the_files_that_may_be_open_are_for_indexes(monkeypatch):
    resource = pytest.importorskip("resource")
    for limit, expected in ((100, 50), (100_000, 512), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert serving._limit_connections(512) == expected


@pytest.mark.parametrize("method", [b"PUT /documents/x", b"POST /documents"])
def test_stalled_upload_times_out(index, caplog, method):
    with running(index, writable=True, timeout=0.5) as (_, port), ExitStack() as stack:
        stalled = connected(stack, port, method + b" HTTP/1.1\r\n" + BODY + b"{")
        assert b" 408 " in stalled.recv(1_000)
        # One that leaves is no fault of the service.
        connected(stack, port, method + b" HTTP/1.1\r\n" + BODY + b"{").close()
        assert status_of(port) == 200
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert len(index) == 1


def test_refused_upload_is_answered_while_client_sends(index):
    size = 3_000_000
    with running(index) as (_, port), ExitStack() as stack:
        client = connected(
            stack,
            port,
            b"PUT /documents/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % size,
        )
        for _ in range(30):
            client.sendall(b"x" * (size // 30))
        assert b"the service is read-only" in answer_of(client)


def test_malformed_http_logs_no_traceback(index, caplog):
    chunked = b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"
    with running(index) as (_, port), ExitStack() as stack:
        for start in (
            b"\x16\x03\x01\r\n\r\n",
            HEAD + b"\r\n\0garbage\r\n\r\n",
            b"PUT /documents/x" + chunked,
            b"GET /health" + chunked,
            b"POST /search" + chunked,
            HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        ):
            answer_of(connected(stack, port, start))
        assert status_of(port) == 200
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_the_service_ends_in_time_and_answers_what_it_did(index, fake_encoder, monkeypatch):
    encode, begun = type(fake_encoder).encode_pieces, threading.Semaphore(0)

    def slow(self, pieces, done):
        begun.release()
        time.sleep(0.1)
        return encode(self, pieces, done)

    monkeypatch.setattr(type(fake_encoder), "encode_pieces", slow)
    upload = "\n".join(
        json.dumps({"id": f"n{number}", "text": f"{number} " + "word " * 28})
        for number in range(10_000)
    ).encode()
    limits = {"drain": 2, "cut": 0.3}
    with running(index, limits, writable=True) as (server, port), ExitStack() as stack:
        client = connected(
            stack,
            port,
            b"POST /documents HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            % len(upload)
            + upload,
        )
        for _ in range(3):
            begun.acquire()
        server.should_exit, stopped = True, time.monotonic()
        head, _, body = answer_of(client).partition(b"\r\n\r\n")
    # One window of sixteen may have to end before.
    assert time.monotonic() - stopped < 2 + 4
    assert b" 503 " in head
    assert b"retry-after: 1" in head
    done = json.loads(body)["error"]["done"]
    assert 0 < done["added"] == len(index) - 1 < 10_000
    with running(index, writable=True) as (server, port), ExitStack() as stack:
        server.config.app.state.stopping.set()
        # What is unchanged makes no window.
        for text in (b"new", b"apples"):
            head = b"PUT /documents/a HTTP/1.1\r\nConnection: close\r\n" + BODY
            client = connected(stack, port, head + (b'{"text": "%s"}' % text).rjust(150))
            assert b"the service is stopping: 0 documents" in answer_of(client)
    assert index["a"].text == "apples"


def test_the_service_ends_although_an_upload_never_arrives(index, caplog):
    with running(index, {"drain": 0.2}, writable=True) as (server, port), ExitStack() as stack:
        clients = [
            connected(stack, port, line + b" HTTP/1.1\r\n" + BODY + b"{")
            for line in (b"POST /documents", b"PUT /documents/x", b"POST /search")
        ]
        while len(server.server_state.tasks) < len(clients):
            time.sleep(0.01)
        server.should_exit = True
        for client in clients:
            answer = answer_of(client)
            assert b" 503 " in answer
            assert b"the service is stopping" in answer
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
