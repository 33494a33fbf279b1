"""Empty indexes in one file or server."""

from __future__ import annotations

import os
from itertools import count

import pytest

from indexes import Store, open_store
from tests.indexes.store_samples import SETTINGS

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def milvus_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a server or of a file of Milvus Lite, up to the name of an index."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    if "RETRIEVER_MILVUS" in os.environ:
        return f"{os.environ['RETRIEVER_MILVUS']}/shared_{os.getpid()}_"
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed")
    return f"milvus+lite://{tmp_path_factory.mktemp('milvus')}/shared.db?index="


@pytest.fixture
def store(milvus_file: str) -> Store:
    """An empty index."""
    empty = open_store(f"{milvus_file}t{next(_NUMBERS)}")
    empty.create(SETTINGS)
    return empty
