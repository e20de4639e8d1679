"""The columns of a table in the form that the row kernels take."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import orjson

from penstock.blob import Buffer
from penstock.core.varint import varint
from penstock.gateway.yt.schema import DOUBLES, SIGNED, STRINGS, SYSTEM_COLUMNS, UNSIGNED, Column, Schema
from penstock.kernels import json_rows as kernel

Numbers = npt.NDArray[np.int64]

_NO_LIMITS: Final = (0, 0)


class RowColumns:
    """The columns of a schema that writers fill; `are_scalar` is false if the kernels cannot read all of them."""

    def __init__(self, schema: Schema) -> None:
        own = [column for column in schema.columns if column.name not in SYSTEM_COLUMNS]
        self.columns = np.empty((len(own), kernel.COLUMN_FIELDS), np.int64)
        self.limits = np.empty((len(own), 2), np.uint64)
        names = bytearray()
        for place, column in enumerate(own):
            kind, limits = _kind(column)
            json_at, json_name = len(names), orjson.dumps(column.name)[1:-1]
            raw = column.name.encode()
            yson_name = b"\x01" + varint(len(raw)) + raw + b"="
            names += json_name + yson_name
            self.columns[place] = (
                json_at,
                len(json_name),
                json_at + len(json_name),
                len(yson_name),
                kind,
                column.required,
            )
            self.limits[place] = limits
        self.names = bytes(names)
        self.are_scalar = kernel.OTHER not in self.columns[:, kernel.KIND]

    def measure(self, data: bytes, count: int, base_weight: int) -> Numbers:
        """The places and weights of rows in a JSON list. A weight of -1 says that the row may not match the schema."""
        rows = np.empty((count, kernel.ROW_FIELDS), np.int64)
        kernel.measure_rows(
            data,
            rows,
            self._value_table(1),
            columns=self.columns,
            limits=self.limits,
            names=self.names,
            base_weight=base_weight,
        )
        return rows

    def scan(self, records: Buffer, table: Numbers) -> tuple[int, Numbers]:
        """Scan records up to the first that the kernel cannot read. Returns their number and where their values are."""
        values = self._value_table(len(table))
        count = kernel.scan_rows(records, table, values, columns=self.columns, limits=self.limits, names=self.names)
        return count, values

    def are_plain(self, records: Buffer, table: Numbers) -> bool:
        """Whether the kernel can read all rows of some records, which then match the schema."""
        return self.are_scalar and self.scan(records, table)[0] == len(table)

    def _value_table(self, rows: int) -> Numbers:
        return np.empty((rows * len(self.columns), kernel.VALUE_FIELDS), np.int64)


def _kind(column: Column) -> tuple[int, tuple[int, int]]:
    """The kind of a column, and how far its integers go below and above zero."""
    if column.type in STRINGS:
        return kernel.STRING, _NO_LIMITS
    if column.type in SIGNED:
        limit = 1 << SIGNED[column.type] - 1
        return kernel.SIGNED, (limit, limit - 1)
    if column.type in UNSIGNED:
        return kernel.UNSIGNED, (0, (1 << UNSIGNED[column.type]) - 1)
    if column.type in DOUBLES:
        return kernel.DOUBLE, _NO_LIMITS
    return kernel.BOOLEAN if column.type == "boolean" else kernel.OTHER, _NO_LIMITS
