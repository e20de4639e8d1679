"""Buffers that the decoder fills, which become Arrow record batches without a copy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.kafka.client import TopicPartition
from penstock.kernels.arrow_decode import ArrowRoom, OctetsRoom
from penstock.spark.columns import Layout
from penstock.spark.errors import MalformedValueError
from penstock.spark.framing import framing_hint
from penstock.spark.malformed import DEAD_SCHEMA, REASON_CHARACTERS, MalformedValue
from penstock.spark.value_format import ValueFormat, replaced_utf8

ROWS_MAX: Final = 1 << 16
BYTES_MAX: Final = 16 << 20
BYTES_MIN: Final = 64 << 10
HEADERS_A_ROW: Final = 4


class _Memory:
    """An Arrow buffer with a writable NumPy view."""

    __slots__ = ("array", "buffer")

    def __init__(self, count: int, kind: type[np.generic]) -> None:
        self.buffer = pa.allocate_buffer(count * np.dtype(kind).itemsize)
        self.array: Any = np.frombuffer(self.buffer, kind)


class _Bits(_Memory):
    """A bitmap of rows, initially zero."""

    __slots__ = ()

    def __init__(self, rows: int) -> None:
        super().__init__((rows + 7) // 8, np.uint8)
        self.array.fill(0)


class _Octets:
    """Memory for byte strings."""

    def __init__(self, rows: int, size: int, wrapping: tuple[bytes, bytes, bytes] | None = None) -> None:
        self._offsets, self._validity, self._data = _Memory(rows + 1, np.int32), _Bits(rows), _Memory(size, np.uint8)
        self.room = OctetsRoom(self._offsets.array, self._validity.array, self._data.array, wrapping)

    @property
    def text(self) -> pa.Buffer:
        """All bytes that were written."""
        return self._data.buffer.slice(0, self.room.used)

    @property
    def offsets(self) -> Any:
        """Where each string begins, and where the last ends."""
        return self._offsets.array[: self.room.rows + 1]

    @property
    def valid(self) -> pa.Buffer | None:
        """A bit for each string that is not null, or nothing if all are there."""
        return self._validity.buffer if self.room.nulls else None

    def array(self, kind: pa.DataType) -> pa.Array:
        """The strings as a column."""
        room = self.room
        return pa.Array.from_buffers(kind, room.rows, [self.valid, self._offsets.buffer, self.text], room.nulls)


class ArrowBatchBuilder:
    """Builds one record batch: the decoder fills `room`, `finish` returns the batch."""

    def __init__(self, factory: ArrowBatchFactory, rows: int, size: int, headers: int) -> None:
        self._factory = factory
        layout = factory.layout
        self._offsets, self._timestamps = _Memory(rows, np.int64), _Memory(rows, np.int64)
        self._types = _Memory(rows, np.int32)
        form = factory.value_format
        self._keys = _Octets(rows, size) if layout.has("key") else None
        self._values = _Octets(rows, size, form.wrapping if form is not None else None) if layout.has("value") else None
        self._headers: tuple[_Memory, _Bits, _Octets, _Octets] | None = None
        if layout.has("headers"):
            self._headers = _Memory(rows + 1, np.int32), _Bits(rows), _Octets(headers, size), _Octets(headers, size)
        self.room = ArrowRoom(
            (self._offsets.array, self._timestamps.array, self._types.array),
            self._keys.room if self._keys is not None else None,
            self._values.room if self._values is not None else None,
            self._header_room(),
        )

    def finish(self) -> pa.RecordBatch:
        """The rows that were filled."""
        schema = self._factory.layout.schema
        return pa.RecordBatch.from_arrays([self._column(field) for field in schema], schema=schema)

    def finish_with_dead(self) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The decoded rows, and the rows that could not be decoded in DEAD_SCHEMA, if there are any."""
        form = self._factory.value_format
        if form is None:
            return self.finish(), None
        form.malformed = []
        batch, bad = self.finish(), form.malformed
        if not bad:
            return batch, None
        is_good = np.ones(batch.num_rows, bool)
        is_good[[value.row for value in bad]] = False
        return batch.filter(pa.array(is_good)), self._dead(bad)

    def _dead(self, bad: list[MalformedValue]) -> pa.RecordBatch:
        assert self._values is not None
        rows = np.array([value.row for value in bad])
        values = [self._stored_value(self._values, int(row)) for row in rows]
        reasons = [f"{one.reason}{framing_hint(value)}" for one, value in zip(bad, values, strict=True)]
        keys = pa.nulls(len(rows), pa.binary()) if self._keys is None else self._keys.array(pa.binary()).take(pa.array(rows))
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(self._factory.topic_partition.topic, pa.string()), len(rows)),
                pa.repeat(pa.scalar(self._factory.topic_partition.partition, pa.int32()), len(rows)),
                pa.array(self._offsets.array[rows], pa.int64()),
                pa.array(self._timestamps.array[rows], pa.int64()).cast(pa.timestamp("us", "UTC")),
                keys,
                pa.array(values, pa.binary()),
                pa.array([reason[:REASON_CHARACTERS] for reason in reasons], pa.string()),
            ],
            schema=DEAD_SCHEMA,
        )

    def _header_room(self) -> Any:
        if self._headers is None:
            return None
        starts, validity, keys, values = self._headers
        return starts.array, validity.array, keys.room, values.room

    def _column(self, field: pa.Field) -> pa.Array:
        rows = self.room.rows
        if field.name in ("topic", "partition"):
            return self._factory.constant(field.name, rows)
        if field.name == "key":
            assert self._keys is not None
            return self._keys.array(field.type)
        if field.name == "value":
            assert self._values is not None
            return self._value_column(self._values, field.type)
        if field.name == "headers":
            return self._header_column(field.type)
        numbers = {"offset": self._offsets, "timestamp": self._timestamps, "timestampType": self._types}[field.name]
        return pa.Array.from_buffers(field.type, rows, [None, numbers.buffer], 0)

    def _value_column(self, values: _Octets, kind: pa.DataType) -> pa.Array:
        form = self._factory.value_format
        if form is None:
            return values.array(kind)
        try:
            column = form.decode(values.text, values.offsets, values.valid, self._offsets.array)
        except MalformedValueError as error:
            raise MalformedValueError(f"{error}{framing_hint(self._stored_value(values, 0))}") from error
        rows, nulls = self.room.rows, values.room.nulls
        if form.malformed is None and column.null_count == rows > nulls:
            # Not one could be decoded: this is no bad value, but the wrong format.
            hints = {framing_hint(self._stored_value(values, row)) for row in range(rows) if nulls == 0}
            if hints and "" not in hints:
                raise MalformedValueError(f"no value of this batch can be decoded{min(hints)}")
        return column

    def _stored_value(self, values: _Octets, row: int) -> bytes:
        """The bytes of a value as they were stored."""
        form = self._factory.value_format
        before, after = (len(affix) for affix in form.wrapping[:2]) if form is not None and form.wrapping is not None else (0, 0)
        text, starts = memoryview(values.text).cast("B"), values.offsets
        return bytes(text[int(starts[row]) + before : int(starts[row + 1]) - after])

    def _header_column(self, kind: pa.DataType) -> pa.Array:
        assert self._headers is not None
        starts, validity, keys, values = self._headers
        pairs = pa.StructArray.from_arrays(
            [replaced_utf8(keys.array(kind.value_type.field(0).type)), values.array(kind.value_type.field(1).type)],
            fields=[kind.value_type.field(0), kind.value_type.field(1)],
        )
        valid = validity.buffer if self.room.header_nulls else None
        return pa.Array.from_buffers(kind, self.room.rows, [valid, starts.buffer], self.room.header_nulls, children=[pairs])


class ArrowBatchFactory:
    """Creates record batches of one partition."""

    def __init__(self, layout: Layout, topic_partition: TopicPartition, value_format: ValueFormat | None) -> None:
        self.layout = layout
        self.value_format = value_format
        self.topic_partition = topic_partition
        self._constants: dict[str, pa.Array] = {}

    def start(self, size_hint: int, needed: int, rows_hint: int) -> ArrowBatchBuilder:
        """An empty record batch: for about so many bytes of records, of which the next one needs `needed`."""
        rows = max(min(rows_hint, ROWS_MAX), 1)
        # A single record may exceed the batch size, and needs some room around it.
        size = max(min(size_hint * 2, BYTES_MAX), BYTES_MIN, needed + 256)
        # The same for its headers, which take two bytes each at least.
        return ArrowBatchBuilder(self, rows, size, max(rows * HEADERS_A_ROW, needed // 2))

    def constant(self, name: str, rows: int) -> pa.Array:
        """A column that is the same in every row."""
        column = self._constants.get(name)
        if column is None or len(column) < rows:
            column = self._constants[name] = self._repeated(name, rows)
        return column.slice(0, rows)

    def _repeated(self, name: str, rows: int) -> pa.Array:
        # From plain memory: of a Python value Arrow asks pandas whether it is one of its own, and imports it to be able to.
        if name == "partition":
            numbers = np.full(rows, self.topic_partition.partition, np.int32)
            return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(numbers)], 0)
        text = self.topic_partition.topic.encode()
        starts = np.arange(rows + 1, dtype=np.int32) * len(text)
        return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(starts), pa.py_buffer(text * rows)], 0)
