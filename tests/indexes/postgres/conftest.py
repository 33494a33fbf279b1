"""Puts the samples in this folder on the path of its tests; an empty index in the shared server."""

from __future__ import annotations

import pytest
from store_samples import SETTINGS

from indexes import Store, open_store


@pytest.fixture
def store(postgres_url: str) -> Store:
    """An empty index."""
    made = open_store(postgres_url)
    made.create(SETTINGS)
    return made
