"""Requests that arrive together run as one batch, in a thread.

The first request of a batch waits a few milliseconds for others; while all threads are busy, more
of them come together. A request whose client has gone is left out, a batch for which nobody waits
any more ends, and a full queue refuses more.
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

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting(Generic[J, R]):
    job: J
    weight: int
    future: asyncio.Future[R]


class Batcher(Generic[J, R]):
    """Collects jobs and runs them in threads, in batches of weight `size` at most or of one job."""

    def __init__(
        self,
        run: Callable[[Sequence[J]], Sequence[R | Exception]],
        *,
        size: int,
        wait: float,  # seconds that the first job of a batch waits for others
        queue: int,  # maximum weight of the jobs that wait
        threads: int,
        observe: Callable[[int], None],
    ) -> None:
        self._run = run
        self._size = size
        self._wait = wait
        self._queue = queue
        self._threads = threads
        self._observe = observe
        self._jobs: deque[_Waiting[J, R]] = deque()
        self.waiting = 0
        self._running = 0
        self._arrived = asyncio.Event()
        self._pool = ThreadPoolExecutor(threads, "retriever-batch")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to run jobs; called inside an event loop."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._threads)]

    async def stop(self) -> None:
        """End, when no request is open any more; jobs that still wait are cancelled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._jobs:
            one.future.cancel()
        self._jobs.clear()
        self._pool.shutdown()

    async def result(self, request: Request, job: J, weight: int = 1) -> R:
        """The result of a job, given up if the client goes away; the request's body was read."""
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            with self._queued(job, weight) as future:
                await asyncio.wait((future, gone), return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    raise ServiceError(499, "the client has gone")
                return future.result()
        finally:
            gone.cancel()

    async def submit(self, job: J, weight: int = 1) -> R:
        """As `result`, for no request; cancelling the call takes a waiting job out of the queue."""
        with self._queued(job, weight) as future:
            return await future

    @contextmanager
    def _queued(self, job: J, weight: int) -> Iterator[asyncio.Future[R]]:
        """The result that a job will have; at the end of the block it waits no longer."""
        if self.waiting and self.waiting + weight > self._queue:
            raise ServiceError(
                503, f"{self.waiting} queries or texts are waiting already; try again in a second"
            )
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        one = _Waiting(job, weight, future)
        self._jobs.append(one)
        self.waiting += weight
        self._arrived.set()
        try:
            yield future
        finally:
            future.cancel()
            if one in self._jobs:
                self._jobs.remove(one)
                self.waiting -= weight

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if self.waiting < self._size:
                await asyncio.sleep(self._wait)
            batch = self._take()
            if not batch:
                continue
            weight = sum(one.weight for one in batch)
            self._observe(weight)
            self._running += weight
            results: Sequence[R | Exception]
            try:
                results = await loop.run_in_executor(self._pool, self._run_batch, batch)
            except Exception as error:
                results = [error] * len(batch)
            self._running -= weight
            for one, result in zip(batch, results, strict=True):
                if one.future.done():
                    continue
                if isinstance(result, Exception):
                    one.future.set_exception(result)
                else:
                    one.future.set_result(result)

    def _run_batch(self, batch: Sequence[_Waiting[J, R]]) -> Sequence[R | Exception]:
        """The results of jobs, computed until every client has an answer, such as a 504."""
        with cancellable(lambda: all(waiting.future.done() for waiting in batch)):
            return self._run([waiting.job for waiting in batch])

    def _take(self) -> list[_Waiting[J, R]]:
        batch: list[_Waiting[J, R]] = []
        weight = 0
        most = self._size
        if self._running:
            # Threads share the work evenly, so that no client waits much longer than others.
            most = min(most, math.ceil((self._running + self.waiting) / self._threads))
        while self._jobs and (not batch or weight + self._jobs[0].weight <= most):
            one = self._jobs.popleft()
            self.waiting -= one.weight
            if not one.future.done():
                batch.append(one)
                weight += one.weight
        if not self._jobs:
            self._arrived.clear()
        return batch


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def in_groups(
    jobs: Sequence[J],
    key: Callable[[J], Hashable],
    run: Callable[[Sequence[J]], Sequence[R | Exception]],
) -> list[R | Exception]:
    """What `run` returns for the jobs of each key together, or what it failed with."""
    groups: dict[Hashable, list[int]] = {}
    for place, job in enumerate(jobs):
        groups.setdefault(key(job), []).append(place)
    results: dict[int, R | Exception] = {}
    for places in groups.values():
        try:
            results |= zip(places, run([jobs[place] for place in places]), strict=True)
        except Exception as error:
            results |= dict.fromkeys(places, error)
    return [results[place] for place in range(len(jobs))]
