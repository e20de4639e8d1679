"""Logging to standard error, one line an event: time, level, where, what."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime


class LineFormatter(logging.Formatter):
    """`2026-07-31T12:00:00.123Z INFO penstock.server.node: what happened`; what has several lines is joined to one."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        lines = (line.strip() for line in text.splitlines())
        return f"{when} {record.levelname} {record.name}: " + " | ".join(line for line in lines if line)


def log_to_stderr(level: str) -> None:
    """From now on, log what is of this level or above."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
