"""Logging to standard error, one line per event: text for people, or JSON for log collectors."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from penstock.core.clock import SystemClock
from penstock.core.trace_context import current_trace, trace_id_of
from penstock.server.line_limit import LineLimit

# What every record has; whatever else is in one was given by `extra`.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LineFormatter(logging.Formatter):
    """`2026-07-31T12:00:00.123Z INFO penstock.server.node: what happened`; what has several lines is joined to one. A line of a
    worker names it after the level: `INFO [worker 2]`."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._mark = "" if worker is None else f"[worker {worker}] "

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        lines = (line.strip() for line in text.splitlines())
        return f"{_when(record)} {record.levelname} {self._mark}{record.name}: " + " | ".join(line for line in lines if line)


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`; `worker` if it is one of several, `fields` if the event has any,
    `error` with its stack if it is one, `trace_id` if it happened in a trace."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, object] = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            shown["worker"] = self._worker
        fields = {name: value for name, value in vars(record).items() if name not in _USUAL}
        if fields:
            shown["fields"] = fields
        if record.exc_info:
            shown["error"] = self.formatException(record.exc_info)
        trace = current_trace.get()
        if trace is not None:
            shown["trace_id"] = trace_id_of(trace)
        return json.dumps(shown, ensure_ascii=False, default=str)


class ClientFaults(logging.Filter):
    """Reduces the log of client errors, which are not errors of the node. Data that is not HTTP, as port scanners send it, and
    gRPC metadata that is not text are logged in one line without the data and without a stack; disconnects are not logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.name == "aiohttp.server" and isinstance(error, ConnectionResetError):
            return False
        if record.name.startswith("grpc.") and type(error).__name__ == "ExecuteBatchError":  # the client has gone
            return False
        if record.name.startswith("grpc.") and isinstance(error, UnicodeDecodeError):
            return self._in_a_line(record, "a call has metadata that is not UTF-8: %s", str(error)[:100])
        if error is None or record.name != "aiohttp.server" or type(error).__module__ != "aiohttp.http_exceptions":
            return True
        what = str(getattr(error, "message", "")).partition("\n")[0].partition(": b")[0].rstrip(":")[:100]
        return self._in_a_line(record, "%s: that is not HTTP: %s", record.getMessage(), what)

    def _in_a_line(self, record: logging.LogRecord, text: str, *args: str) -> bool:
        record.msg, record.args = text, args
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return logging.getLogger().isEnabledFor(logging.WARNING)


FORMATS: Final[dict[str, type[LineFormatter | JsonFormatter]]] = {"text": LineFormatter, "json": JsonFormatter}


def log_to_stderr(level: str, log_format: str = "text", worker: int | None = None) -> None:
    """Configure logging at this level; the lines of a worker are marked with its number."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[log_format](worker))
    handler.addFilter(ClientFaults())
    handler.addFilter(LineLimit(SystemClock()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
