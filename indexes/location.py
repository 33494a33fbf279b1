"""Where an index is: a folder, or a URL of a database or server."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from indexes.errors import ConfigError, MissingExtraError
from indexes.folder.store import FolderStore
from indexes.protocol import Store

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def open_store(location: str | Path | Store) -> Store:
    """Return the store at a location without opening it or connecting to it.

    Args:
        location: a folder; a URL; or a store, which is returned.

    Raises:
        ConfigError: the URL is malformed, no store has its scheme, or it is ``:memory:``.
        MissingExtraError: the library that speaks to it is not installed.
    """
    if not isinstance(location, str | Path):
        return location
    if str(location) == ":memory:":
        raise ConfigError(
            ":memory:: expected a folder, since an index is on disk; for a temporary index use "
            "tempfile.TemporaryDirectory()"
        )
    url = _URL.match(location) if isinstance(location, str) else None
    if url is None:
        return FolderStore(location)
    match url[1].lower():
        case "milvus" | "milvus+lite" as scheme:
            _require_library("pymilvus", "an index in Milvus", '"layer-retriever[milvus]"')
            if scheme == "milvus+lite":
                _require_library("milvus_lite", "a file of Milvus Lite", "milvus-lite")
            from indexes.milvus.store import MilvusStore

            return MilvusStore(str(location))
        case "postgresql" | "postgres":
            _require_library("psycopg", "an index in PostgreSQL", '"layer-retriever[postgres]"')
            from indexes.postgres.store import PostgresStore

            return PostgresStore(str(location))
        case scheme:
            # A URL can hold a password.
            raise ConfigError(
                f"{scheme}://…: expected a folder, or a URL whose scheme is postgresql, milvus or "
                f"milvus+lite, found {scheme}"
            )


def _require_library(library: str, feature: str, package: str) -> None:
    if find_spec(library) is None:
        raise MissingExtraError(
            f"{feature} needs {library.replace('_', '-')}, which is not installed: pip install "
            f"{package}"
        )
