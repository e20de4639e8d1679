"""Values as the serializers of Confluent write them: a zero byte, the id of the schema in four bytes, then the value itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.arrow_types import project
from penstock.spark.errors import MalformedValueError
from penstock.spark.malformed import MalformedValue
from penstock.spark.registry_client import RegisteredSchema, SchemaRegistry
from penstock.spark.value_format import ValueFormat, bytes_column, decode_column, in_order

PREFIX_BYTES: Final = 5
VALUE_BYTES_MAX: Final = (1 << 31) - 1


def frame_of(value: bytes | None) -> int | None:
    """The id of the schema that a value is framed with; None if it does not look framed."""
    if value is None or len(value) <= PREFIX_BYTES or value[0] != 0:
        return None
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def framing_hint(value: bytes | None) -> str:
    """What to say of a value that could not be decoded and looks framed; empty for others."""
    schema_id = frame_of(value)
    if schema_id is None:
        return ""
    return (
        f" (it begins with a zero byte and the number {schema_id}, as Confluent's serializers write with schema {schema_id} of a "
        "registry: give the registry's address)"
    )


class FramedFormat:
    """Values of any schemas of a registry: each is decoded with its own, and its fields are taken by name."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(
        self, kind: pa.DataType, registry: SchemaRegistry, make: Callable[[RegisteredSchema], ValueFormat], *, fails: bool
    ) -> None:
        self._kind = kind
        self._registry = registry
        self._make = make
        self._formats: dict[int, ValueFormat] = {}
        self._fails = fails
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        values = bytes_column(text, starts, valid)
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        sizes = np.diff(np.asarray(starts))
        data = np.frombuffer(text, np.uint8)
        begins = np.asarray(starts)[:-1]
        framed = is_valid & (sizes > PREFIX_BYTES)
        framed[framed] = data[begins[framed]] == 0
        ids = np.zeros(len(values), np.int64)
        for at in range(1, PREFIX_BYTES):
            ids[framed] = (ids[framed] << 8) | data[begins[framed] + at]
        for row in np.flatnonzero(is_valid & ~framed):
            self._refuse(int(row), "not framed with the id of a schema, though a registry is given", offsets)
        parts: list[pa.Array] = []
        places: list[Any] = []
        for schema_id in np.unique(ids[framed]):
            rows = np.flatnonzero(framed & (ids == schema_id))
            parts.append(self._decode_one(int(schema_id), values, rows, offsets))
            places.append(rows)
        return in_order(parts, places, len(values), self._kind)

    def _decode_one(self, schema_id: int, values: pa.Array, rows: Any, offsets: Any) -> pa.Array:
        form = self._formats.get(schema_id)
        if form is None:
            form = self._formats[schema_id] = self._make(self._registry.schema(schema_id))
        form.malformed = [] if self.malformed is not None else None
        own = pc.binary_slice(values.take(pa.array(rows)), PREFIX_BYTES, stop=VALUE_BYTES_MAX)
        decoded = project(decode_column(form, own, np.asarray(offsets)[rows]), self._kind)
        if self.malformed is not None and form.malformed:
            self.malformed += [MalformedValue(int(rows[bad.row]), f"{bad.reason}; schema {schema_id}") for bad in form.malformed]
        return decoded

    def _refuse(self, row: int, reason: str, offsets: Any) -> None:
        if self._fails:
            raise MalformedValueError(f"the value at offset {offsets[row]} is {reason}")
        if self.malformed is not None:
            self.malformed.append(MalformedValue(row, reason))
