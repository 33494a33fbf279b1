"""Encoding a corpus into shards: in this process, in several of this machine, or on Ray."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from indexes import writer_lock
from indexes.files import LOCK_FILE, storage_errors
from indexes.platforms import block_interrupts, limit_to_core_share
from retriever.documents.analyzer import Analyzer, AnalyzerSettings
from retriever.documents.document import AnyDocument
from retriever.documents.passages import Context, OnLong, PassageSettings, check_on_long
from retriever.encoders.encoder import Encoder, ModelChoice, probe_lists
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import same_vectors
from retriever.errors import (
    ConfigError,
    DamagedIndexError,
    EncoderMismatchError,
    RetrieverError,
    SourceError,
    StorageError,
    require_extra,
)
from retriever.index.indexing.run import NoProgress, ShardProgress
from retriever.index.transfer.shards import (
    Block,
    Plan,
    ShardFacts,
    ShardJob,
    blocks,
    is_shards,
    shard_path,
)

_SHARD_SIZE = 10_000
_CONNECT_SECONDS = 5.0


@dataclass(slots=True)
class EncodedShards:
    """Counts of what `encode_shards` did.

    Attributes:
        shards: how many the folder holds.
        made: how many of them were made now.
        damaged: one line for each shard that was damaged and made again.
        documents, passages: in all shards.
        split, truncated: documents that became several passages, or lost their end.
        dimensions: of the vectors.
    """

    shards: int = 0
    made: int = 0
    damaged: list[str] = field(default_factory=list)
    documents: int = 0
    passages: int = 0
    split: int = 0
    truncated: int = 0
    dimensions: int = 0


def encode_shards(
    source: Iterable[AnyDocument],
    folder: str | Path,
    model: str | Path | EncoderSettings = "",
    *,
    device: str | None = None,
    download: bool = False,
    analyzer: AnalyzerSettings | None = None,
    on_long: OnLong | None = None,
    context: Context | None = None,
    shard_size: int | None = None,
    workers: int | None = None,
    ray: str | None = None,
    progress: ShardProgress | None = None,
) -> EncodedShards:
    """Encode a corpus into a folder of numbered shards, which `import_documents` imports.

    A shard holds what an index would: ids, texts, metadata, passages, vectors and the terms of
    BM25. It appears complete or not at all. The same call resumes: shards that are there are
    read and compared with their checksums and with the source, and what is missing or damaged is
    made. Settings that are not given are those of the folder's plan, or the defaults.

    Args:
        source: the documents, as `Index.add` takes them, read once as a stream; the same documents
            in the same order each time. The last document with an id replaces earlier ones.
        folder: does not exist, is empty, or holds shards.
        model: the encoder; see `Index.create`.
        device: None uses a GPU if there is one.
        download: allow downloads.
        analyzer: of the terms. An index with another one analyzes the texts itself.
        on_long: ``split``, ``truncate``, or ``error``, which refuses texts longer than the window.
        context: ``title``, ``headings`` or ``none``; see `PassageSettings`.
        shard_size: maximum number of documents of a shard, 10,000 by default; one with more than
            32 MiB of text is smaller.
        workers: number of processes, each with an encoder of its own and its share of the cores;
            None or 1 encodes in this one. With `ray` the number of tasks; None takes one for each
            GPU, or else for each node. A program that asks for more than 1 needs the usual guard,
            ``if __name__ == "__main__":``.
        ray: encode on the Ray cluster at this address: ``auto``, ``local`` or ``HOST:PORT``. All
            nodes have the folder and the model under the same names.
        progress: receives the progress; of other processes when a shard is finished.

    Raises:
        ConfigError: the folder was begun with other settings, or no cluster answers.
        SourceError: the source has changed since, or a document cannot be stored, or is longer
            than the window with ``error``; what `source` raises. Finished shards stay.
        EncoderMismatchError: the model behind a URL has changed since.
        IndexLockedError: another process encodes into the folder.
        StorageError: the disk is full, or the folder cannot be written or holds other files.
        DamagedIndexError: the plan was altered.
        MissingExtraError: Ray is not installed.
        RetrieverError: a process died; finished shards stay.
        What `Encoder.load` raises.
    """
    folder = Path(folder)
    for name, value in (("shard_size", shard_size), ("workers", workers)):
        if value is not None and value < 1:
            raise ConfigError(f"{name}: expected 1 or more, found {value}")
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()} - {LOCK_FILE}
    if names and not is_shards(folder):
        raise StorageError(
            f"{folder}: holds {min(names)!r}, which is no part of shards; choose another folder"
        )
    with writer_lock(folder, what="the shards"):
        # What a killed process left.
        for left_over in folder.glob(".*.tmp"):
            left_over.unlink(missing_ok=True)
        choice = ModelChoice(model, device, download)
        passages: dict[str, Any] = {"on_long": None if on_long == "error" else on_long}
        passages["context"] = context
        plan, encoder = _planned(folder, choice, analyzer, passages, shard_size)
        job = ShardJob(folder, plan, check_on_long(on_long, plan.passages), device, download)
        progress = progress or NoProgress()
        report = EncodedShards(dimensions=plan.encoder.dimensions)
        todo = _missing(job, blocks(source, plan.shard_size), report, progress)
        new_shards: Iterator[tuple[Block, ShardFacts]]
        alone = ray is None and workers in (None, 1)
        if alone:
            new_shards = ((block, job.make(block, encoder, progress)) for block in todo)
        elif ray is None:
            del encoder
            new_shards = _by_workers(job, todo, workers or 1)
        else:
            new_shards = _on_ray(job, todo, ray, workers)
        for block, facts in new_shards:
            if not alone:
                progress.encoded(facts.passages, facts.pieces)
            report.made += 1
            _count(report, facts)
            progress.finished(block.bytes_read)
        _complete(folder, plan, report)
        return report


def _missing(
    job: ShardJob, todo: Iterable[Block], report: EncodedShards, progress: ShardProgress
) -> Iterator[Block]:
    """Yield the blocks whose shards are missing or damaged; count the others."""
    for block in todo:
        try:
            facts = job.read_existing(block)
        except DamagedIndexError as error:
            report.damaged.append(str(error))
            facts = None
        if facts is None:
            yield block
        else:
            _count(report, facts)
            progress.finished(block.bytes_read)


def _count(report: EncodedShards, facts: ShardFacts) -> None:
    report.shards += 1
    for name in ("documents", "passages", "split", "truncated"):
        setattr(report, name, getattr(report, name) + getattr(facts, name))


def _complete(folder: Path, plan: Plan, report: EncodedShards) -> None:
    """Write into the plan that all shards are there, unless they differ from the source's."""
    stored = {int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()}
    expected = set(range(report.shards))
    if missing := expected - stored:
        raise StorageError(
            f"{shard_path(folder, min(missing))}: another machine made it, but it is not here; "
            "choose a folder on a file system that all nodes share"
        )
    if surplus := stored - expected:
        raise SourceError(
            f"{shard_path(folder, min(surplus))}: the source ended before this shard and has "
            "fewer documents than before; encode the changed source into another folder"
        )
    complete = replace(plan, shards=report.shards, documents=report.documents)
    if complete != plan:
        complete.write(folder)


def _planned(
    folder: Path,
    choice: ModelChoice,
    analyzer: AnalyzerSettings | None,
    requested: Mapping[str, Any],
    shard_size: int | None,
) -> tuple[Plan, Encoder]:
    """Return the plan of a folder, or a new one, and the encoder that it names."""
    requested = {name: value for name, value in requested.items() if value is not None}
    if not is_shards(folder):
        encoder = choice.load()
        terms = Analyzer(analyzer)
        plan = Plan(
            encoder.spec,
            probe_lists(encoder),
            terms.settings,
            sorted(terms.stop_list),
            PassageSettings(**requested),
            shard_size or _SHARD_SIZE,
        )
        plan.write(folder)
        return plan, encoder
    plan = Plan.read(folder)
    passages = replace(plan.passages, **requested)
    plan.require(folder, {"analyzer": analyzer, "passages": passages, "shard_size": shard_size})
    if choice.encoder:
        encoder = choice.load()
        plan.require(folder, {"encoder": encoder.spec})
    else:
        encoder = Encoder.from_spec(
            plan.encoder, device=choice.device, download=choice.download, requested_model=None
        )
    probes = getattr(encoder, "probes", None)
    if probes is not None and not same_vectors(plan.probes, probes):
        raise EncoderMismatchError(
            f"{folder}: {plan.encoder.model} gives other vectors than when the shards were begun: "
            "the model behind that name has changed; encode into another folder"
        )
    return plan, encoder


def _by_workers(
    job: ShardJob, todo: Iterator[Block], workers: int
) -> Iterator[tuple[Block, ShardFacts]]:
    """Make shards in processes, none of which stays; each block goes to the first that is free."""
    idle: list[Connection] = []
    busy: dict[Connection, Block] = {}
    processes: dict[Connection, BaseProcess] = {}
    block = next(todo, None)
    try:
        while block is not None or busy:
            while block is not None and len(busy) < workers:
                if idle:
                    connection = idle.pop()
                else:
                    connection, process = _start(job, len(processes), workers)
                    processes[connection] = process
                busy[connection] = block
                connection.send(block)
                block = next(todo, None)
            ready = wait([*busy])
            for connection in [connection for connection in busy if connection in ready]:
                done = busy.pop(connection)
                try:
                    result = connection.recv()
                except (EOFError, ConnectionError):
                    raise _died(processes[connection], done) from None
                if isinstance(result, RetrieverError):
                    raise result
                idle.append(connection)
                yield done, result
    finally:
        for connection, process in processes.items():
            connection.close()
            process.kill()
            process.join()


def _died(process: BaseProcess, block: Block) -> RetrieverError:
    process.join()
    code = process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return RetrieverError(
        f"process {process.pid} {how} while it encoded shard {block.number}; finished shards "
        "are kept: run the same command again, with fewer --workers if memory was too small"
    )


def _start(job: ShardJob, place: int, workers: int) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(job, theirs, place, workers), daemon=True)
    # Ctrl-C reaches all processes of a terminal; those started here leave it to their parent.
    with block_interrupts():
        process.start()
    theirs.close()
    return ours, process


def _work(job: ShardJob, connection: Connection, place: int, workers: int) -> None:
    """Make shards until the parent has no more or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_to_core_share(place, workers)
    while True:
        try:
            block = connection.recv()
        except (EOFError, OSError):
            # The parent closed its end, or is gone, perhaps in the middle of a block.
            return
        result = _make_shard(job, block)
        with suppress(ConnectionError):
            connection.send(result)


def _make_shard(job: ShardJob, block: Block) -> ShardFacts | RetrieverError:
    """Make a shard, or return the error that prevents it; a process keeps its encoder."""
    try:
        return job.make(block, job.load(), NoProgress())
    except RetrieverError as error:
        return error


def _on_ray(
    job: ShardJob, todo: Iterator[Block], address: str, workers: int | None
) -> Iterator[tuple[Block, ShardFacts]]:
    """Make shards on a Ray cluster, which repeats what a lost node was doing."""
    require_extra("ray", "encoding on Ray", "ray")
    with _cluster(address):
        import ray
        from ray.exceptions import RayError

        size, share = _shares(ray.nodes(), workers)
        make = ray.remote(**share, max_retries=-1, max_calls=0)(_make_shard)
        job_reference = ray.put(replace(job, folder=job.folder.resolve()))
        running: dict[Any, Block] = {}
        block = next(todo, None)
        try:
            while block is not None or running:
                while block is not None and len(running) < size:
                    running[make.remote(job_reference, block)] = block
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
    """Return how many shards are made at once, and what each takes: a GPU or cores of a node."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = int(sum(node.get("GPU", 0) for node in alive))
    if gpus:
        size = workers or gpus
        return size, {"num_gpus": min(1.0, gpus / size)}
    cores = [int(node["CPU"]) for node in alive if node.get("CPU", 0) >= 1] or [1]
    each = min(cores) if workers is None else max(1, sum(cores) // workers)
    return workers or sum(own // each for own in cores), {"num_cpus": min(each, max(cores))}


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    """Connect to a cluster, unless the program is connected already."""
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
