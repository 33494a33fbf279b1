"""Fixtures shared by the tests of encoders: small models and encoders of them."""

from __future__ import annotations

from functools import cache, partial

import pytest

from tests.retriever.encoders.plain import Plain
from tests.retriever.encoders.sentence_models import load as load_encoder
from tests.retriever.encoders.sentence_models import model_with


@pytest.fixture(scope="module")
def plain(folders):
    """Function that returns the `Plain` reference of a model, built once."""
    return cache(lambda name: Plain(folders(name)))


@pytest.fixture(scope="module")
def load(folders):
    """Function that loads an encoder by model name and settings, once."""
    return cache(lambda name, settings="": load_encoder(folders(name), settings))


@pytest.fixture
def make(folders, tmp_path):
    """Function that writes sentence-transformers models on a BERT (`model_with`)."""
    return partial(model_with, folders("bert"), tmp_path / "sentences")
