"""The documents of a folder of shards, ready for any index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from retriever.errors import ConfigError, SourceError
from retriever.indexing.ready_documents import ReadyDocument
from retriever.indexing.shards.plan import Plan
from retriever.indexing.shards.shard import Shard


def read_shards(
    folder: str | Path, numbers: Iterable[int] | None = None
) -> Iterator[ReadyDocument]:
    """The documents of shards with their passages, vectors and terms, as `Index.add` takes them.

    One shard is in memory at a time; it is compared with its checksum before its first document is
    given.

    Args:
        folder: that `encode_shards` made.
        numbers: of the shards, counted from 0, in the order in which they are read; None for all,
            in the order of the source.

    Raises:
        SourceError: the folder holds no shards, or `numbers` is None and some are not made yet.
        ConfigError: there is no shard of that number.
        DamagedIndexError: a shard is missing or altered; the documents before it are given.
    """
    folder = Path(folder)
    plan = Plan.read(folder)
    if numbers is None:
        if plan.shards is None:
            raise SourceError(
                f"{folder}: not all shards are made; run the same `retriever encode` again, which "
                "makes the rest, or name those to read"
            )
        numbers = range(plan.shards)
    for number in numbers:
        if number < 0 or (plan.shards is not None and number >= plan.shards):
            last = "" if plan.shards is None else f" to {plan.shards - 1}"
            raise ConfigError(f"{folder}: expected shards from 0{last}, found {number}")
        yield from Shard(folder, plan, number).documents()
