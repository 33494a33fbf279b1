"""Shards made by several processes of this machine, each with its own encoder."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from retriever.errors import RetrieverError
from retriever.indexing.shards.making import Block, ShardJob
from retriever.indexing.shards.shard import ShardFacts


def made_by_workers(
    job: ShardJob, todo: Iterator[Block], workers: int, encoded: Callable[[int], object]
) -> Iterator[tuple[Block, ShardFacts]]:
    """Make shards in processes; each block goes to the first that is free.

    In memory are one block for each process and the next one. However this ends, no process stays.

    Args:
        job: for all of them.
        todo: the blocks, read while the processes work.
        workers: maximum number of processes.
        encoded: called with the number of passages that were just encoded.

    Yields:
        Each block with the facts of its shard, as they are done.

    Raises:
        RetrieverError: a process ended, or could not make a shard; finished shards stay.
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
                if isinstance(message, int):
                    encoded(message)
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
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(job, theirs, place, workers), daemon=True)
    with _interrupts_blocked():
        process.start()
    theirs.close()
    return ours, process


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal; those started here leave it to their parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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


class _Sent:
    """Progress that is sent to the parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def window(self, passages: int) -> None:
        """Say nothing."""

    def encoded(self, passages: int, pieces: int) -> None:
        """Send the number of passages."""
        self._connection.send(passages)
