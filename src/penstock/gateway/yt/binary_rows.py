"""Encodes stored rows of scalars as binary YSON by a compiled kernel, many times faster than the library.

Rows that the kernel cannot encode (with an `any`, or with a value of the wrong type, as Kafka's clients may write) are left to
the library."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from penstock.blob import Buffer
from penstock.gateway.yt.row_columns import Numbers, RowColumns
from penstock.kernels.json_rows import YSON_SIZE
from penstock.kernels.record_scan import VALUE_SIZE
from penstock.kernels.row_pack import COLUMN_OVERHEAD, ROW_OVERHEAD, write_yson

VALUES_AT_ONCE: Final = 1 << 14


class RowEnvelope(NamedTuple):
    """The bytes around the columns of each row: before its offset and after its columns; and the weights, if any."""

    base_offset: int
    before: bytes
    after: bytes
    weights: Numbers


def write_binary(columns: RowColumns, records: Buffer, table: Numbers, envelope: RowEnvelope) -> tuple[list[memoryview], int]:
    """Encode rows up to the first that the kernel cannot. Returns the bytes and the number of rows."""
    chunks: list[memoryview] = []
    step = max(VALUES_AT_ONCE // max(len(columns.columns), 1), 1)
    for first in range(0, len(table), step):
        part = table[first : first + step]
        count, values = columns.scan(records, part)
        part = part[:count]
        out = np.empty(_size_bound(columns, part, envelope), np.uint8).data
        used = write_yson(
            records,
            part,
            values,
            out,
            columns=columns.columns,
            names=columns.names,
            base_offset=envelope.base_offset,
            before=envelope.before,
            after=envelope.after,
            weights=envelope.weights[first : first + count],
        )
        chunks.append(out[:used])
        if count < min(step, len(table) - first):
            return chunks, first + count
    return chunks, len(table)


def _size_bound(columns: RowColumns, table: Numbers, envelope: RowEnvelope) -> int:
    """The most bytes that rows can take."""
    names = int(columns.columns[:, YSON_SIZE].sum()) + COLUMN_OVERHEAD * len(columns.columns)
    each = len(envelope.before) + len(envelope.after) + ROW_OVERHEAD + names
    return len(table) * each + int(table[:, VALUE_SIZE].sum())
