"""The trace context of a request in W3C form: `traceparent: 00-<trace id>-<span id>-<flags>`.

Penstock passes it on in message headers, so that a consumer can continue the producer's trace.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

from penstock.core.errors import CorruptionError
from penstock.core.record_format import HEADER_SIZE, Octets, header_at, plain_records, read_headers, read_octets
from penstock.core.varint import read_varint

TRACEPARENT: Final = "traceparent"
COMPRESSED_MAX: Final = 1 << 20  # a larger batch is not taken apart for the sake of a trace

_FORM: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")

current_trace: ContextVar[str | None] = ContextVar("penstock_traceparent", default=None)
"""The traceparent of what is being served; None if it is part of no trace."""


def checked_traceparent(text: str | None) -> str | None:
    """The same, if it has the form that it must have."""
    return text if text is not None and _FORM.fullmatch(text) else None


def trace_id_of(traceparent: str) -> str:
    """The trace that a traceparent names."""
    return traceparent[3:35]


def first_traceparent(batch: Octets) -> str | None:
    """The traceparent in the headers of the first record of a batch; None if there is none, or the batch is not one."""
    if len(batch) <= HEADER_SIZE:
        return None
    try:
        header = header_at(batch)
        if header.attributes & 0x07 and len(batch) > COMPRESSED_MAX:
            return None
        records = plain_records(batch, header)
        _, at = read_varint(records, 0)
        _, at = read_varint(records, at + 1)  # the time, behind a byte of attributes
        _, at = read_varint(records, at)  # the offset
        _, at = read_octets(records, at)  # the key
        _, at = read_octets(records, at)  # the value
        headers = read_headers(records, at)
    except (IndexError, CorruptionError):
        return None
    for name, value in headers:
        if name.lower() == TRACEPARENT.encode() and value is not None:
            return checked_traceparent(value.decode("ascii", "replace"))
    return None
