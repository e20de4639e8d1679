"""Logs a failure that repeats without filling the log: when it begins, changes, lasts and is over."""

from __future__ import annotations

import logging

from penstock.core.clock import Clock

REPEAT_S = 600.0


class FailureLog:
    """The failures of one operation that is retried."""

    def __init__(self, log: logging.Logger, operation: str, clock: Clock, repeat_s: float = REPEAT_S) -> None:
        self._log = log
        self._operation = operation
        self._clock = clock
        self._repeat_s = repeat_s
        self._failure: tuple[type[OSError], int | None] | None = None
        self._logged_at = 0.0
        self._unlogged = 0

    def failed(self, error: OSError) -> None:
        """Note a failed attempt."""
        failure = (type(error), error.errno)
        now = self._clock.monotonic()
        if failure == self._failure and now - self._logged_at < self._repeat_s:
            self._unlogged += 1
            return
        if failure == self._failure:
            self._log.error("%s still fails, %d more times by now: %s", self._operation, self._unlogged, error)
        else:
            self._log.error("%s failed, it will be retried: %s", self._operation, error)
        self._failure, self._logged_at, self._unlogged = failure, now, 0

    def succeeded(self) -> None:
        """Note a successful attempt."""
        if self._failure is not None:
            self._log.info("%s works again", self._operation)
            self._failure = None
