"""Rate limits log lines by their place in the code, so that clients cannot fill a disk with them."""

from __future__ import annotations

import logging
import threading
from typing import Final

from penstock.core.clock import Clock

LINES_MAX: Final = 30
WINDOW_S: Final = 10.0
PLACES_MAX: Final = 1000


class _Place:
    """The lines that one place has logged in its window."""

    __slots__ = ("began_s", "dropped", "lines")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.lines = 0
        self.dropped = 0


class LineLimit(logging.Filter):
    """Limits the lines per place in the code and time window. The last line of a full window says that more are dropped, and the
    first of the next one how many were. Debug lines are not limited."""

    def __init__(self, clock: Clock, lines_max: int = LINES_MAX, window_s: float = WINDOW_S) -> None:
        super().__init__()
        self._clock = clock
        self._lines_max = lines_max
        self._window_s = window_s
        self._places: dict[tuple[str, str, int], _Place] = {}
        self._lock = threading.Lock()  # threads log too
        self.dropped = 0
        """How many lines were dropped in all."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        with self._lock:
            note = self._note(self._place((record.name, record.pathname, record.lineno)))
        if note is None:
            return False
        if note:
            record.msg, record.args = f"{record.getMessage()} {note}", None
        return True

    def _place(self, key: tuple[str, str, int]) -> _Place:
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            place = self._places[key] = _Place(self._clock.monotonic())
        return place

    def _note(self, place: _Place) -> str | None:
        """The suffix for a line of this place; None if the line is dropped."""
        now_s = self._clock.monotonic()
        note = ""
        if now_s - place.began_s >= self._window_s:
            if place.dropped:
                note = f"({place.dropped} more lines like this were dropped in the last {now_s - place.began_s:.0f} s)"
            place.began_s, place.lines, place.dropped = now_s, 0, 0
        place.lines += 1
        if place.lines > self._lines_max:
            place.dropped += 1
            self.dropped += 1
            return None
        if place.lines == self._lines_max:
            note = f"{note} (more lines like this are dropped for up to {self._window_s:.0f} s)".strip()
        return note
