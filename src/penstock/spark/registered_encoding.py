"""Rows as values with a schema of a registry, in the framing of Confluent's serializers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.schemas import UnreadableValueError, codec_of, framed_value
from penstock.spark.errors import OptionError, RowError
from penstock.spark.registry_client import RegistryAddress, SchemaRegistry

Plain = Callable[[Any], Any]
"""Turns a value of a column into what a codec takes."""


class RegisteredEncoder:
    """Encodes the column `value` with the last schema of a subject, row by row."""

    def __init__(self, address: RegistryAddress, subject: str) -> None:
        registry = SchemaRegistry(address)
        latest = registry.latest(subject)
        self._subject = subject
        self._id = latest.id
        self._is_json = latest.kind == "JSON"
        self._makes_text = latest.kind != "AVRO"
        self._encode = codec_of(registry.parsed(latest)).encode

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with bytes for values. RowError names the first that does not match the schema."""
        at = rows.schema.get_field_index("value")
        column = rows.column(at)
        if not (pa.types.is_struct(column.type) or pa.types.is_map(column.type)):
            raise OptionError(f"column value is {column.type}; with valueFormat registry it must be a struct: use struct(…)")
        plain = _plain_for(column.type, makes_text=self._makes_text)
        values = [None if row is None else self._framed(number, plain(row)) for number, row in enumerate(column.to_pylist())]
        return rows.set_column(at, "value", pa.array(values, pa.binary()))

    def _framed(self, number: int, row: Any) -> bytes:
        try:
            return framed_value(self._id, self._payload(row))
        except PenstockError as error:
            raise RowError(
                f"row {number} of a batch cannot be written with schema {self._id} of {self._subject}: {error}"
            ) from error

    def _payload(self, row: Any) -> bytes:
        if not self._is_json:
            return self._encode(row)
        try:
            return self._encode(_without_nulls(row))
        except UnreadableValueError:
            return self._encode(row)  # where the schema asks for nulls


def _without_nulls(value: Any) -> Any:
    """A value without the fields that have none: in JSON Schema, an optional property may be missing and not null."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _plain_for(kind: pa.DataType, *, makes_text: bool) -> Plain:
    """How values of a type are made plain: maps are dicts, and where the codec takes JSON, times and bytes are texts."""
    if pa.types.is_struct(kind):
        fields = {field.name: _plain_for(field.type, makes_text=makes_text) for field in kind}
        return lambda row: None if row is None else {name: plain(row[name]) for name, plain in fields.items()}
    if pa.types.is_map(kind):
        of_item = _plain_for(kind.item_type, makes_text=makes_text)
        return lambda pairs: None if pairs is None else {str(key): of_item(item) for key, item in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_element = _plain_for(kind.value_type, makes_text=makes_text)
        return lambda items: None if items is None else [of_element(item) for item in items]
    return _as_text if makes_text else _as_is


def _as_is(value: Any) -> Any:
    return value


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return float(value) if isinstance(value, Decimal) else value
