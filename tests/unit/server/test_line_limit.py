"""A place in the code logs so many lines and no more, and what is dropped is told."""

from __future__ import annotations

import logging

import pytest

from penstock.server.line_limit import LineLimit


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return self.now_s


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def logged(clock: _Clock) -> tuple[logging.Logger, list[str]]:
    handler = _Lines()
    handler.addFilter(LineLimit(clock, lines_max=3, window_s=10.0))
    logger = logging.getLogger("tests.limited")
    logger.setLevel(logging.DEBUG)
    logger.handlers = [handler]
    return logger, handler.lines


def test_a_place_logs_no_more_than_its_share_and_tells_what_is_dropped(
    logged: tuple[logging.Logger, list[str]], clock: _Clock
) -> None:
    logger, lines = logged
    for number in range(12):
        if number == 10:
            assert lines == ["bad 0", "bad 1", "bad 2 (more lines like this are dropped for up to 10 s)"]
            clock.now_s += 10
        logger.warning("bad %d", number)
    assert lines[3:] == ["bad 10 (7 more lines like this were dropped in the last 10 s)", "bad 11"]


def test_other_places_and_debug_lines_are_not_affected(logged: tuple[logging.Logger, list[str]]) -> None:
    logger, lines = logged
    for _ in range(10):
        logger.warning("bad")
    for _ in range(10):
        logger.debug("fine")
    logger.warning("another place: 100%")
    assert len(lines) == 3 + 10 + 1
    assert lines[-1] == "another place: 100%"


def test_a_percent_sign_in_what_a_client_sent_does_no_harm(logged: tuple[logging.Logger, list[str]]) -> None:
    logger, lines = logged
    for _ in range(4):
        logger.warning("%s", "100%s %d")
    assert lines[2].startswith("100%s %d (more lines")
