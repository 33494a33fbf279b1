"""The official client of OpenAI against a running service."""

from __future__ import annotations

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
