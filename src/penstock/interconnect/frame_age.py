"""How long a frame was on its way, told from two clocks that have nothing to do with each other."""

from __future__ import annotations

from typing import Final

_WRAP: Final = 1 << 32
_HALF: Final = 1 << 31
WINDOW_MS: Final = 60_000  # clocks drift apart; what was measured longer than one or two windows ago does not count


class FrameAge:
    """Compares each frame with the fastest recent one. So a process that was stopped tells the calls that it finds in its
    socket when it continues from those that were just sent. Pure."""

    __slots__ = ("_before", "_best", "_until_ms")

    def __init__(self) -> None:
        self._best: int | None = None
        self._before: int | None = None
        self._until_ms = 0

    def age_ms(self, now_ms: int, sent_ms: int) -> int:
        """How much longer than the fastest frame this one took, sent at `sent_ms` by the sender's clock, modulo 2^32."""
        apart = (now_ms - sent_ms) % _WRAP
        best = self._best
        if best is None or now_ms >= self._until_ms:
            self._before, self._best = best, apart
            self._until_ms = now_ms + WINDOW_MS
            best = apart
        elif _less(apart, best):
            self._best = best = apart
        if self._before is not None and _less(self._before, best):
            best = self._before
        late = (apart - best) % _WRAP
        return late if late < _HALF else 0


def _less(left: int, right: int) -> bool:
    """Whether a difference of clocks is smaller than another; both are modulo 2^32 and not far apart."""
    return (left - right) % _WRAP >= _HALF
