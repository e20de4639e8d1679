"""Waiters for new messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.core.clock import Clock


class Followers:
    """Futures that complete when a subject has new messages."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Future[None]] = set()
        self.told = 0  # how many times they were
        self.closed = False  # new waits return at once

    def tell(self) -> None:
        """Wake the waiters."""
        self.told += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Wake all waits, and let new ones return at once: the node stops."""
        self.closed = True
        self.tell()

    async def wait(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a condition. Returns False on timeout."""
        deadline = self._clock.monotonic() + timeout_s
        while not is_there() and not self.closed:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(told)
            try:
                async with asyncio.timeout(max(deadline - self._clock.monotonic(), 0)):
                    await told
            except TimeoutError:
                return is_there()
            finally:
                self._waiting.discard(told)
        return is_there()
