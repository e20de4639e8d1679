"""What decoders of values have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.malformed import MalformedValue

_MISFITS: Final = (pa.ArrowException, ArithmeticError, TypeError, ValueError)


class ValueFormat(Protocol):
    """Decodes values to a column."""

    wrapping: tuple[bytes, bytes, bytes] | None
    """What stands before and after each value, and in place of a null, in the text to decode."""
    malformed: list[MalformedValue] | None
    """Where there is a list, `decode` adds the values to it that are null only because they could not be decoded."""

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """One row for each value; `offsets` are those of the records, for errors."""
        ...


def decode_column(form: ValueFormat, values: pa.Array, offsets: Any = None) -> pa.Array:
    """A column of bytes decoded."""
    valid = values
    if form.wrapping is not None:
        before, after, null = form.wrapping
        values = pc.binary_join_element_wise(
            pa.scalar(before, pa.binary()), pc.fill_null(values, null), pa.scalar(after, pa.binary()), pa.scalar(b"", pa.binary())
        )
    elif values.offset:
        values = pa.concat_arrays([values, pa.nulls(0, values.type)])
    _, starts, data = values.buffers()
    begins = np.frombuffer(starts, np.int32)[values.offset : values.offset + len(values) + 1]
    bits = pa.array(np.packbits(valid.is_valid().to_numpy(zero_copy_only=False), bitorder="little")).buffers()[1]
    text = data if data is not None else pa.py_buffer(b"")
    return form.decode(text, begins, bits if valid.null_count else None, begins if offsets is None else offsets)


def check_utf8(text: pa.Buffer) -> None:
    """ArrowInvalid if a text is not UTF-8. Readers of Arrow do not look, and readers of tables refuse what is not."""
    whole = pa.py_buffer(np.array([0, text.size], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, whole, text]).validate(full=True)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid("it is not UTF-8") from error


def rows_without_utf8(column: pa.Array) -> set[int]:
    """The rows of a column that hold a text that is not UTF-8, in a field of a struct too."""
    if pa.types.is_struct(column.type):
        return set[int]().union(*(rows_without_utf8(field) for field in column.flatten()))
    if not pa.types.is_string(column.type):
        return set()
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return {
            row for row, value in enumerate(column.view(pa.binary()).to_pylist()) if value is not None and not _is_utf8(value)
        }
    return set()


def replaced_utf8(texts: pa.Array) -> pa.Array:
    """Texts as they are, or with the replacement character for bytes that are not UTF-8, as Kafka's Java client has it."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        values = texts.view(pa.binary()).to_pylist()
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in values], texts.type)
    return texts


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def in_order(parts: list[pa.Array], places: list[Any], count: int, kind: pa.DataType) -> pa.Array:
    """Rows of several columns in one, each at its place; null where there is none."""
    if not parts:
        return pa.nulls(count, kind)
    at = np.full(count, -1, np.int64)
    at[np.concatenate(places)] = np.arange(sum(len(rows) for rows in places))
    return pa.concat_arrays(parts).take(pa.array(at, mask=at < 0))


def fitting_column(values: list[Any], kind: pa.DataType, note: Callable[[int, Exception], None]) -> pa.Array:
    """A column of Python values; those that are not of the type are noted, and null."""
    try:
        return pa.array(values, kind)
    except _MISFITS:
        pass  # found one by one, since that takes several times as long
    for row, value in enumerate(values):
        try:
            pa.scalar(value, kind)
        except _MISFITS as error:
            values[row] = None
            note(row, error)
    return pa.array(values, kind)


def count_empty(values: pa.Array) -> int:
    """How many decoded values have none of the fields of their schema: they are there, and every field is null."""
    if not pa.types.is_struct(values.type) or not len(values):
        return 0
    fields = values.flatten()
    if any(field.null_count == 0 for field in fields):
        return 0
    empty = values.is_valid()
    for field in fields:
        empty = pc.and_(empty, field.is_null())
    return int(pc.sum(empty).as_py() or 0)


def bytes_column(text: pa.Buffer, starts: Any, valid: pa.Buffer | None) -> pa.Array:
    """The values that `decode` was given, as a column of bytes."""
    begins = pa.py_buffer(np.ascontiguousarray(starts, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1, [valid, begins, text])
