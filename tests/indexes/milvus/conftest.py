"""Puts the samples in this folder on the path of its tests; empty indexes in one file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from store_samples import SETTINGS

from indexes import Store, open_store

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def milvus_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a file of Milvus Lite that stays open, up to the name of an index."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    if "RETRIEVER_MILVUS" in os.environ:
        yield f"{os.environ['RETRIEVER_MILVUS']}/shared_{os.getpid()}_"
        return
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed")
    url = f"milvus+lite://{tmp_path_factory.mktemp('milvus')}/shared.db?index="
    held = open_store(f"{url}held")
    held.create(SETTINGS)
    reader = held.reader()
    yield url
    reader.close()


@pytest.fixture
def store(milvus_file: str) -> Store:
    """An empty index."""
    made = open_store(f"{milvus_file}t{next(_NUMBERS)}")
    made.create(SETTINGS)
    return made


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    """The URL of an index in a file that nothing has opened."""
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed")
    return f"milvus+lite://{tmp_path}/own.db"
