"""The columns of a table as the kernels that read and write its rows want them."""

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

    def measured(self, data: bytes, count: int, base_weight: int) -> Numbers:
        """Where rows are in a list of JSON, and their weights; -1 if one is not as its columns say, or is not known to be."""
        rows = np.empty((count, kernel.ROW_FIELDS), np.int64)
        kernel.measure_rows(
            data,
            rows,
            self._room(1),
            columns=self.columns,
            limits=self.limits,
            names=self.names,
            base_weight=base_weight,
        )
        return rows

    def scanned(self, records: Buffer, table: Numbers) -> tuple[int, Numbers]:
        """How many rows the kernel can read, from the first record of a table on, and what it has found of them."""
        found = self._room(len(table))
        count = kernel.scan_rows(records, table, found, columns=self.columns, limits=self.limits, names=self.names)
        return count, found

    def are_plain(self, records: Buffer, table: Numbers) -> bool:
        """Whether all rows of some records are such that the kernel reads them, and so fit their columns."""
        return self.are_scalar and self.scanned(records, table)[0] == len(table)

    def _room(self, rows: int) -> Numbers:
        return np.empty((rows * len(self.columns), kernel.VALUE_FIELDS), np.int64)


def _kind(column: Column) -> tuple[int, tuple[int, int]]:
    """The kind of a column, and how far below and above zero its whole numbers go."""
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
