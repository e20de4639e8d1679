"""A trouble that lasts is told once, then rarely, and its end is told."""

from __future__ import annotations

import logging

import pytest

from penstock.blob.failure_log import FailureLog

log = logging.getLogger("test.failures")


class HandClock:
    """Time that passes when the test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def test_a_failure_is_logged_when_it_begins_changes_lasts_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = HandClock()
    failures = FailureLog(log, "upkeep", clock, repeat_s=100)
    failures.succeeded()
    for second in range(150):
        clock.now = float(second)
        failures.failed(OSError(2, "no such file", f"chunk-{second}"))
    failures.failed(OSError(5, "input/output error"))
    failures.failed(OSError(5, "input/output error"))
    failures.succeeded()
    failures.succeeded()
    failures.failed(OSError(5, "input/output error"))
    assert [record.getMessage() for record in caplog.records] == [
        "upkeep failed, it will be retried: [Errno 2] no such file: 'chunk-0'",
        "upkeep still fails, 99 more times by now: [Errno 2] no such file: 'chunk-100'",
        "upkeep failed, it will be retried: [Errno 5] input/output error",
        "upkeep works again",
        "upkeep failed, it will be retried: [Errno 5] input/output error",
    ]
