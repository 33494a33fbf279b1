"""The connection to Milvus: requests, their limits, and errors of one line."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

from indexes.errors import (
    ClosedIndexError,
    ConfigError,
    MissingExtraError,
    RetrieverError,
    StorageError,
)
from indexes.milvus.location import Location

T = TypeVar("T")
Row = dict[str, Any]

MOST_RESULTS = 16_384
"""What a server gives at most of one search."""
# Rows of a request: the largest rows, times this, fit a message of 64 MB.
_INSERTED, _HEAVY, _LIGHT, _LISTED = 200, 500, 4000, 1000
_CONNECTING = 10.0
# pymilvus sends a ping every ten seconds, and Milvus Lite closes connections for that.
_QUIET = {"grpc_options": {"grpc.keepalive_time_ms": 2**31 - 1}}


def parts(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """The items in order, at most `size` at a time."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _insert(name: str, rows: list[Row], timeout: float, client: Any) -> None:
    client.insert(name, rows, timeout=timeout)


def _delete(name: str, where: str, timeout: float, client: Any) -> None:
    client.delete(name, filter=where, timeout=timeout)


def _query(
    name: str,
    where: str,
    fields: Sequence[str],
    timeout: float,
    options: dict[str, Any],
    client: Any,
) -> list[Row]:
    return list(
        client.query(name, filter=where, output_fields=list(fields), timeout=timeout, **options)
    )


# How many clients of this process have a file of Milvus Lite open.
_OPEN: Counter[str] = Counter()
_OPENING = threading.Lock()


class Connection:
    """One client, made at the first request; threads share it.

    Attributes:
        since: the server's time of the last write that reads must see; 0 for all that were done,
            for which a server waits some 200 milliseconds.

    Every method raises StorageError where Milvus cannot be reached or refuses a request, and
    ConfigError where it refuses the user.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._timeout = location.timeout
        self.since = 0
        self._client: Any = None
        self._process = 0
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Release the client; later requests raise ClosedIndexError."""
        with self._lock:
            client, self._client, self._closed = self._client, None, True
        if client is not None and self._process == os.getpid():
            with suppress(Exception):
                client.close()
            self._release()

    @property
    def client(self) -> Any:
        """The client; a forked child gets another.

        Raises:
            MissingExtraError: pymilvus or Milvus Lite is not installed.
        """
        with self._lock:
            if self._closed:
                raise ClosedIndexError(f"{self.location}: the index was closed; open it again")
            if self._client is None or self._process != os.getpid():
                self._client = self._connected()
                self._process = os.getpid()
            return self._client

    def version(self) -> str:
        """Of the server, as it says."""
        return str(self._call(lambda client: client.get_server_version()))

    def collections(self) -> list[str]:
        """The names of all collections."""
        return list(self._call(lambda client: client.list_collections()))

    def create(self, name: str, schema: Any, indexes: Any, **options: Any) -> None:
        """Make a collection and load it."""
        self._call(
            lambda client: client.create_collection(
                name, schema=schema, index_params=indexes, consistency_level="Strong", **options
            )
        )

    def request(self, do: Callable[[Any], T]) -> T:
        """What a function makes of the client."""
        return self._call(do)

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """Add rows, request by request."""
        for some in parts(rows, _INSERTED):
            self._write(name, partial(_insert, name, some, self._timeout))

    def delete(self, name: str, where: str) -> None:
        """Delete the rows that an expression selects."""
        # By key, so that it does not depend on what a server reads to evaluate the expression.
        keys = [row["row"] for row in self.stream(name, where, ["row"])]
        self.delete_keys(name, keys)

    def delete_keys(self, name: str, keys: Sequence[int]) -> None:
        """Delete rows by their primary keys."""
        for some in parts(keys, _LISTED):
            self._write(name, partial(_delete, name, f"row in {some}", self._timeout))

    def count(self, name: str, where: str, *, latest: bool = False) -> int:
        """How many rows an expression selects; see `query`."""
        found = self.query(name, where, ["count(*)"], latest=latest)
        return int(found[0]["count(*)"])

    def query(
        self, name: str, where: str, fields: Sequence[str], *, latest: bool = False
    ) -> list[Row]:
        """The rows that an expression selects; for some thousands at most.

        Args:
            name: of the collection.
            where: the expression.
            fields: of the rows.
            latest: see every write that was done before, by anyone; otherwise those up to `since`.
        """
        options = {"consistency_level": "Strong"} if latest else self._consistency()
        return self._call(partial(_query, name, where, fields, self._timeout, options))

    def among(
        self, name: str, column: str, values: Sequence[int], where: str, fields: Sequence[str]
    ) -> Iterator[Row]:
        """The rows whose value in a column is one of some, and that an expression selects."""
        for some in parts(values, _LISTED):
            yield from self.query(name, f"{column} in {some} and {where}", fields)

    def stream(self, name: str, where: str, fields: Sequence[str]) -> Iterator[Row]:
        """The rows that an expression selects, ascending by primary key, whatever their number."""
        size = _HEAVY if {"*", "vector"}.intersection(fields) else _LIGHT
        last: int | None = None
        # The two options make a server return the least primary keys. It then waits for all earlier
        # writes, as the collections are made to do.
        options = {"limit": size, "iterator": "True", "reduce_stop_for_best": "True"}
        while True:
            after = where if last is None else f"{where} and row > {last}"
            some = self._call(
                partial(_query, name, after, [*fields, "row"], self._timeout, options)
            )
            if not some:
                return
            yield from some
            last = max(row["row"] for row in some)

    def search(
        self,
        name: str,
        column: str,
        vectors: Sequence[Any],
        limit: int,
        where: str,
        fields: Sequence[str],
        parameters: dict[str, Any] | None = None,
    ) -> list[list[Row]]:
        """For each vector the rows of largest inner product, best first.

        Each row has the fields asked for, and the product as ``distance``.

        Args:
            name: of the collection.
            column: that holds the vectors.
            vectors: arrays, or mappings from dimension to number for sparse ones.
            limit: at most `MOST_RESULTS`.
            where: an expression; only rows that it selects.
            fields: of the rows.
            parameters: of the search structure.
        """
        found = self._call(
            lambda client: client.search(
                name,
                data=list(vectors),
                anns_field=column,
                limit=limit,
                filter=where,
                output_fields=list(fields),
                search_params={"metric_type": "IP", "params": parameters or {}},
                timeout=self._timeout,
                **self._consistency(),
            )
        )
        return [[{**hit["entity"], "distance": hit["distance"]} for hit in hits] for hits in found]

    def _consistency(self) -> dict[str, Any]:
        if not self.since:
            return {"consistency_level": "Strong"}
        return {"consistency_level": "Customized", "guarantee_timestamp": self.since}

    def _write(self, name: str, do: Callable[[Any], object]) -> None:
        self._call(do)
        # pymilvus keeps the time of a write for its level "Session", and tells it nowhere else.
        from pymilvus.client.ts_utils import get_collection_ts

        address = self.client._get_connection().server_address
        written = get_collection_ts(name, address, self.location.database)
        self.since = max(self.since, int(written or 0))

    def _call(self, do: Callable[[Any], T]) -> T:
        client = self.client
        try:
            return do(client)
        except Exception as error:
            raise self._translated(error) from None

    def _connected(self) -> Any:
        location = self.location
        if find_spec("pymilvus") is None:
            raise MissingExtraError(
                "an index in Milvus needs pymilvus, which is not installed: "
                'pip install "layer-retriever[milvus]"'
            )
        if location.file is not None and find_spec("milvus_lite") is None:
            raise MissingExtraError(
                "a file of Milvus Lite needs milvus-lite, which is not installed: "
                "pip install milvus-lite"
            )
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from pymilvus import MilvusClient

        # They print a stack of calls for each error that is raised here anyway.
        for name in ("pymilvus", "milvus_lite", "grpc._server"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        if location.file is not None and not location.file.parent.is_dir():
            raise StorageError(f"{location}: the folder {location.file.parent} does not exist")
        if location.file is not None:
            with _OPENING:
                _OPEN[location.uri] += 1
        try:
            client = MilvusClient(
                location.uri,
                token=location.credentials,
                db_name=location.database,
                timeout=min(_CONNECTING, location.timeout),
                **({} if location.file is None else _QUIET),
            )
            if location.file is not None:
                # A server loads them by itself, Milvus Lite does not.
                for name in client.list_collections():
                    client.load_collection(name)
            return client
        except Exception as error:
            self._release()
            raise self._translated(error) from None

    def _release(self) -> None:
        """Close the file of Milvus Lite after its last client, so that others can open it."""
        if self.location.file is not None:
            from milvus_lite.server_manager import server_manager_instance

            with _OPENING:
                _OPEN[self.location.uri] -= 1
                if not _OPEN[self.location.uri]:
                    server_manager_instance.release_server(self.location.uri)

    def _translated(self, error: Exception) -> RetrieverError:
        if isinstance(error, RetrieverError):
            return error
        from grpc import RpcError
        from pymilvus.exceptions import MilvusException

        match error:
            case MilvusException():
                reason = str(error.message)
            case RpcError():
                # pymilvus lets some pass, such as that of a request that takes too long.
                reason = str(error.code()) if hasattr(error, "code") else type(error).__name__
            case _:
                raise error
        reason = " ".join(reason.split())
        for secret in (self.location.credentials, self.location.token):
            if secret:
                reason = reason.replace(secret, "…")
        reason = reason if len(reason) <= 200 else f"{reason[:199]}…"
        where = str(self.location)
        lower = reason.lower()
        if "auth" in lower or "unauthenticated" in lower or "permission" in lower:
            return ConfigError(
                f"{where}: Milvus refuses the user or token ({reason}); correct the URL or "
                "MILVUS_TOKEN"
            )
        if "fail connecting" in lower:
            # pymilvus says the same in both cases.
            return StorageError(
                f"{where}: cannot connect to Milvus: no server answers at that address, or it "
                "refuses the user or token; correct the URL or MILVUS_TOKEN, or start the server"
            )
        if "local milvus failed" in lower:
            return StorageError(
                f"{where}: Milvus Lite cannot open the file; another process may have it open, and "
                "only one can"
            )
        return StorageError(f"{where}: Milvus failed: {reason or type(error).__name__}")
