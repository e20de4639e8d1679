"""Decodes values to columns in compiled code, a whole record batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.json

from penstock.spark.avro_format import AvroFormat, BeyondProgramError, avro_type
from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue

Decode = Callable[[int, int], pa.Array]


class ValueFormat(Protocol):
    """Decodes values to a column."""

    wrapping: tuple[bytes, bytes, bytes] | None
    """What stands before and after each value, and in place of a null, in the text to decode."""
    malformed: list[MalformedValue] | None
    """Where there is a list, `decode` adds the values to it that are null only because they could not be decoded."""

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """One row for each value; `offsets` are those of the records, for errors."""
        ...


class JsonFormat:
    """Values that are one JSON object each.

    Each is wrapped into an object of its own before all are parsed at once. So an empty value, or half of one, is an error and
    never a row too few, and two objects in one value are a row too many: if there are as many rows as values, row and value
    belong together.
    """

    wrapping: tuple[bytes, bytes, bytes] | None = (b'{"v":', b"}\n", b"null")

    def __init__(self, kind: pa.DataType, *, fails: bool) -> None:
        self._kind = kind
        self._fails = fails
        self.malformed: list[MalformedValue] | None = None
        self._parse = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", kind)]), newlines_in_values=True, unexpected_field_behavior="ignore"
        )
        try:
            self._rows(pa.py_buffer(b'{"v":null}\n'))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OptionError(f"valueFormat json cannot decode to {kind}: {error}") from error

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""

        def some(first: int, last: int) -> pa.Array:
            return self._rows(text.slice(int(starts[first]), int(starts[last] - starts[first])))

        return decode_valid_values(
            some, len(starts) - 1, self._kind, offsets if self._fails else None, "JSON", malformed=self.malformed
        )

    def _rows(self, text: pa.Buffer) -> pa.Array:
        # One block, whatever its size: pyarrow does not know where to cut one.
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=max(text.size + 1, 64))
        table = pyarrow.json.read_json(pa.BufferReader(text), read_options=reading, parse_options=self._parse)
        return table.column(0).combine_chunks() if table.num_rows != 0 else pa.nulls(0, self._kind)


def decode_valid_values(
    decode: Decode, rows: int, kind: pa.DataType, offsets: Any, name: str, *, malformed: list[MalformedValue] | None = None
) -> pa.Array:
    """Decode rows together; if that does not work, by halves, until the bad ones are alone. Those are null and noted in
    `malformed`, or an error that names the first by its offset, where `offsets` are given."""
    if rows == 0:
        return pa.nulls(0, kind)
    parts: list[pa.Array] = []
    left = [(0, rows)]
    while left:
        first, last = left.pop()
        why = "it holds more than one"
        try:
            values = decode(first, last)
            if len(values) == last - first:
                parts.append(values)
                continue
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            why = str(error)
        if last - first > 1:
            middle = (first + last) // 2
            left += [(middle, last), (first, middle)]
        elif offsets is not None:
            raise MalformedValueError(
                f"the value at offset {offsets[first]} is not {name} of type {kind}: {why}. Set onMalformed to null to have null "
                "in its place"
            )
        else:
            parts.append(pa.nulls(1, kind))
            if malformed is not None:
                malformed.append(MalformedValue(first, f"not {name} of type {kind}: {why}"))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def value_format(name: str | None, kind: pa.DataType | None, schema: str | None, *, fails: bool) -> ValueFormat | None:
    """The decoder for values of `kind`; None if they stay bytes."""
    if name is None or kind is None:
        return None
    if name == "json":
        return JsonFormat(kind, fails=fails)
    if schema is None:
        raise OptionError("valueFormat avro needs valueSchema: the schema that the values were written with")
    try:
        return AvroFormat(kind, schema, fails=fails)
    except BeyondProgramError:
        from penstock.spark.avro_any import AnyAvroFormat

        return AnyAvroFormat(kind, schema, fails=fails)


def value_type_of(name: str | None, schema: str | None) -> str | None:
    """The Spark type, as DDL, of decoded values; None if they stay bytes."""
    if name is None:
        return None
    if schema is None:
        raise OptionError(f"valueFormat {name} needs to know the columns: give valueSchema, or a schema with value as a struct")
    return avro_type(schema) if name == "avro" else f"STRUCT<{schema}>"
