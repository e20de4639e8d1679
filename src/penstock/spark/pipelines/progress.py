"""Shows the progress of a pipeline: a status line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

from penstock.spark.pipelines.job import BatchResult

LINE_EVERY_S: Final = 10.0
TERMINAL_EVERY_S: Final = 0.5
SPEED_OVER_S: Final = 10.0


class RateMeter:
    """Rows per second over the last few seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._done: deque[tuple[float, int]] = deque()

    def add(self, rows: int) -> None:
        """Count committed rows."""
        self._done.append((time.monotonic(), rows))

    def rows_per_s(self) -> float:
        """As of now."""
        now = time.monotonic()
        while self._done and self._done[0][0] < now - SPEED_OVER_S:
            self._done.popleft()
        span = min(now - self._started, SPEED_OVER_S)
        return sum(rows for _, rows in self._done) / max(span, 0.1)


class ProgressDisplay:
    """Standard error for a person or for a log, whose lines may begin with a prefix."""

    def __init__(self, stream: TextIO | None = None, prefix: Callable[[], str] = str) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._prefix = prefix
        self._is_terminal = self._stream.isatty()
        self._shown_at = float("-inf")
        self._line = ""
        self._last = ""

    def say(self, sentence: str) -> None:
        """Print a line."""
        if self._line:
            self._stream.write("\r\x1b[K")
        self._stream.write(f"{self._prefix()}{sentence}\n")
        if self._line:
            self._stream.write(self._line)
        self._stream.flush()

    def show(self, figures: str, *, is_last: bool = False) -> None:
        """Update the status line, rate limited."""
        now = time.monotonic()
        if not is_last and now - self._shown_at < (TERMINAL_EVERY_S if self._is_terminal else LINE_EVERY_S):
            return
        self._shown_at = now
        if figures == self._last and not self._is_terminal:
            return
        self._last = figures
        if not self._is_terminal:
            self._stream.write(f"{self._prefix()}{figures}\n")
        else:
            self._line = "" if is_last else figures
            self._stream.write(f"\r{figures}\x1b[K" + ("\n" if is_last else ""))
        self._stream.flush()


def figures(batches: int, total: BatchResult, rows_per_s: float, lag_rows: int) -> str:
    """The line that is shown."""
    parts = [f"{batches:,} batches", f"{total.rows_read:,} rows read", f"{total.rows_written:,} written"]
    if total.dead_letters:
        parts.append(f"{total.dead_letters:,} dead letters")
    if total.late_rows:
        parts.append(f"{total.late_rows:,} dropped as late")
    if total.empty_rows:
        parts.append(f"{total.empty_rows:,} without any field of the schema")
    return ", ".join([*parts, f"{rows_per_s:,.0f} rows/s", f"lag {lag_rows:,}"])
