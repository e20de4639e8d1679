"""Counters and traces of calls of YDB clients."""

from __future__ import annotations

from typing import Any

from penstock.core.trace_context import TRACEPARENT


def traceparent_of(context: Any) -> str | None:
    """The trace that a call of gRPC says it is part of."""
    return next((value for key, value in context.invocation_metadata() or () if key == TRACEPARENT), None)
