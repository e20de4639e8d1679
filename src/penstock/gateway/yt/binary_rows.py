"""Rows of scalars as binary YSON, column by column: what programs read is written at several times the speed of any row.

A row is put together from a template, `{"column"=value;...};`, with the values of all columns. In binary YSON a string is a 1,
its length and its bytes; numbers may stand as text. Whatever does not fit (an `any`, a value of another type than its column's,
as Kafka's clients may have written) is left to the library that writes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.varint import varint
from penstock.gateway.yt.schema import SIGNED, STRINGS, SYSTEM_COLUMNS, UNSIGNED, Schema

Encode = Callable[[Sequence[Any]], list[bytes]]
"""The values of a column as YSON. TypeError, AttributeError or KeyError if one is not of the type."""

_NULL = b"#"
_BOOLEANS = {True: b"%true", False: b"%false", None: _NULL}


class BinaryRows:
    """Writes rows of one schema; `can_write` is false if it has columns that are not scalar."""

    def __init__(self, schema: Schema) -> None:
        own = [column for column in schema.columns if column.name not in SYSTEM_COLUMNS]
        encoders = [(column.name, _encoder(column.type)) for column in own]
        self.can_write = all(encode is not None for _, encode in encoders)
        self._columns = [(name, encode) for name, encode in encoders if encode is not None]
        self._names = frozenset(name for name, _ in self._columns)
        parts = [_name(name) + b"=%b" for name, _ in self._columns]
        self._middle = b";".join(parts)

    def write(self, rows: list[dict[str, Any]], offsets: list[int], before: bytes, after: list[bytes]) -> bytes | None:
        """Rows as they are stored, between what all of them begin with and what each ends with; None if one of them is not as
        its schema says."""
        names = self._names
        try:
            if not all(row.keys() <= names for row in rows):
                return None
            columns = [encode([row.get(name) for row in rows]) for name, encode in self._columns]
        except (TypeError, AttributeError, KeyError):
            return None
        separator = b";" if self._columns else b""
        template = b"{" + before.replace(b"%", b"%%") + b"%d;" + self._middle + separator + b"%b};"
        return b"".join([template % values for values in zip(offsets, *columns, after, strict=True)])


def _name(name: str) -> bytes:
    raw = name.encode()
    return (b"\x01" + varint(len(raw)) + raw).replace(b"%", b"%%")


def _encoder(type_: str) -> Encode | None:
    if type_ in STRINGS:
        return _strings
    if type_ in SIGNED:
        return _signed
    if type_ in UNSIGNED:
        return _unsigned
    return _booleans if type_ == "boolean" else None


def _strings(values: Sequence[Any]) -> list[bytes]:
    raws = [None if value is None else value.encode() for value in values]
    return [_NULL if raw is None else b"\x01" + varint(len(raw)) + raw for raw in raws]


def _signed(values: Sequence[Any]) -> list[bytes]:
    return [_NULL if value is None else b"%d" % _whole(value) for value in values]


def _unsigned(values: Sequence[Any]) -> list[bytes]:
    return [_NULL if value is None else b"%du" % _whole(value) for value in values]


def _booleans(values: Sequence[Any]) -> list[bytes]:
    if not all(value is None or type(value) is bool for value in values):
        raise TypeError
    return [_BOOLEANS[value] for value in values]


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value
