"""Readers that wait for the next write to a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.core.clock import Clock


class Waiter(Protocol):
    """Is told of a write; a future is one. It must not raise: others wait behind it."""

    def done(self) -> bool:
        """Whether it was told already, or was cancelled."""
        ...

    def set_result(self, result: None, /) -> None:
        """Something was written."""
        ...


class Arrivals:
    """Readers that are told of the next write: those that are in `waiting`, until they leave it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waiting: set[Waiter] = set()

    def watch(self, waiter: Waiter) -> None:
        """Complete `waiter` when something is written next."""
        self.waiting.add(waiter)

    def unwatch(self, waiter: Waiter) -> None:
        """Stop watching for `waiter`."""
        self.waiting.discard(waiter)

    def tell(self) -> None:
        """Complete all waiters: something was written."""
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `is_there` holds. Returns False after the timeout."""
        deadline = self._clock.monotonic() + timeout_s
        while not is_there():
            arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.add(arrival)
            try:
                async with asyncio.timeout(max(deadline - self._clock.monotonic(), 0)):
                    await arrival
            except TimeoutError:
                return is_there()
            finally:
                self.waiting.discard(arrival)
        return True
