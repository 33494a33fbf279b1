"""Making shards: one from its documents, many in processes of this machine or on a Ray cluster."""

from __future__ import annotations

import hashlib
import logging
import math
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes import Committer, NewDocument, StoredHead
from retriever.documents import AnyDocument, as_document, document_fault
from retriever.documents.passages import OnLong
from retriever.encoders.encoder import Encoder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import (
    ConfigError,
    DamagedIndexError,
    RetrieverError,
    SourceError,
    require_extra,
)
from retriever.index.add import COMPUTED, CommitSettings, Indexer, NoProgress, Progress
from retriever.index.shards import (
    Plan,
    ShardFacts,
    documents_json,
    read_documents,
    read_shard,
    shard_path,
    write_shard,
)

_CONNECT_SECONDS = 5.0
# A shard ends at this many bytes of JSON, so that memory is bounded where documents are long.
_BLOCK_BYTES = 32 * 2**20
# A shard is committed once.
_WHOLE = CommitSettings(passages=2**62, characters=2**62, seconds=math.inf)


@dataclass(frozen=True, slots=True)
class Block:
    """The documents of one shard."""

    number: int
    first: int  # the place of the first one in the source, counted from 1
    documents: int
    lines: bytes  # as `documents_json`
    digest: str  # the SHA-256 of these
    reached: int  # bytes of the source that were read when the block was complete


def blocks(source: Iterable[AnyDocument], shard_size: int) -> Iterator[Block]:
    """Cut a stream of documents into the blocks of shards, one of them in memory at a time."""
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
    """What a process needs to make shards; `on_long` ``error`` refuses texts beyond the window."""

    folder: Path
    plan: Plan
    on_long: OnLong
    device: str | None = None
    download: bool = False

    def load(self) -> Encoder:
        """The encoder of the plan, loaded once in a process."""
        return _loaded(self.plan.encoder, self.device, self.download)

    def found(self, block: Block) -> ShardFacts | None:
        """What is known of a shard that is there already and sound; None if it is not there."""
        path = shard_path(self.folder, block.number)
        if not path.exists():
            return None
        facts, _ = read_shard(self.folder, self.plan, block.number)
        if facts.source != block.digest:
            raise SourceError(
                f"{path}: was made from other documents than the source has now, from document "
                f"{block.first:,} on; encode the changed source into another folder"
            )
        return facts

    def make(self, block: Block, encoder: Encoder, progress: Progress) -> ShardFacts:
        """Make a shard, unless it is there: the scheduler may repeat what a dead process did."""
        with suppress(DamagedIndexError):
            if (known := self.found(block)) is not None:
                return known
        collected = _Collected(encoder.spec.dimensions)
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
        facts = ShardFacts(
            number=block.number,
            first=block.first,
            last=block.first + block.documents - 1,
            source=block.digest,
            documents=len(collected.documents),
            passages=len(collected.vectors),
            split=indexer.report.split,
            truncated=indexer.report.truncated,
            pieces=indexer.report.pieces,
            computed=collected.recorded.get(COMPUTED, []),
        )
        made = collected.documents, collected.vectors, collected.terms
        write_shard(self.folder, self.plan, facts, *made)
        return facts


@lru_cache(maxsize=1)
def _loaded(spec: EncoderSpec, device: str | None, download: bool) -> Encoder:
    return Encoder.from_spec(spec, device=device, download=download, asked=spec.model)


class _Collected(Committer):
    """Keeps the one commit of a shard, so that shards are cut like an index."""

    def __init__(self, dimensions: int) -> None:
        self.documents: Sequence[NewDocument] = []
        self.vectors = np.empty((0, dimensions), np.float32)
        self.terms: Sequence[Sequence[str]] = []
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
        self.documents, self.vectors, self.terms = documents, vectors, list(tokens)
        return False

    def delete(self, ids: Iterable[str]) -> int:
        return 0


def made_by_workers(
    job: ShardJob, todo: Iterator[Block], workers: int, encoded: Callable[[int, int], object]
) -> Iterator[tuple[Block, ShardFacts]]:
    """Make shards in processes; each block goes to the first that is free.

    In memory are one block for each process and the next one. However this ends, no process stays.
    """
    idle: list[Connection] = []
    busy: dict[Connection, Block] = {}
    processes: dict[Connection, BaseProcess] = {}
    block = next(todo, None)
    try:
        while block is not None or busy:
            while block is not None and (idle or len(processes) < workers):
                if not idle:
                    connection, process = _start(job, len(processes), workers)
                    processes[connection] = process
                    idle.append(connection)
                connection = idle.pop()
                busy[connection] = block
                connection.send(block)
                block = next(todo, None)
            ready = wait([*busy])
            for connection in [one for one in busy if one in ready]:
                message = _received(connection, processes[connection], busy[connection])
                if isinstance(message, RetrieverError):
                    raise message
                if isinstance(message, tuple):
                    encoded(*message)
                else:
                    idle.append(connection)
                    yield busy.pop(connection), message
    finally:
        for connection, process in processes.items():
            connection.close()
            process.kill()
            process.join()


def _received(connection: Connection, process: BaseProcess, block: Block) -> Any:
    try:
        return connection.recv()
    except (EOFError, ConnectionError):
        process.join()
        code = process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise RetrieverError(
            f"process {process.pid} {how} while it encoded shard {block.number}; finished shards "
            "are kept: run the same command again, with fewer --workers if memory was too small"
        ) from None


def _start(job: ShardJob, place: int, workers: int) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    # Started by the first process otherwise, and starting it lets interrupts through again.
    resource_tracker.ensure_running()
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(job, theirs, place, workers), daemon=True)
    # Ctrl-C reaches all processes of a terminal; those started here leave it to their parent.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours, process


def _work(job: ShardJob, connection: Connection, place: int, workers: int) -> None:
    """Make shards until the parent has no more or is gone."""
    _take_share(place, workers)
    try:
        # Received first, so that the parent need not wait while the model is loaded.
        block = _next_block(connection)
        try:
            encoder = job.load()
            progress = _Sent(connection)
            while True:
                connection.send(job.make(block, encoder, progress))
                block = _next_block(connection)
        except RetrieverError as error:
            connection.send(error)
    except (EOFError, ConnectionError):
        # The parent closed its end, or is gone.
        return


def _next_block(connection: Connection) -> Block:
    """The next block; raises EOFError if there is none, or if the parent was stopped within it."""
    try:
        block: Block = connection.recv()
    except OSError as error:
        raise EOFError from error
    return block


def _take_share(place: int, workers: int) -> None:
    """Give this process its share of the cores: libraries count those that a process may use."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[place % len(cores) :: workers])
    else:
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))


class _Sent(NoProgress):
    """Progress that is sent to the parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def encoded(self, passages: int, pieces: int) -> None:
        self._connection.send((passages, pieces))


def made_on_ray(
    job: ShardJob, todo: Iterator[Block], address: str, workers: int | None
) -> Iterator[tuple[Block, ShardFacts]]:
    """Make shards on a Ray cluster, whose nodes all have the folder of the shards.

    What a node was doing when it was lost, Ray gives to another; a shard that it finished is found.
    """
    require_extra("ray", "encoding on Ray", "ray")
    with _cluster(address):
        import ray
        from ray.exceptions import RayError

        size, share = _shares(ray.nodes(), workers)
        make = ray.remote(**share, max_retries=-1, max_calls=0)(_made_by_node)
        there = ray.put(replace(job, folder=job.folder.resolve()))
        running: dict[Any, Block] = {}
        block = next(todo, None)
        try:
            while block is not None or running:
                while block is not None and len(running) < size:
                    running[make.remote(there, block)] = block
                    block = next(todo, None)
                [done], _ = ray.wait([*running])
                result = ray.get(done)
                if isinstance(result, RetrieverError):
                    raise result
                yield running.pop(done), result
        except RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise RetrieverError(
                f"Ray gave up ({reason}); finished shards are kept: run the same command again"
            ) from error


def _shares(nodes: Sequence[Mapping[str, Any]], workers: int | None) -> tuple[int, dict[str, Any]]:
    """How many shards are made at once, and what each takes: a GPU, or all cores of a node."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = int(sum(node.get("GPU", 0) for node in alive))
    if gpus:
        size = workers or gpus
        return size, {"num_gpus": min(1.0, gpus / size)}
    cores = [int(node["CPU"]) for node in alive if node.get("CPU", 0) >= 1] or [1]
    each = min(cores) if workers is None else max(1, sum(cores) // workers)
    return workers or sum(own // each for own in cores), {"num_cpus": min(each, max(cores))}


def _made_by_node(job: ShardJob, block: Block) -> ShardFacts | RetrieverError:
    """A shard, or an error that is no fault of the machine; a process keeps its encoder."""
    try:
        return job.make(block, job.load(), NoProgress())
    except RetrieverError as error:
        return error


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    """A connection to a cluster, or the one that the program has."""
    # Read when ray is imported.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        if address not in ("auto", "local"):
            # Ray itself would try for minutes.
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"--ray {address}: no Ray cluster answers ({reason[:200]}); start one with `ray start "
            "--head`, or use --ray local"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()
