"""Encodes rows of a queue as record values, and decodes them: a value is the row as JSON (see stored_values.py).

A record has no key. The first record of a batch has a header with the weights of all rows. A record that a Kafka producer has
written is a row too if it is a JSON object that matches the schema. Otherwise its columns are null, and the record is returned in
`$key` and `$value`, with the reason in `$error`.
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
from penstock.gateway.yt.stored_values import from_plain, to_plain
from penstock.kernels.json_rows import ROW_FIELDS, SIZE, WEIGHT

ROW_WEIGHT = 1
NUMBER_WEIGHT = 8
ROW_BYTES_MAX = 16 << 20

Check = Callable[[Any], tuple[Any, int]]
"""Returns the stored form of a value and its weight; raises ValueError if it is not of the type."""


class EncodedRow(NamedTuple):
    """A row in its stored form, and its weight."""

    value: bytes
    weight: int


class RowCodec:
    """Encodes and decodes rows of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        own = [column for column in schema.columns if column.name not in SYSTEM_COLUMNS]
        self._checks = {column.name: _check_for(column) for column in own}
        self._required = [column.name for column in own if column.required]
        self._base_weight = ROW_WEIGHT + NUMBER_WEIGHT * (len(schema.columns) - len(own))
        self._blank: dict[str, Any] = dict.fromkeys(column.name for column in own)
        self._unsigned = [column.name for column in own if column.type in UNSIGNED]
        self._doubles = [column.name for column in own if column.type in DOUBLES]
        self.has_weight = schema.has(CUMULATIVE_WEIGHT)
        self.columns = RowColumns(schema)

    def encode(self, row: dict[str, Any]) -> EncodedRow:
        """Encode and check one row. The row is modified."""
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
            raise YtError(SCHEMA_VIOLATION, f"a row has {len(encoded)} bytes; at most {ROW_BYTES_MAX} are allowed")
        return EncodedRow(encoded, weight)

    def encode_all(self, rows: list[dict[str, Any]]) -> EncodedRows:
        """Encode and check rows: most by one pass of a kernel, and those with values that JSON cannot express one by one."""
        try:
            data = orjson.dumps(rows, default=_null_for_other)
        except TypeError:
            data = b""
        if data:
            table = self.columns.measure(data, len(rows), self._base_weight)
        else:
            table = np.full((len(rows), ROW_FIELDS), -1, np.int64)
        parts = [data]
        end = len(data)
        for place in np.flatnonzero((table[:, WEIGHT] < 0) | (table[:, SIZE] > ROW_BYTES_MAX)).tolist():
            value, weight = self.encode(rows[place])
            table[place] = end, len(value), weight
            parts.append(value)
            end += len(value)
        return EncodedRows(b"".join(parts) if len(parts) > 1 else data, table)

    def decode(
        self,
        values: Sequence[bytes | None],
        keys: Callable[[], Sequence[bytes | None]],
        around: tuple[dict[str, Any], dict[str, Any]],
        *,
        are_checked: bool = True,
    ) -> list[dict[str, Any]]:
        """Decode stored values to rows with all columns that writers fill. The two dicts of `around` are put before and after the
        columns of each row. Rows that were not checked when they were written are checked now; only this calls `keys`."""
        before, after = around
        blank = {**before, **self._blank}
        if are_checked:
            decoded = orjson.loads(b"[" + b",".join(values) + b"]")  # type: ignore[arg-type]
            if any(value is not None and b'"$yson"' in value for value in values):
                decoded = [{name: from_plain(value) for name, value in row.items()} for row in decoded]
        else:
            decoded = [self._decode_unchecked(*pair) for pair in zip(values, keys(), strict=True)]
        rows = [{**blank, **row, **after} for row in decoded]
        for name in self._unsigned:
            for row in rows:
                if type(row[name]) is int:
                    row[name] = YsonUint64(row[name])
        for name in self._doubles:
            for row in rows:
                if type(row[name]) is int:
                    row[name] = float(row[name])
        return rows

    def _decode_unchecked(self, value: bytes | None, key: bytes | None) -> dict[str, Any]:
        """Decode a value that Kafka's clients may have written, and check it against the schema. json keeps all digits of a
        number, which orjson does not."""
        try:
            row = json.loads((value or b"").decode(), parse_constant=_refuse_constant)
            if not isinstance(row, dict):
                raise ValueError(f"a row must be a JSON object, not {type(row).__name__}")
            row = {name: from_plain(each) for name, each in row.items()}
            self.encode(dict(row))
        except (ValueError, RecursionError, PenstockError) as error:
            return {"$key": key, "$value": value, "$error": f"not a row of this queue: {error}"}
        return row


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _null_for_other(value: object) -> None:
    """Encode a value that JSON cannot express as null, so that its row is encoded one by one."""


def _check_for(column: Column) -> Check:
    if column.type in STRINGS:
        return _check_string
    if column.type in SIGNED:
        bits = SIGNED[column.type]
        return _check_integer(-(1 << bits - 1), (1 << bits - 1) - 1)
    if column.type in UNSIGNED:
        return _check_integer(0, (1 << UNSIGNED[column.type]) - 1)
    if column.type in DOUBLES:
        return _check_double
    if column.type in ANY:
        return _check_any
    return _check_boolean


def _check_string(value: Any) -> tuple[Any, int]:
    if type(value) is str:
        return value, len(value) if value.isascii() else len(value.encode())
    if isinstance(value, YsonStringProxy):
        return to_plain(value), len(value._bytes)
    if isinstance(value, bytes):
        return to_plain(value), len(value)
    if isinstance(value, str):
        return str(value), len(value.encode())
    raise ValueError(f"expected a string, not {type(value).__name__}")


def _check_integer(low: int, high: int) -> Check:
    def check(value: Any) -> tuple[Any, int]:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"expected an integer, not {type(value).__name__}")
        if not low <= value <= high:
            raise ValueError(f"{value} is not within {low}..{high}")
        return int(value), NUMBER_WEIGHT

    return check


def _check_double(value: Any) -> tuple[Any, int]:
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise ValueError(f"expected a number, not {type(value).__name__}")
    return to_plain(float(value)), NUMBER_WEIGHT


def _check_boolean(value: Any) -> tuple[Any, int]:
    if value not in (True, False) or isinstance(value, float):
        raise ValueError(f"expected a boolean, not {type(value).__name__}")
    return bool(value), 1


def _check_any(value: Any) -> tuple[Any, int]:
    stored = to_plain(value)
    try:
        return stored, len(orjson.dumps(stored))
    except (TypeError, ValueError) as error:
        raise ValueError(f"it cannot be stored: {error}") from error
