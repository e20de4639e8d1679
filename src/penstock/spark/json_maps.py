"""JSON values with maps: objects whose names are data. The compiled reader knows none.

Maps of texts beside other columns are read by msgspec, one value at a time, and the rest by the compiled reader. Where maps are
elsewhere, or of something else, or a value is wrong, each value is rewritten first, with a list of keys and one of values for
each map; all else in it is copied as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.spark.errors import MalformedValueError
from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import ValueFormat, bytes_column, decode_column

Rewrite = Callable[[Any], bytes]

_TEXTS: Final = pa.map_(pa.string(), pa.string())

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


class TextMaps(NamedTuple):
    """Columns that are maps of texts, and what reads them of a value; the other columns."""

    names: tuple[str, ...]
    decode: Callable[[bytes], Any]
    others: pa.DataType


def text_maps(kind: pa.DataType) -> TextMaps | None:
    """The maps of a type, if they are all columns of texts by texts, and not all columns are."""
    names = tuple(field.name for field in kind if field.type == _TEXTS)
    others = pa.struct([field for field in kind if field.type != _TEXTS])
    if not names or not len(others) or has_map(others):
        return None
    fields = [(f"map_{number}", dict[str, str | None] | None, None) for number in range(len(names))]
    maps = msgspec.defstruct("Maps", fields, rename={f"map_{number}": name for number, name in enumerate(names)})
    return TextMaps(names, msgspec.json.Decoder(maps).decode, others)


class MapJsonFormat:
    """Decodes what `inner` does, with maps; with `maps` the quick way, where `others` decodes or refuses the other columns."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(
        self, kind: pa.DataType, inner: ValueFormat, maps: TextMaps | None = None, others: ValueFormat | None = None
    ) -> None:
        self._kind = kind
        self._inner = inner
        self._maps = maps
        self._others = others
        self._rewrite = _rewriting(kind)
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        column = bytes_column(text, starts, valid)
        values = column.to_pylist()
        if self._maps is not None and self._others is not None:
            try:
                return self._with_text_maps(self._maps, decode_column(self._others, column), values)
            except (MalformedValueError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass  # the other way finds out which value is wrong
        self._inner.malformed = self.malformed
        rewrite = self._rewrite
        rewritten = [None if value is None else rewrite(value) for value in values]
        return _with_maps(decode_column(self._inner, pa.array(rewritten, pa.binary()), offsets), self._kind)

    def _with_text_maps(self, maps: TextMaps, others: pa.Array, values: list[bytes | None]) -> pa.Array:
        decoded = [None if value is None else maps.decode(value) for value in values]
        columns = dict(zip((field.name for field in others.type), others.flatten(), strict=True))
        for number, name in enumerate(maps.names):
            columns[name] = _map_column([getattr(value, f"map_{number}", None) for value in decoded])
        return pa.StructArray.from_arrays(
            [columns[field.name] for field in self._kind], fields=list(self._kind), mask=others.is_null()
        )


def _map_column(maps: list[dict[str, str | None] | None]) -> pa.Array:
    ends = np.cumsum([0, *(len(texts) if texts else 0 for texts in maps)], dtype=np.int32)
    keys = pa.array([key for texts in maps if texts for key in texts], pa.string())
    items = pa.array([item for texts in maps if texts for item in texts.values()], pa.string())
    return pa.MapArray.from_arrays(pa.array(ends), keys, items, _TEXTS, mask=pa.array([texts is None for texts in maps]))


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
