"""A trouble that lasts, told without filling the log: when it begins, changes, lasts for long, and is over."""

from __future__ import annotations

import logging

from penstock.core.clock import Clock

REPEAT_S = 600.0


class Complaint:
    """What goes wrong with one piece of work that is tried again and again."""

    def __init__(self, log: logging.Logger, what: str, clock: Clock, repeat_s: float = REPEAT_S) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._repeat_s = repeat_s
        self._trouble: tuple[type[OSError], int | None] | None = None
        self._told_at = 0.0
        self._untold = 0

    def failed(self, error: OSError) -> None:
        """It failed once more."""
        trouble = (type(error), error.errno)
        now = self._clock.monotonic()
        if trouble == self._trouble and now - self._told_at < self._repeat_s:
            self._untold += 1
            return
        if trouble == self._trouble:
            self._log.error("%s still fails, %d more times by now: %s", self._what, self._untold, error)
        else:
            self._log.error("%s failed, it will be tried again: %s", self._what, error)
        self._trouble, self._told_at, self._untold = trouble, now, 0

    def succeeded(self) -> None:
        """It did what it should."""
        if self._trouble is not None:
            self._log.info("%s works again", self._what)
            self._trouble = None
