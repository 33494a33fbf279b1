"""Batches: requests that arrive together run together, in a thread.

The first request of a batch waits a few milliseconds for further ones. While all threads are busy,
batches grow. A request whose client has disconnected is dropped, and a batch for which nobody waits
any more ends. A full queue refuses requests.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from fastapi import Request

from retriever.search.engine import cancellable
from retriever.service.limits import ServiceError

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedJob(Generic[Job, Result]):
    job: Job
    weight: int
    future: asyncio.Future[Result]


class Batcher(Generic[Job, Result]):
    """Runs jobs in threads, in batches of at most the weight `size` or of one job."""

    def __init__(
        self,
        run: Callable[[Sequence[Job]], Sequence[Result | Exception]],
        *,
        size: int,
        wait: float,
        queue: int,
        threads: int,
        observe: Callable[[int], None],
    ) -> None:
        """Prepare a batcher.

        Args:
            run: returns the result of each job, or the exception that it failed with.
            size: maximum weight of a batch.
            wait: seconds that the first job of a batch waits for further jobs.
            queue: maximum weight of the waiting jobs.
            threads: number of threads.
            observe: called with the weight of each batch.
        """
        self._run = run
        self._size = size
        self._wait = wait
        self._queue = queue
        self._threads = threads
        self._observe = observe
        self._jobs: deque[_QueuedJob[Job, Result]] = deque()
        self.waiting = 0
        self._running = 0
        self._arrived = asyncio.Event()
        self._pool = ThreadPoolExecutor(threads, "retriever-batch")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to run jobs; call it inside an event loop."""
        self._tasks = [asyncio.create_task(self._run_batches()) for _ in range(self._threads)]

    async def stop(self) -> None:
        """Stop after the last request; jobs that still wait are cancelled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for queued in self._jobs:
            queued.future.cancel()
        self._jobs.clear()
        self._pool.shutdown()

    async def result(self, request: Request, job: Job, weight: int = 1) -> Result:
        """Run a job for a request whose body was read; cancel it if the client disconnects."""
        disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            with self._enqueue(job, weight) as future:
                await asyncio.wait((future, disconnect), return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    raise ServiceError(499, "the client has gone")
                return future.result()
        finally:
            disconnect.cancel()

    async def submit(self, job: Job, weight: int = 1) -> Result:
        """Run a job without a request; cancelling the call removes a waiting job from the queue."""
        with self._enqueue(job, weight) as future:
            return await future

    @contextmanager
    def _enqueue(self, job: Job, weight: int) -> Iterator[asyncio.Future[Result]]:
        """Add a job to the queue, and remove it at the end of the block."""
        if self.waiting and self.waiting + weight > self._queue:
            raise ServiceError(
                503, f"{self.waiting} queries or texts are waiting already; try again in a second"
            )
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        queued = _QueuedJob(job, weight, future)
        self._jobs.append(queued)
        self.waiting += weight
        self._arrived.set()
        try:
            yield future
        finally:
            future.cancel()
            if queued in self._jobs:
                self._jobs.remove(queued)
                self.waiting -= weight

    async def _run_batches(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if self.waiting < self._size:
                await asyncio.sleep(self._wait)
            batch = self._next_batch()
            if not batch:
                continue
            weight = sum(queued.weight for queued in batch)
            self._observe(weight)
            self._running += weight
            results: Sequence[Result | Exception]
            try:
                results = await loop.run_in_executor(self._pool, self._run_batch, batch)
            except Exception as error:
                results = [error] * len(batch)
            self._running -= weight
            for queued, result in zip(batch, results, strict=True):
                if queued.future.done():
                    continue
                if isinstance(result, Exception):
                    queued.future.set_exception(result)
                else:
                    queued.future.set_result(result)

    def _run_batch(self, batch: Sequence[_QueuedJob[Job, Result]]) -> Sequence[Result | Exception]:
        """Run jobs until every client has an answer, which may be a 504."""
        with cancellable(lambda: all(queued.future.done() for queued in batch)):
            return self._run([queued.job for queued in batch])

    def _next_batch(self) -> list[_QueuedJob[Job, Result]]:
        batch: list[_QueuedJob[Job, Result]] = []
        weight = 0
        most = self._size
        if self._running:
            # Threads share the work evenly, so that no client waits much longer than another.
            most = min(most, math.ceil((self._running + self.waiting) / self._threads))
        while self._jobs and (not batch or weight + self._jobs[0].weight <= most):
            queued = self._jobs.popleft()
            self.waiting -= queued.weight
            if not queued.future.done():
                batch.append(queued)
                weight += queued.weight
        if not self._jobs:
            self._arrived.clear()
        return batch


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def run_in_groups(
    jobs: Sequence[Job],
    key: Callable[[Job], Hashable],
    run: Callable[[Sequence[Job]], Sequence[Result | Exception]],
) -> list[Result | Exception]:
    """Run the jobs with equal keys together; each has its result or the exception of its group."""
    groups: dict[Hashable, list[int]] = {}
    for position, job in enumerate(jobs):
        groups.setdefault(key(job), []).append(position)
    results: dict[int, Result | Exception] = {}
    for positions in groups.values():
        try:
            results |= zip(positions, run([jobs[i] for i in positions]), strict=True)
        except Exception as error:
            results |= dict.fromkeys(positions, error)
    return [results[position] for position in range(len(jobs))]
