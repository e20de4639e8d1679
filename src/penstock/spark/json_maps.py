"""JSON values with maps: objects whose names are data. The compiled reader knows none, so each value is rewritten first, with a
list of keys and one of values for each map; all else in it is copied as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import ValueFormat, bytes_column, decode_column

Rewrite = Callable[[Any], bytes]

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encoded: Final = msgspec.json.Encoder().encode


def has_map(kind: pa.DataType) -> bool:
    """Whether there is a map anywhere in a type."""
    if pa.types.is_map(kind):
        return True
    if pa.types.is_struct(kind):
        return any(has_map(field.type) for field in kind)
    return pa.types.is_list(kind) and has_map(kind.value_type)


def without_maps(kind: pa.DataType) -> pa.DataType:
    """The type with lists of keys and values in place of maps."""
    if pa.types.is_map(kind):
        return pa.struct([("keys", pa.list_(kind.key_type)), ("values", pa.list_(without_maps(kind.item_type)))])
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
        self._rewrite = _rewriting(kind)
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        self._inner.malformed = self.malformed
        rewrite = self._rewrite
        values = [None if value is None else rewrite(value) for value in bytes_column(text, starts, valid).to_pylist()]
        return _with_maps(decode_column(self._inner, pa.array(values, pa.binary()), offsets), self._kind)


def _rewriting(kind: pa.DataType) -> Rewrite:
    """What makes lists of the maps in a text of a type with some. What is not of that type stays as it is: the reader
    says what is wrong with it."""
    if pa.types.is_map(kind):
        rewrite = _of_map(kind)
    elif pa.types.is_struct(kind):
        rewrite = _of_struct(kind)
    else:
        rewrite = _of_list(kind)

    def checked(raw: Any) -> bytes:
        try:
            return rewrite(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return bytes(raw)

    return checked


def _of_map(kind: pa.DataType) -> Rewrite:
    item = _rewriting(kind.item_type) if has_map(kind.item_type) else bytes

    def rewrite(raw: Any) -> bytes:
        pairs = _OBJECT.decode(raw)
        return b'{"keys":%b,"values":[%b]}' % (_encoded(list(pairs)), b",".join(item(value) for value in pairs.values()))

    return rewrite


def _of_struct(kind: pa.DataType) -> Rewrite:
    fields = {
        field.name: (_encoded(field.name) + b":", _rewriting(field.type) if has_map(field.type) else bytes) for field in kind
    }

    def rewrite(raw: Any) -> bytes:
        parts = []
        for name, value in _OBJECT.decode(raw).items():
            if name in fields:
                prefix, rewrite_field = fields[name]
                parts.append(prefix + rewrite_field(value))
        return b"{%b}" % b",".join(parts)

    return rewrite


def _of_list(kind: pa.DataType) -> Rewrite:
    item = _rewriting(kind.value_type)
    return lambda raw: b"[%b]" % b",".join(item(value) for value in _LIST.decode(raw))


def _with_maps(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not has_map(kind):
        return column if column.type == kind else column.cast(kind)
    if pa.types.is_struct(kind):
        children = [_with_maps(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        lists = _whole(column)
        items = _with_maps(lists.values, kind.value_type)
        return pa.ListArray.from_arrays(lists.offsets, items, kind, mask=lists.is_null())
    keys, values = (_whole(lists) for lists in column.flatten())
    items = _with_maps(values.values, kind.item_type)
    return pa.MapArray.from_arrays(keys.offsets, keys.values, items, kind, mask=column.is_null())


def _whole(lists: pa.Array) -> pa.Array:
    """The lists as an array that is no slice of another."""
    return pa.concat_arrays([lists, pa.nulls(0, lists.type)]) if lists.offset else lists
