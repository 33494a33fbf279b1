"""One shard: from the documents of a stretch of the corpus to its file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes import NewDocument, Stage, StoredHead, no_progress
from retriever.documents import AnyDocument, as_document, document_fault
from retriever.documents.passages import OnLong
from retriever.encoders.encoder import Encoder
from retriever.encoders.spec import LoadedEncoder
from retriever.errors import DamagedIndexError, SourceError
from retriever.indexing.add import CommitSettings, Indexer
from retriever.indexing.creation import COMPUTED
from retriever.indexing.report import Progress
from retriever.indexing.shards.plan import Plan
from retriever.indexing.shards.shard import (
    Shard,
    ShardContent,
    ShardFacts,
    documents_json,
    read_documents,
    shard_path,
    write_shard,
)

# A shard ends at this many bytes of JSON, so that memory is bounded where documents are long.
_BLOCK_BYTES = 32 * 2**20
# A shard is committed once.
_WHOLE = CommitSettings(passages=2**62, characters=2**62, seconds=math.inf)


@dataclass(frozen=True, slots=True)
class Block:
    """The documents of one shard.

    Attributes:
        number: of the shard.
        first: place in the source of its first document, counted from 1.
        documents: how many there are.
        lines: what `documents_json` gave of them.
        digest: SHA-256 of `lines`.
        reached: bytes of the source that were read when the block was complete.
    """

    number: int
    first: int
    documents: int
    lines: bytes
    digest: str
    reached: int


def blocks(source: Iterable[AnyDocument], shard_size: int) -> Iterator[Block]:
    """Cut a stream of documents into the blocks of shards, one of them in memory at a time.

    Raises:
        SourceError: a document cannot be stored; what `source` raises.
    """
    number, first = 0, 1
    lines: list[bytes] = []
    size = 0

    def block() -> Block:
        whole, reached = b"".join(lines), getattr(source, "bytes_read", 0)
        return Block(number, first, len(lines), whole, hashlib.sha256(whole).hexdigest(), reached)

    for one in source:
        document = as_document(one)
        fault = document_fault(document)
        if fault is not None:
            raise SourceError(f"document {document.id!r}: {fault}")
        lines.append(documents_json([document]))
        size += len(lines[-1])
        if len(lines) == shard_size or size >= _BLOCK_BYTES:
            yield block()
            number, first, lines, size = number + 1, first + len(lines), [], 0
    if lines:
        yield block()


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What a process needs to make shards.

    Attributes:
        folder: of the shards.
        plan: of the folder.
        on_long: ``error`` refuses texts longer than the window; else as the plan says.
        device: torch device of the model.
        download: whether models may be downloaded.
    """

    folder: Path
    plan: Plan
    on_long: OnLong
    device: str | None = None
    download: bool = False

    def load(self) -> LoadedEncoder:
        """Load the encoder of the plan; raises what `Encoder.from_spec` raises."""
        return Encoder.from_spec(
            self.plan.encoder,
            device=self.device,
            download=self.download,
            asked=self.plan.encoder.model,
        )

    def found(self, block: Block) -> ShardFacts | None:
        """What is known of a shard that is there already; None if it is not.

        Raises:
            DamagedIndexError: it is damaged.
            SourceError: it was made from other documents.
        """
        path = shard_path(self.folder, block.number)
        if not path.exists():
            return None
        facts = Shard(self.folder, self.plan, block.number).facts
        if facts.source != block.digest:
            raise SourceError(
                f"{path}: was made from other documents than the source has now, from document "
                f"{block.first:,} on; encode the changed source into another folder"
            )
        return facts

    def make(self, block: Block, encoder: LoadedEncoder, progress: Progress) -> ShardFacts:
        """Make a shard, unless it is there: the scheduler may repeat what a dead process did.

        Raises:
            SourceError: a document is longer than the window and `on_long` is ``error``; what
                `found` raises.
            StorageError: the disk is full or cannot be written.
        """
        try:
            known = self.found(block)
        except DamagedIndexError:
            known = None
        if known is not None:
            return known
        collected = _Collected()
        indexer = Indexer(
            collected,
            lambda: encoder,
            self.plan.make_analyzer(),
            self.plan.passages,
            spec=self.plan.encoder,
            on_long=self.on_long,
            commit=_WHOLE,
            progress=progress,
        )
        indexer.add(read_documents(block.lines))
        content = collected.content or ShardContent(
            [], np.empty((0, encoder.spec.dimensions), np.float32), []
        )
        facts = ShardFacts(
            number=block.number,
            first=block.first,
            last=block.first + block.documents - 1,
            source=block.digest,
            documents=len(content.documents),
            passages=len(content.vectors),
            split=indexer.report.split,
            truncated=indexer.report.truncated,
            pieces=indexer.report.pieces,
            computed=collected.recorded.get(COMPUTED, []),
        )
        write_shard(self.folder, self.plan, facts, content)
        return facts


class _Collected:
    """A `Committer` that keeps the one commit of a shard, so that shards are cut like an index."""

    def __init__(self) -> None:
        self.content: ShardContent | None = None
        self.recorded: dict[str, Any] = {}

    def setting(self, key: str, default: Any = None) -> Any:
        return self.recorded.get(key, default)

    def record(self, key: str, value: Any) -> None:
        self.recorded[key] = value

    def heads(self, ids: Sequence[str]) -> dict[str, StoredHead]:
        return {}

    def touch(self, ids: Sequence[str]) -> None:
        pass

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        self.content = ShardContent(documents, vectors, list(tokens))
        return False

    def delete(self, ids: Iterable[str]) -> int:
        return 0

    def keep(self, digests: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        pass

    def kept(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        return {}

    def forget(self) -> None:
        pass

    def merge(self, stage: Stage = no_progress) -> int:
        return 0

    def settle(self, added: int, stage: Stage = no_progress) -> int:
        return 0
