"""Requests to write plain messages, straight from their encoded form into record batches: no Python object a message.

Plain are messages as they are sent, in codec raw, with nothing but a number, a time and data. All others are decoded first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.core.record_format import FROM_YDB, HEADER_SIZE, framed
from penstock.core.varint import varint
from penstock.gateway.ydb.protos import RAW
from penstock.gateway.ydb.write_acks import Seqnos
from penstock.gateway.ydb.written_batch import BATCH_BYTES, WriteSession, WrittenBatch
from penstock.kernels.message_scan import (
    DATA_SIZE,
    ROW_FIELDS,
    SEQNO,
    TIME_MS,
    count_messages,
    pack_records,
    scan_messages,
)

WRITE_REQUEST: Final = 0x12  # how a message of a client begins that is a request to write


class PlainRequest(NamedTuple):
    """A request of plain messages: its bytes, and a row for each message of where its parts are."""

    raw: bytes
    table: Any

    @property
    def seqnos(self) -> Seqnos:
        """The numbers of its messages."""
        return np.ascontiguousarray(self.table[:, SEQNO])

    def size(self, skipped: int) -> int:
        """The bytes of data behind the messages that are skipped."""
        return int(self.table[skipped:, DATA_SIZE].sum())

    def batches(self, writer: WriteSession, skipped: int, size_max: int = BATCH_BYTES) -> Iterator[WrittenBatch]:
        """The batches of its messages, in order, without some at its beginning; none is larger than `size_max` unless a single
        message is."""
        headers = varint(writer.header_count + 1) + writer.headers
        ends = np.cumsum(self.table[:, DATA_SIZE] + writer.overhead)
        first = skipped
        while first < len(self.table):
            before = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, before + size_max - HEADER_SIZE, "right")), first + 1)
            rows = self.table[first:last]
            out = np.empty(int(ends[last - 1]) - before, np.uint8).data
            used = pack_records(self.raw, rows, out, headers=headers, headers_after=writer.headers_after)
            times_ms = int(rows[0, TIME_MS]), int(rows[:, TIME_MS].max())
            yield WrittenBatch(framed(out[:used], len(rows), times_ms, attributes=FROM_YDB), len(rows))
            first = last


def parse_plain_request(raw: bytes) -> PlainRequest | None:
    """The request in a message of a client; None if it is something else, or not plain."""
    if len(raw) < 2 or raw[0] != WRITE_REQUEST:
        return None
    length = shift = 0
    at = 1
    while at < len(raw):
        length |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if raw[at - 1] < 0x80:
            break
    if at + length != len(raw):
        return None
    count, codec = count_messages(raw, at)
    if count < 1 or codec not in (0, RAW):
        return None
    table = np.empty((count, ROW_FIELDS), np.int64)
    return PlainRequest(raw, table) if scan_messages(raw, at, table) else None
