"""An empty index in the shared server."""

from __future__ import annotations

import pytest

from indexes import Store, open_store
from tests.indexes.store_samples import SETTINGS


@pytest.fixture
def store(postgres_url: str) -> Store:
    """An empty index."""
    postgres_store = open_store(postgres_url)
    postgres_store.create(SETTINGS)
    return postgres_store
