"""Encodes Arrow rows as Kafka record batches, one batch per partition, without a Python object per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.core.record_compression import compress_like
from penstock.core.record_format import BASE_SEQUENCE, BATCH_HEADER, HEADER_SIZE, LENGTH_FROM, MAGIC, TRANSACTIONAL, seal_batch
from penstock.kafka.client import ProducerIdentity, TopicPartition
from penstock.kernels.arrow_encode import BinaryColumn, HeaderColumn, RecordColumns, choose_partitions, encode_records
from penstock.spark.errors import OptionError, RowError

_ROW_BYTES_MAX: Final = 64 << 20
_FIELDS: Final = ("key", "value", "headers", "topic", "partition")


class ProduceBatch(NamedTuple):
    """A batch to produce, complete except for its sequence number and checksum."""

    topic_partition: TopicPartition
    data: bytearray
    rows: int


class BatchBuilder:
    """Splits rows into batches. `partitions_of` returns the number of partitions of a topic; `turn` is where rows without a key
    start."""

    def __init__(self, topic: str | None, batch_bytes: int, codec: int, partitions_of: Callable[[str], int], turn: int) -> None:
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._codec = codec
        self._partitions_of = partitions_of
        self._turn = turn

    def build(self, rows: pa.RecordBatch, producer: ProducerIdentity, now_ms: int) -> Iterator[ProduceBatch]:
        """Yield the batches of these rows, which keep their order within a partition."""
        if not rows.num_rows:
            return
        self._turn += 1
        keys = _binary(_column(rows, "key"), "key", rows.num_rows)
        values = _binary(_column(rows, "value"), "value", rows.num_rows)
        headers = _column(rows, "headers")
        columns = RecordColumns(keys, values, None if headers is None else _headers(headers))
        for topic_partition, chosen in self._rows_by_partition(rows, keys):
            yield from self._cut(topic_partition, columns, chosen, producer, now_ms)

    def _rows_by_partition(self, rows: pa.RecordBatch, keys: BinaryColumn) -> Iterator[tuple[TopicPartition, NDArray[np.int64]]]:
        """Yield each partition with the numbers of its rows."""
        explicit = _column(rows, "partition")
        for topic, row_numbers in self._topics(rows):
            chosen = self._partitions(topic, keys, rows.num_rows)
            chosen = chosen if row_numbers is None else chosen[row_numbers]
            if explicit is not None and explicit.null_count < len(explicit):
                wanted = explicit if row_numbers is None else explicit.take(pa.array(row_numbers))
                chosen = _explicit_partitions(TopicPartition(topic, self._partitions_of(topic)), chosen, wanted)
            order = np.argsort(chosen, kind="stable")
            ordered = chosen[order]
            cuts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
            for begin, end in pairwise(cuts):
                picked = order[begin:end] if row_numbers is None else row_numbers[order[begin:end]]
                yield TopicPartition(topic, int(ordered[begin])), np.ascontiguousarray(picked, np.int64)

    def _topics(self, rows: pa.RecordBatch) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
        """Yield each topic with the numbers of its rows; None stands for all rows."""
        if self._topic is not None:
            yield self._topic, None
            return
        named = _column(rows, "topic")
        if named is None:
            raise OptionError("say which topic to write to: option topic, or a column topic")
        if named.null_count:
            raise RowError("a row has no topic; fill the column topic in every row, or give the option topic")
        encoded = pc.dictionary_encode(named.cast(pa.string()))
        codes = encoded.indices.to_numpy()
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, np.flatnonzero(codes == code)

    def _partitions(self, topic: str, keys: BinaryColumn, count: int) -> NDArray[np.int32]:
        """Return the partition of each row by the hash of its key; rows without a key go round-robin, one batch at a time."""
        partitions = self._partitions_of(topic)
        chosen = np.empty(count, np.int32)
        choose_partitions(keys, partitions, self._turn % partitions, chosen)
        return chosen

    def _cut(
        self,
        topic_partition: TopicPartition,
        columns: RecordColumns,
        rows: NDArray[np.int64],
        producer: ProducerIdentity,
        now_ms: int,
    ) -> Iterator[ProduceBatch]:
        size = self._batch_bytes
        begin = 0
        while begin < len(rows):
            data = bytearray(HEADER_SIZE + size)
            end, used = encode_records(columns, rows, begin, memoryview(data)[HEADER_SIZE:])
            if end == begin:
                # A single row that exceeds the batch size gets a batch of its own.
                size *= 4
                if size > _ROW_BYTES_MAX:
                    raise RowError(f"a row for {topic_partition} has more than {_ROW_BYTES_MAX >> 20} MiB, which no topic takes")
                continue
            del data[HEADER_SIZE + used :]
            yield ProduceBatch(topic_partition, self._write_header(data, end - begin, producer, now_ms), end - begin)
            begin, size = end, self._batch_bytes

    def _write_header(self, data: bytearray, count: int, producer: ProducerIdentity, now_ms: int) -> bytearray:
        attributes = TRANSACTIONAL if producer.is_transactional else 0
        if self._codec:
            data[HEADER_SIZE:] = compress_like(self._codec, memoryview(b""), memoryview(data)[HEADER_SIZE:])
            attributes |= self._codec
        fields = (attributes, count - 1, now_ms, now_ms, producer.id, producer.epoch, -1, count)
        BATCH_HEADER.pack_into(data, 0, 0, len(data) - LENGTH_FROM, -1, MAGIC, 0, *fields)
        return data


def with_sequence(data: bytearray, sequence: int) -> bytearray:
    """Set the sequence number of a batch, and its checksum, which covers it."""
    data[BASE_SEQUENCE] = sequence.to_bytes(4, "big", signed=True)
    seal_batch(data)
    return data


def check_schema(names: list[str], topic: str | None) -> None:
    """Raise OptionError unless rows with these columns can be written."""
    unknown = [name for name in names if name not in _FIELDS]
    if "value" not in names or unknown:
        said = f"{', '.join(unknown)} is none of them" if unknown else "value is missing"
        raise OptionError(
            f"the columns that are written are {', '.join(_FIELDS)}: {said}; select and rename what is to be written"
        )
    if topic is None and "topic" not in names:
        raise OptionError("say which topic to write to: option topic, or a column topic")


def _explicit_partitions(end: TopicPartition, chosen: NDArray[np.int32], explicit: pa.Array) -> NDArray[np.int32]:
    """Return `chosen`, overridden by the partitions that rows name; `end` is the one after the topic's last."""
    wanted = pc.fill_null(explicit.cast(pa.int32()), -1).to_numpy(zero_copy_only=False)
    named = explicit.is_valid().to_numpy(zero_copy_only=False)
    wrong = named & ((wanted < 0) | (wanted >= end.partition))
    if wrong.any():
        raise RowError(
            f"a row asks for partition {wanted[wrong][0]} of {end.topic!r}, which has partitions 0..{end.partition - 1}"
        )
    return np.where(named, wanted, chosen).astype(np.int32)


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    at = rows.schema.get_field_index(name)
    return None if at < 0 else rows.column(at)


def _binary(column: pa.Array | None, name: str, count: int) -> BinaryColumn:
    if column is None or pa.types.is_null(column.type):
        return BinaryColumn(np.zeros(count + 1, np.int32), b"", bytes((count + 7) // 8), 0)
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        try:
            column = column.cast(pa.binary())
        except pa.ArrowException:
            raise OptionError(f"column {name} is {column.type}; it must be binary or string: cast it, or use to_json") from None
    validity, offsets, data = column.buffers()
    return BinaryColumn(
        np.frombuffer(offsets, np.int32) if offsets is not None else np.zeros(1, np.int32),
        _bytes(data),
        _bytes(validity) if column.null_count else b"",
        column.offset,
    )


def _headers(column: Any) -> HeaderColumn:
    fields = column.values.flatten()
    keys = _binary(fields[0], "headers.key", len(fields[0]))
    values = _binary(fields[1], "headers.value", len(fields[1]))
    return HeaderColumn(column.offsets.to_numpy(), 0, keys, values)


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer).cast("B")
