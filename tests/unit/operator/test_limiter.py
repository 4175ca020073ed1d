from __future__ import annotations

import asyncio

from oasis_operator.cluster.limiter import Limiter, Priority


async def test_a_burst_passes_at_once() -> None:
    limiter = Limiter(rate=0.001, burst=3)
    async with asyncio.timeout(1):
        for _ in range(3):
            await limiter.take(Priority.STATUS)


async def test_specs_go_before_statuses_that_came_earlier() -> None:
    limiter = Limiter(rate=200, burst=1)
    await limiter.take(Priority.SPEC)
    order: list[str] = []

    async def take(name: str, priority: Priority) -> None:
        await limiter.take(priority)
        order.append(name)

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for name in ("status-1", "status-2"):
            tasks.create_task(take(name, Priority.STATUS))
        for name in ("spec-1", "spec-2"):
            tasks.create_task(take(name, Priority.SPEC))
    assert order == ["spec-1", "spec-2", "status-1", "status-2"]


async def test_the_rate_bounds_what_passes() -> None:
    limiter = Limiter(rate=100, burst=1)
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(11):
        await limiter.take(Priority.SPEC)
    assert loop.time() - start >= 0.09


async def test_a_pause_holds_everybody_back() -> None:
    limiter = Limiter(rate=1000, burst=1000)
    loop = asyncio.get_running_loop()
    start = loop.time()
    limiter.pause(0.05)
    await limiter.take(Priority.SPEC)
    assert loop.time() - start >= 0.04


async def test_who_gave_up_takes_no_token() -> None:
    limiter = Limiter(rate=20, burst=1)
    await limiter.take(Priority.SPEC)
    gone = asyncio.create_task(limiter.take(Priority.SPEC))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(2):
        await limiter.take(Priority.STATUS)
