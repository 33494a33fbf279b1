"""Puts the samples in this folder on the path of its tests; empty indexes in one file.

Each index is that of a tenant, so that the collections are made once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from milvus_samples import SETTINGS

from indexes import Store, open_store

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def milvus_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an index in a file of Milvus Lite that stays open."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    if "RETRIEVER_MILVUS" in os.environ:
        yield f"{os.environ['RETRIEVER_MILVUS']}/shared_{os.getpid()}"
        return
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed")
    url = f"milvus+lite://{tmp_path_factory.mktemp('milvus')}/shared.db"
    held = open_store(f"{url}?tenant=held")
    held.create(SETTINGS)
    reader = held.reader()
    yield url
    reader.close()


@pytest.fixture
def store(milvus_file: str) -> Store:
    """An empty index."""
    made = open_store(f"{milvus_file}?tenant=t{next(_NUMBERS)}")
    made.create(SETTINGS)
    return made


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    """The URL of an index in a file that nothing has opened."""
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed")
    return f"milvus+lite://{tmp_path}/own.db"
