"""Fixtures shared by the tests of indexes."""

from __future__ import annotations

import pytest

from tests.retriever.index.collection_samples import Collection, choice_of, word_vectors


@pytest.fixture
def model(tmp_path):
    """An encoder of a window of twelve words, in its text form."""
    return choice_of(word_vectors(tmp_path / "words.txt"))


@pytest.fixture
def sample_collection(tmp_path):
    """A collection of several hundred documents."""
    return Collection.make(tmp_path)
