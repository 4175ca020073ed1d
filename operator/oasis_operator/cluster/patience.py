"""Asking an API server that has too much to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oasis_operator.cluster.errors import TooManyRequestsError

Answer = TypeVar("Answer")


async def patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Asks until it is not refused for that reason: where a part of all requests is, a dozen in a
    row would never come through."""
    while True:
        try:
            return await ask()
        except TooManyRequestsError as error:
            await asyncio.sleep(error.retry_after)
