"""Shards made on the machines of a Ray cluster, by Ray Data."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from indexes import storage_errors, whole_file
from retriever import errors
from retriever.encoders.spec import LoadedEncoder
from retriever.errors import ConfigError, RetrieverError, StorageError, require_extra
from retriever.indexing.report import NoProgress
from retriever.indexing.shards.making import Block, ShardJob
from retriever.indexing.shards.shard import ShardFacts

# Where blocks wait for the nodes, inside the folder of the shards.
WAITING = "waiting"
# Ray Data's tasks; with more shards than this, a task makes several.
_MOST_TASKS = 10_000
_CONNECT_SECONDS = 5.0


def made_on_ray(
    job: ShardJob, todo: Iterator[Block], address: str, workers: int | None
) -> Iterator[tuple[Block, ShardFacts]]:
    """Make shards on a Ray cluster, whose nodes all have the folder of the shards.

    All blocks are first written into that folder, so that the nodes read them from there. What a
    node was doing when it was lost, Ray gives to another; a shard that it finished is found.

    Args:
        job: for all nodes.
        todo: the blocks.
        address: of the cluster: ``auto``, ``local`` or ``HOST:PORT``.
        workers: number of actors; None takes one for each GPU, else one for each node.

    Yields:
        Each block, without its documents, with the facts of its shard, as they are done.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: no cluster answers.
        StorageError: the folder is not one that all nodes share.
        RetrieverError: a shard cannot be made, or Ray gives up; finished shards stay.
    """
    require_extra("ray", "encoding on Ray", "ray", "pyarrow", "pandas")
    with _cluster(address):
        waiting: dict[int, Block] = {}
        with _folder(job.folder / WAITING) as folder:
            for block in todo:
                with whole_file(_lines_file(folder, block.number), "the documents") as new:
                    new.write_bytes(block.lines)
                waiting[block.number] = replace(block, lines=b"")
            for facts in _facts(job, [*waiting.values()], workers) if waiting else ():
                yield waiting[facts.number], facts


def _facts(job: ShardJob, waiting: Sequence[Block], workers: int | None) -> Iterator[ShardFacts]:
    import ray
    import ray.data
    from ray.exceptions import RayError

    items = [{"block": json.dumps({**asdict(one), "lines": None})} for one in waiting]
    tasks = min(len(items), _MOST_TASKS)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        made = ray.data.from_items(items, override_num_blocks=tasks).map_batches(
            _Maker,
            fn_constructor_args=(replace(job, folder=job.folder.resolve()),),
            batch_size=1,
            batch_format="numpy",
            **_actors(ray, workers),
        )
        for row in made.iter_rows():
            result: dict[str, Any] = json.loads(row["result"])
            if "error" in result:
                kind: type[RetrieverError] = getattr(errors, result["error"])
                raise kind(result["message"])
            yield ShardFacts(**result)
    except RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise RetrieverError(
            f"Ray gave up ({reason}); finished shards are kept: run the same command again"
        ) from error


def _actors(ray: Any, workers: int | None) -> dict[str, Any]:
    """How many actors there are, and what each takes: a GPU, or all cores of a node."""
    pool = ray.data.ActorPoolStrategy
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if gpus:
        size = workers or gpus
        return {"compute": pool(size=size), "num_gpus": min(1.0, gpus / size)}
    cores = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1] or [1]
    each = min(cores) if workers is None else max(1, sum(cores) // workers)
    size = workers or sum(own // each for own in cores)
    return {"compute": pool(size=size), "num_cpus": each}


class _Maker:
    """An actor that makes shards with one encoder."""

    def __init__(self, job: ShardJob) -> None:
        self._job = job
        self._encoder: LoadedEncoder | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        return {"result": [json.dumps(self._result(one)) for one in batch["block"]]}

    def _result(self, text: str) -> dict[str, Any]:
        """The facts of a shard, or an error that is no fault of the machine."""
        known = json.loads(text)
        try:
            # Here, since Ray would take an error of the constructor for a dead actor.
            self._encoder = self._encoder or self._job.load()
            folder = self._job.folder / WAITING
            lines = _read_lines(_lines_file(folder, known["number"]), known["digest"])
            block = Block(**{**known, "lines": lines})
            return asdict(self._job.make(block, self._encoder, NoProgress()))
        except RetrieverError as error:
            return {"error": type(error).__name__, "message": str(error)}


def _lines_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.jsonl"


def _read_lines(path: Path, digest: str) -> bytes:
    try:
        lines = path.read_bytes()
    except FileNotFoundError:
        lines = b""
    if hashlib.sha256(lines).hexdigest() != digest:
        raise StorageError(
            f"{path}: missing or incomplete on {os.uname().nodename}; choose a folder on a file "
            "system that all nodes share"
        )
    return lines


@contextmanager
def _folder(folder: Path) -> Iterator[Path]:
    with storage_errors(folder):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    """A connection to a cluster, or the one that the program has."""
    if address.startswith("ray://"):
        raise ConfigError(
            f"--ray {address}: Ray Data does not run over Ray Client; run the command on a machine "
            "of the cluster, with --ray auto"
        )
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
