"""The memory budget of all connections: requests in flight and responses not sent yet."""

from __future__ import annotations

from collections.abc import Callable


class MemoryBudget:
    """Counts bytes against a limit, and calls waiting connections when there is memory again."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used = 0
        self.waiting: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, so that no new request should start."""
        return self.used >= self._bytes_max

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return max(self._bytes_max - self.used, 0)

    def take(self, size: int) -> None:
        """Counts bytes. A request in flight may exceed the limit: stopping it would free nothing."""
        self.used += size

    def give(self, size: int) -> None:
        """Returns bytes to the budget, and calls waiters while it is not full."""
        self.used -= size
        if self.waiting:
            self.wake()

    def wake(self) -> None:
        """Calls waiters while the limit is not reached."""
        while self.waiting and self.used < self._bytes_max:
            waiter = next(iter(self.waiting))
            del self.waiting[waiter]
            waiter()

    def wait(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` once there is room."""
        self.waiting[waiter] = None

    def forget(self, waiter: Callable[[], None]) -> None:
        """Removes a waiter."""
        self.waiting.pop(waiter, None)
