"""The official clients of OpenAI and Cohere, and schemathesis, against a running service."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from retriever import Index

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from tests.retriever.service.servers import running

TEXTS = ["red apples", "sailing boats need wind"]


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "fruit") as index:
        index.add(TEXTS)
        yield index


def test_openais_client_gets_embeddings_in_both_formats(index):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    with (
        running(index, token="s3cret") as (_, port),
        openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="s3cret", max_retries=0
        ) as client,
    ):
        expected = index.encoder.encode(TEXTS)
        found = client.embeddings.create(input=TEXTS, model="index", encoding_format="float")
        np.testing.assert_allclose([one.embedding for one in found.data], expected, atol=1e-7)
        # Without a format the client asks for base64 and decodes it.
        (only,) = client.embeddings.create(input=TEXTS[0], model="index").data
        np.testing.assert_allclose(only.embedding, expected[0], atol=1e-7)
        assert [one.id for one in client.models.list()] == ["index"]
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
            client.embeddings.create(input="a", model="gpt")
        with pytest.raises(openai.AuthenticationError, match="token"):
            client.with_options(api_key="wrong").models.list()


@pytest.mark.parametrize("version", ["Client", "ClientV2"])
def test_coheres_client_reranks(index, version):
    cohere = pytest.importorskip("cohere", reason="cohere is not installed")
    httpx = pytest.importorskip("httpx", reason="cohere's client needs httpx")
    with running(index) as (_, port), httpx.Client() as transport:
        address = f"http://127.0.0.1:{port}"
        client = getattr(cohere, version)("any", base_url=address, httpx_client=transport)
        found = client.rerank(model="index", query="wind in sails", documents=TEXTS, top_n=1)
    assert [one.index for one in found.results] == [1]
    scores = index.encoder.encode(TEXTS) @ index.encoder.encode(["wind in sails"], query=True)[0]
    assert found.results[0].relevance_score == pytest.approx(float(scores[1]))


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.* holds? neither text nor title", "ignore:filter. no document")
@pytest.mark.filterwarnings("ignore:facets. no document")
def test_no_request_of_schemathesis_fails_or_hangs(index):
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    with running(index, writable=True) as (_, port):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run"),
                f"http://127.0.0.1:{port}/openapi.json",
                *("--max-examples", "10", "--request-timeout", "60", "--no-color"),
                # It cannot send the examples, which are JSON Lines.
                *("--phases", "coverage,fuzzing,stateful"),
                "--checks",
                "not_a_server_error,status_code_conformance,content_type_conformance",
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) generated", done.stdout)[1]) > 300
