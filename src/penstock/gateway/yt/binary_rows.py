"""Stored rows of scalars as binary YSON, by a compiled kernel: what programs read is written at many times the speed of any row.

Whatever does not fit (an `any`, a value of another type than its column's, as Kafka's clients may have written) is left to the
library that writes everything."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from penstock.blob import Buffer
from penstock.gateway.yt.row_columns import Numbers, RowColumns
from penstock.kernels.json_rows import YSON_SIZE
from penstock.kernels.record_scan import VALUE_SIZE
from penstock.kernels.row_pack import COLUMN_OVERHEAD, ROW_OVERHEAD, write_yson

VALUES_AT_ONCE: Final = 1 << 14


class Surroundings(NamedTuple):
    """What rows have beside their columns: what all begin with, up to their offset, and end with; and weights, if any."""

    base_offset: int
    before: bytes
    after: bytes
    weights: Numbers


def write_binary(columns: RowColumns, records: Buffer, table: Numbers, around: Surroundings) -> tuple[list[memoryview], int]:
    """Rows of stored records, and how many of them, up to the first that does not fit."""
    written: list[memoryview] = []
    step = max(VALUES_AT_ONCE // max(len(columns.columns), 1), 1)
    for first in range(0, len(table), step):
        part = table[first : first + step]
        count, found = columns.scanned(records, part)
        part = part[:count]
        out = np.empty(_bound(columns, part, around), np.uint8).data
        used = write_yson(
            records,
            part,
            found,
            out,
            columns=columns.columns,
            names=columns.names,
            base_offset=around.base_offset,
            before=around.before,
            after=around.after,
            weights=around.weights[first : first + count],
        )
        written.append(out[:used])
        if count < min(step, len(table) - first):
            return written, first + count
    return written, len(table)


def _bound(columns: RowColumns, table: Numbers, around: Surroundings) -> int:
    """What rows take at most."""
    names = int(columns.columns[:, YSON_SIZE].sum()) + COLUMN_OVERHEAD * len(columns.columns)
    each = len(around.before) + len(around.after) + ROW_OVERHEAD + names
    return len(table) * each + int(table[:, VALUE_SIZE].sum())
