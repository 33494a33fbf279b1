"""`retriever serve` as a process: commits of others, clients that leave, and SIGTERM."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
import urllib.request

import pytest

from retriever import CorpusReader, Document, Index

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from tests.retriever.documents.source_samples import write
from tests.retriever.index.collection_samples import word_vectors
from tests.retriever.service.servers import started

# A server with a slow stand-in for a reranker, so that a request takes a while.
SERVER = """
import sys, time
import numpy as np
import retriever.search.reranking as reranking
class Slow:
    reads_vectors = False
    def check(self, encoder): pass
    def score(self, query, vector, passages, vectors):
        print("working", flush=True)
        time.sleep(0.6)
        return np.zeros(len(passages), np.float32)
reranking.load_reranker = lambda folder, **_: Slow()
from cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def ask(port, **asked):
    body = json.dumps({"mode": "bm25", **asked}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/search", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)["results"][0]["hits"]


def test_a_process_serves_commits_of_others_and_drains_at_sigterm(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add([Document("1", "apples")])
        with started(tmp_path / "index", "--rerank", "any", program=SERVER) as (process, port):
            assert [hit["id"] for hit in ask(port, query="apples")] == ["1"]
            index.add([Document("2", "zebras")])
            assert [hit["id"] for hit in ask(port, query="zebras")] == ["2"]

            # The first two keep both threads busy; the third one's client leaves meanwhile.
            answers = []
            threads = [
                threading.Thread(
                    target=lambda: answers.append(ask(port, query="apples", rerank=True))
                )
                for _ in range(2)
            ]
            for thread in threads:
                thread.start()
                assert process.stdout.readline() == "working\n"
            body = json.dumps({"query": "zebras", "mode": "bm25", "rerank": True}).encode()
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(
                    b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    % len(body)
                    + body
                )
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            for thread in threads:
                thread.join()
            out, err = process.communicate(timeout=20)
    assert [[hit["id"] for hit in hits] for hits in answers] == [["1"], ["1"]]
    assert process.returncode == 0
    # Nobody worked for the client that left.
    assert out == ""
    # The encoder of this index is no model.
    assert err.splitlines() == [line for line in err.splitlines() if "only --mode bm25" in line]


def test_a_watched_folder_is_found_soon_after_each_change(tmp_path):
    pytest.importorskip("watchfiles")
    notes = tmp_path / "notes"
    write(notes / "a.txt", "apples")
    # A model that loads at once.
    with Index.create(tmp_path / "index", str(word_vectors(tmp_path / "words.txt"))) as index:
        index.add(CorpusReader(notes), remember=True)
    with started(tmp_path / "index", "--watch") as (_, port):
        for change, query, ids in [
            (lambda: write(notes / "b.txt", "plums"), "plums", ["b.txt"]),
            (lambda: write(notes / "a.txt", "pears"), "pears", ["a.txt"]),
            (lambda: (notes / "b.txt").unlink(), "plums", []),
        ]:
            change()
            saved = time.monotonic()
            while [hit["id"] for hit in ask(port, query=query)] != ids:
                # Two seconds, on a machine that has nothing else to do.
                assert time.monotonic() - saved < 10
                time.sleep(0.05)


def test_serve_refuses_open_host_without_token_and_used_port(retriever, tmp_path, fake_encoder):
    Index.create(tmp_path / "index").close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options, said in (
            (("--host", "0.0.0.0"), "--token"),
            (("--port", port), f"127.0.0.1:{port}: the service cannot listen there"),
        ):
            done = retriever("serve", tmp_path / "index", *options)
            assert (done.code, said in done.err) == (2, True)
