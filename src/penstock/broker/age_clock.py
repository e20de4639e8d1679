"""The clock that retention uses to decide what has expired. A jump of the machine's clock does not expire messages early.

It follows the machine's clock, is never ahead of it, and never runs at more than twice real speed: after any jump, a message is
kept for at least half of its retention. It catches up with a jump forward at that speed, and follows a jump backward at once. An
operator can confirm that the machine's clock is right (`penstock storage confirm-clock`), which ends the catching up.

"w"     in the system tablet: what this clock said last, version 1 | milliseconds since the epoch 8
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import Final

from penstock.broker.system_tablet import TableTablet
from penstock.core.clock import Clock
from penstock.core.format_version import check_version
from penstock.tablet import Request, Write

log = logging.getLogger(__name__)

VERSION: Final = 1
SPEED_MAX: Final = 2.0
OFF_CREDIT_S: Final = 3600.0  # a longer time off may be a wrong clock
BACK_MAX_S: Final = 30 * 24 * 3600.0  # a machine that boots in 1970 must not keep everything for fifty years
STORE_EVERY_S: Final = 300.0
TOLD_S: Final = 60.0  # a larger difference is logged
_KEY: Final = b"w"
_STORED = Struct(">Bq")


class AgeClock:
    """A Clock that starts from its last stored time; call `store` periodically."""

    def __init__(self, tablet: TableTablet, clock: Clock, elapsed: Callable[[], float] | None = None) -> None:
        self._tablet = tablet
        self._clock = clock
        self._elapsed = elapsed or clock.monotonic
        self._read_s = self._elapsed()
        stored_s = _unpack(tablet.head(_KEY))
        self._stored_s = stored_s
        wall_s = clock.wall()
        self._age_s = wall_s if stored_s is None else max(min(wall_s, stored_s + OFF_CREDIT_S), stored_s - BACK_MAX_S)
        self._latest_s = self._age_s if stored_s is None else max(self._age_s, stored_s)
        self._is_told = False
        self._tell()

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, as of the machine."""
        return self._clock.monotonic()

    def wall(self) -> float:
        """Seconds since the Unix epoch by this clock."""
        wall_s, read_s = self._clock.wall(), self._elapsed()
        passed_s, self._read_s = read_s - self._read_s, read_s
        self._latest_s += passed_s
        self._age_s = min(self._age_s + SPEED_MAX * passed_s, max(wall_s, self._latest_s - BACK_MAX_S))
        self._latest_s = max(self._latest_s, self._age_s)
        return min(self._age_s, wall_s)

    @property
    def behind_s(self) -> float:
        """How far this clock is behind the machine's, in seconds."""
        wall_s = self.wall()
        return max(self._clock.wall() - wall_s, 0.0)

    async def store(self) -> None:
        """Store the current time for the next start, if the stored one is old."""
        self._tell()
        now_s = self.wall()
        if self._stored_s is None or abs(now_s - self._stored_s) >= STORE_EVERY_S:
            await self._write(now_s)

    async def confirm(self) -> float:
        """Jump to the machine's clock, which an operator has confirmed. Returns how far this clock was behind."""
        behind_s = self.behind_s
        now_s = self._clock.wall()
        await self._write(now_s)
        self._age_s = self._latest_s = now_s
        log.warning("the machine's clock is confirmed: messages age by it again, %.0f s at once", behind_s)
        self._is_told = False
        return behind_s

    async def _write(self, now_s: float) -> None:
        stored = _STORED.pack(VERSION, int(now_s * 1000))
        await self._tablet.execute(Request((Write(_KEY, stored),), makes_room=True))
        self._stored_s = now_s

    def _tell(self) -> None:
        behind_s = self.behind_s
        if behind_s > TOLD_S and not self._is_told:
            log.warning(
                "the machine's clock was set forward by %.0f s, or the node was off for long: messages age at most twice as fast "
                "as time passes until that is caught up with; if the clock is right: penstock storage confirm-clock",
                behind_s,
            )
        elif behind_s <= TOLD_S and self._is_told:
            log.info("messages age by the machine's clock again")
        self._is_told = behind_s > TOLD_S


def _unpack(raw: bytes | None) -> float | None:
    if raw is None:
        return None
    check_version(raw[0] if raw else 0, VERSION, "the time that messages age by")
    milliseconds: int = _STORED.unpack(raw)[1]
    return milliseconds / 1000
