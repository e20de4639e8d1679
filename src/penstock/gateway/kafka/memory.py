"""The memory of all connections: what requests under way and replies not sent yet may take together."""

from __future__ import annotations

from collections.abc import Callable


class MemoryBudget:
    """Counts bytes against a limit. Whoever finds it full waits, and is called when there is room again."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        """Whether nothing new should be taken on."""
        return self.used >= self._bytes_max

    @property
    def left(self) -> int:
        """How many bytes there is room for."""
        return max(self._bytes_max - self.used, 0)

    def take(self, size: int) -> None:
        """Count bytes. What is under way already may go past the limit: stopping it would free nothing."""
        self.used += size

    def give(self, size: int) -> None:
        """Count bytes no more, and call those who wait if there is room."""
        self.used -= size
        while self._waiting and self.used < self._bytes_max:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            waiter()

    def wait(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` once there is room."""
        self._waiting[waiter] = None

    def forget(self, waiter: Callable[[], None]) -> None:
        """It waits no more."""
        self._waiting.pop(waiter, None)
