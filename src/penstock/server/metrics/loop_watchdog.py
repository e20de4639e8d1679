"""A thread that logs a blocked event loop, with the stack that blocks it.

While the loop is blocked, no request is answered, no metric is scraped and no signal is handled. So this thread writes to the log
once a block lasts a second (ten during startup), and again at growing intervals. `LoopWatch` counts blocks and their duration
afterwards.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Final

from penstock.core.clock import Clock
from penstock.server.metrics.loop_watch import LoopWatch

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
REPORT_EVERY_S: Final = 10.0  # and less often the longer a block lasts
REPORT_EVERY_S_MAX: Final = 60.0
LATE_S: Final = 0.5
FRAMES_MAX: Final = 20


class LoopWatchdog:
    """Watches the event loop of the thread that makes it. Make it, `start` it, `stop` it."""

    def __init__(self, watch: LoopWatch, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._loop_thread = threading.get_ident()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-watchdog", daemon=True)
        self._looked_s = clock.monotonic()
        self._next_report_s = clock.monotonic()
        self._reported_turn_s = -1.0  # when the loop last turned before the block that was reported last
        self._skipped: set[float] = set()  # when the loop last turned before each block that was not reported

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join()

    def look(self) -> None:
        """Log a block of the loop, rate limited."""
        now_s, turned_s = self._clock.monotonic(), self._watch.turned_s
        late_s = now_s - self._looked_s - LOOK_S
        self._looked_s = now_s
        blocked_s = now_s - turned_s
        if blocked_s < self._watch.blocked_s:
            return
        if now_s < self._next_report_s:
            if turned_s != self._reported_turn_s:
                self._skipped.add(turned_s)
            return
        self._next_report_s = now_s + min(max(blocked_s, REPORT_EVERY_S), REPORT_EVERY_S_MAX)
        self._reported_turn_s = turned_s
        skipped = len(self._skipped - {turned_s})
        self._skipped.clear()
        notes = f"; {skipped} blocks before this one were not reported" if skipped else ""
        if late_s > LATE_S:
            notes += "; the watchdog was late as well: the process did not run, or one call kept the interpreter"
        message = "the event loop is blocked for %.1f s, and no client is answered%s; its stack, innermost call last:\n%s"
        log.error(message, blocked_s, notes, self._stack())

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self.look()

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-FRAMES_MAX:])
