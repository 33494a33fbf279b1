"""How waiting jobs are divided into batches."""

from __future__ import annotations

import asyncio
import threading
import time

from retriever.service.batching import Batcher


def test_threads_share_what_waits_while_a_batch_runs():
    sizes, gate = [], threading.Event()

    def run(jobs):
        sizes.append(len(jobs))
        assert gate.wait(30)
        return list(jobs)

    async def until(count):
        end = time.monotonic() + 30
        while len(sizes) < count:
            assert time.monotonic() < end
            await asyncio.sleep(0.001)

    async def scenario():
        batcher = Batcher(run, size=64, wait=0.0, queue=100, threads=2, observe=lambda weight: None)
        batcher.start()
        answers = [asyncio.create_task(batcher.submit(n)) for n in range(4)]
        await until(1)
        answers += [asyncio.create_task(batcher.submit(n)) for n in range(4, 16)]
        await until(2)
        assert batcher.waiting == 4
        gate.set()
        assert await asyncio.gather(*answers) == list(range(16))
        await batcher.stop()

    asyncio.run(scenario())
    assert sizes == [4, 8, 4]
