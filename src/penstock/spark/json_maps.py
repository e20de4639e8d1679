"""JSON values with maps: objects whose names are data. The compiled reader knows none, so each value is rewritten first, with
lists of pairs for its maps; that takes several times as long."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import ValueFormat, bytes_column, decode_column


def has_map(kind: pa.DataType) -> bool:
    """Whether there is a map anywhere in a type."""
    if pa.types.is_map(kind):
        return True
    if pa.types.is_struct(kind):
        return any(has_map(field.type) for field in kind)
    return pa.types.is_list(kind) and has_map(kind.value_type)


def without_maps(kind: pa.DataType) -> pa.DataType:
    """The type with lists of pairs in place of maps."""
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("key", kind.key_type), ("value", without_maps(kind.item_type))]))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, without_maps(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(without_maps(kind.value_type))
    return kind


class MapJsonFormat:
    """Decodes what `inner` does, with maps."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(self, kind: pa.DataType, inner: ValueFormat) -> None:
        self._kind = kind
        self._inner = inner
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        self._inner.malformed = self.malformed
        values = [self._rewritten(value) for value in bytes_column(text, starts, valid).to_pylist()]
        return _with_maps(decode_column(self._inner, pa.array(values, pa.binary()), offsets), self._kind)

    def _rewritten(self, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        try:
            return json.dumps(_pairs(json.loads(value), self._kind)).encode()
        except ValueError:
            return value  # the reader says what is wrong with it


def _pairs(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [{"key": key, "value": _pairs(item, kind.item_type)} for key, item in value.items()]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _pairs(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_pairs(item, kind.value_type) for item in value]
    return value


def _with_maps(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not has_map(kind):
        return column if column.type == kind else column.cast(kind)
    if pa.types.is_struct(kind):
        children = [_with_maps(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if column.offset:
        column = pa.concat_arrays([column, pa.nulls(0, column.type)])
    if pa.types.is_list(kind):
        items = _with_maps(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, items, kind, mask=column.is_null())
    keys, items = column.values.field(0), _with_maps(column.values.field(1), kind.item_type)
    return pa.MapArray.from_arrays(column.offsets, keys, items, kind, mask=column.is_null())
