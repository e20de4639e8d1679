"""Measures the lag of the event loop, and detects jumps of the machine's clock."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from penstock.core.clock import Clock
from penstock.core.probe import Durations

INTERVAL_S: Final = 0.1
BLOCKED_S: Final = 1.0
BLOCKED_AT_START_S: Final = 10.0  # modules are imported then, and no client waits
JUMP_S: Final = 2.0
MINUTE: Final = 60


class LoopWatch:
    """`run` it as a task, and call `turn_second` once a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lag = Durations()
        self.turned_s = clock.monotonic()  # when it was last seen to turn
        self._worst_s = 0.0
        self._seconds: deque[float] = deque(maxlen=MINUTE)
        self.blocked_s = BLOCKED_AT_START_S  # from how long on it counts as blocked
        self.blocks = 0  # how often it was
        self.longest_block_s = 0.0
        self.last_block: tuple[float, float] | None = None  # when it ended, and how long it was
        self._difference_s = clock.wall() - clock.monotonic()
        self.jumps = 0
        self.last_jump: tuple[float, float] | None = None  # when, and by how much

    @property
    def worst_s(self) -> float:
        """The largest lag of the last minute."""
        return max(self._seconds, default=0.0)

    def serve(self) -> None:
        """Called when clients are served: from now on a second counts as a block."""
        self.blocked_s = BLOCKED_S

    async def run(self) -> None:
        """Measure how late a timer fires, repeatedly."""
        while True:
            due_s = self._clock.monotonic() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self.turned_s = self._clock.monotonic()
            late_s = max(self.turned_s - due_s, 0.0)
            self.lag.note(late_s)
            self._worst_s = max(self._worst_s, late_s)
            if late_s >= self.blocked_s:
                self.blocks += 1
                self.longest_block_s = max(self.longest_block_s, late_s)
                self.last_block = (self.turned_s, late_s)

    def turn_second(self) -> float:
        """The largest lag of the last second; call it once a second."""
        worst_s, self._worst_s = self._worst_s, 0.0
        self._seconds.append(worst_s)
        now_s = self._clock.monotonic()
        difference_s = self._clock.wall() - now_s
        jump_s = difference_s - self._difference_s
        self._difference_s = difference_s
        if abs(jump_s) > JUMP_S:
            self.jumps += 1
            self.last_jump = (now_s, jump_s)
        return worst_s
