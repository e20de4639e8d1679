"""Rows of a queue and the records they are stored as: the value of a record is the row as JSON (see stored_values.py).

A record has no key. The first record of a batch carries the weights of all its rows in a header. What a Kafka producer has
written into a queue of rows is a row as well if it is a JSON object that fits the schema; otherwise its columns are null, and the
record comes in `$key` and `$value` beside them, with what is wrong in `$error`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from yt.yson import YsonStringProxy, YsonUint64

from penstock.core.errors import PenstockError
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import SCHEMA_VIOLATION, YtError
from penstock.gateway.yt.row_columns import RowColumns
from penstock.gateway.yt.schema import ANY, DOUBLES, SIGNED, STRINGS, SYSTEM_COLUMNS, UNSIGNED, Column, Schema
from penstock.gateway.yt.schema import WEIGHT as CUMULATIVE_WEIGHT
from penstock.gateway.yt.stored_values import plain, restored
from penstock.kernels.json_rows import ROW_FIELDS, SIZE, WEIGHT

ROW_WEIGHT = 1
NUMBER_WEIGHT = 8
ROW_BYTES_MAX = 16 << 20

Check = Callable[[Any], tuple[Any, int]]
"""Gives a value as it is stored, and its weight; ValueError if it is not of the type."""


class EncodedRow(NamedTuple):
    """A row as it is stored, and its weight."""

    value: bytes
    weight: int


class RowCodec:
    """Encodes and decodes rows of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        own = [column for column in schema.columns if column.name not in SYSTEM_COLUMNS]
        self._checks = {column.name: _check_of(column) for column in own}
        self._required = [column.name for column in own if column.required]
        self._base_weight = ROW_WEIGHT + NUMBER_WEIGHT * (len(schema.columns) - len(own))
        self._blank: dict[str, Any] = dict.fromkeys(column.name for column in own)
        self._unsigned = [column.name for column in own if column.type in UNSIGNED]
        self._doubles = [column.name for column in own if column.type in DOUBLES]
        self.has_weight = schema.has(CUMULATIVE_WEIGHT)
        self.columns = RowColumns(schema)

    def encode(self, row: dict[str, Any]) -> EncodedRow:
        """A row as it is stored. It is changed in place."""
        weight = self._base_weight
        checks = self._checks
        for name, value in row.items():
            check = checks.get(name)
            if check is None:
                raise YtError(SCHEMA_VIOLATION, f'Unexpected column "{name}"; the queue has {", ".join(self.schema.names)}')
            if value is None:
                continue
            try:
                row[name], size = check(value)
            except ValueError as error:
                raise YtError(SCHEMA_VIOLATION, f'Column "{name}": {error}') from error
            weight += size
        for name in self._required:
            if row.get(name) is None:
                raise YtError(SCHEMA_VIOLATION, f'Required column "{name}" cannot have "null" value')
        encoded = orjson.dumps(row)
        if len(encoded) > ROW_BYTES_MAX:
            raise YtError(SCHEMA_VIOLATION, f"a row takes {len(encoded)} bytes, at most {ROW_BYTES_MAX} are stored")
        return EncodedRow(encoded, weight)

    def encode_all(self, rows: list[dict[str, Any]]) -> EncodedRows:
        """Rows as they are stored. Most are written and checked all at once; those that hold more than JSON says, one by one."""
        try:
            data = orjson.dumps(rows, default=_not_plain)
        except TypeError:
            data = b""
        if data:
            found = self.columns.measured(data, len(rows), self._base_weight)
        else:
            found = np.full((len(rows), ROW_FIELDS), -1, np.int64)
        parts = [data]
        end = len(data)
        for place in np.flatnonzero((found[:, WEIGHT] < 0) | (found[:, SIZE] > ROW_BYTES_MAX)).tolist():
            value, weight = self.encode(rows[place])
            found[place] = end, len(value), weight
            parts.append(value)
            end += len(value)
        return EncodedRows(b"".join(parts) if len(parts) > 1 else data, found)

    def decode(
        self,
        values: Sequence[bytes | None],
        keys: Callable[[], Sequence[bytes | None]],
        around: tuple[dict[str, Any], dict[str, Any]],
        *,
        are_checked: bool = True,
    ) -> list[dict[str, Any]]:
        """The rows of stored values, with every column of the schema that writers fill, between some columns that all of them
        have. Keys are asked for if a value is no row. Rows that were not checked when they were written are checked now."""
        before, after = around
        blank = {**before, **self._blank}
        if are_checked:
            found = orjson.loads(b"[" + b",".join(values) + b"]")  # type: ignore[arg-type]
            if any(value is not None and b'"$yson"' in value for value in values):
                found = [{name: restored(value) for name, value in row.items()} for row in found]
        else:
            found = [self._checked(*pair) for pair in zip(values, keys(), strict=True)]
        rows = [{**blank, **row, **after} for row in found]
        for name in self._unsigned:
            for row in rows:
                if type(row[name]) is int:
                    row[name] = YsonUint64(row[name])
        for name in self._doubles:
            for row in rows:
                if type(row[name]) is int:
                    row[name] = float(row[name])
        return rows

    def _checked(self, value: bytes | None, key: bytes | None) -> dict[str, Any]:
        """A value that someone else than a writer of rows has written: as a row if it is one of this schema. The parser is the
        one that keeps every digit of a number."""
        try:
            row = json.loads((value or b"").decode(), parse_constant=_refuse_constant)
            if not isinstance(row, dict):
                raise ValueError(f"a row is a JSON object, not {type(row).__name__}")
            row = {name: restored(each) for name, each in row.items()}
            self.encode(dict(row))
        except (ValueError, RecursionError, PenstockError) as error:
            return {"$key": key, "$value": value, "$error": f"it is no row of this queue: {error}"}
        return row


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _not_plain(value: object) -> None:
    """What JSON cannot say stands as null, which marks its row as one to be looked at."""


def _check_of(column: Column) -> Check:
    if column.type in STRINGS:
        return _check_string
    if column.type in SIGNED:
        bits = SIGNED[column.type]
        return _check_whole(-(1 << bits - 1), (1 << bits - 1) - 1)
    if column.type in UNSIGNED:
        return _check_whole(0, (1 << UNSIGNED[column.type]) - 1)
    if column.type in DOUBLES:
        return _check_double
    if column.type in ANY:
        return _check_any
    return _check_boolean


def _check_string(value: Any) -> tuple[Any, int]:
    if type(value) is str:
        return value, len(value) if value.isascii() else len(value.encode())
    if isinstance(value, YsonStringProxy):
        return plain(value), len(value._bytes)
    if isinstance(value, bytes):
        return plain(value), len(value)
    if isinstance(value, str):
        return str(value), len(value.encode())
    raise ValueError(f"a string is needed, not {type(value).__name__}")


def _check_whole(low: int, high: int) -> Check:
    def check(value: Any) -> tuple[Any, int]:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"a whole number is needed, not {type(value).__name__}")
        if not low <= value <= high:
            raise ValueError(f"{value} is not within {low}..{high}")
        return int(value), NUMBER_WEIGHT

    return check


def _check_double(value: Any) -> tuple[Any, int]:
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise ValueError(f"a number is needed, not {type(value).__name__}")
    return plain(float(value)), NUMBER_WEIGHT


def _check_boolean(value: Any) -> tuple[Any, int]:
    if value not in (True, False) or isinstance(value, float):
        raise ValueError(f"a boolean is needed, not {type(value).__name__}")
    return bool(value), 1


def _check_any(value: Any) -> tuple[Any, int]:
    stored = plain(value)
    try:
        return stored, len(orjson.dumps(stored))
    except (TypeError, ValueError) as error:
        raise ValueError(f"it cannot be stored: {error}") from error
