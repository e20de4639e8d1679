"""Reads committed rows of a queue from an offset on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from yt.yson import YsonUint64

from penstock.blob import Buffer, FilePiece
from penstock.core.record_format import base_offset_of, read_headers, without_own
from penstock.gateway.yt.binary_rows import RowEnvelope, write_binary
from penstock.gateway.yt.formats import YSON, Format, write_rows
from penstock.gateway.yt.queue_subjects import QueueSubjects
from penstock.gateway.yt.row_batch import ReadBatch, commit_timestamp, read_row_batch
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.schema import ROW_INDEX, TABLET_INDEX, TIMESTAMP, WEIGHT
from penstock.queue import Partition, ReadResult, committed_batches, joined

ROWS_DEFAULT = 1000
ROWS_MAX = 100_000
BYTES_DEFAULT = 16 << 20
READ_BYTES_MAX = 4 << 20
LIBRARY_ROWS = 100  # encoded by the library after a row that the kernel cannot encode

Row = dict[str, Any]


class BatchSpan(NamedTuple):
    """Consecutive rows of a batch."""

    batch: ReadBatch
    part: slice
    offsets: list[int]


class PulledRows(NamedTuple):
    """Rows in their stored form. `start_offset` is that of the first row, or the requested offset if there are none."""

    spans: list[BatchSpan]
    start_offset: int
    number: int
    codec: RowCodec | None

    @property
    def next_offset(self) -> int | None:
        """The offset after the last row. None if there are no rows."""
        return self.spans[-1].offsets[-1] + 1 if self.spans else None

    def rows(self) -> list[Row]:
        """Decode the rows."""
        return [row for span in self.spans for row in _decode_span(span, self.codec, self.number)]

    def encode(self, format_: Format) -> bytes:
        """Encode the rows in the format of a client."""
        if format_.name == YSON and format_.form == "binary" and self.codec is not None and self.codec.columns.are_scalar:
            return b"".join(piece for span in self.spans for piece in _encode_binary(span, self.codec, self.number))
        return write_rows(format_, self.rows())


async def pull(
    partition: Partition,
    codec: RowCodec | None,
    offset: int,
    *,
    rows_max: int,
    weight_max: int,
    subjects: QueueSubjects | None = None,
) -> PulledRows:
    """Read rows from an offset on, up to a number and a weight, but at least one if there is any. Reading starts at the first
    retained row if the offset is below it. Values that name a schema are read by `subjects`."""
    at = max(offset, partition.start_offset)
    spans: list[BatchSpan] = []
    left, is_full = rows_max, False
    while at < partition.stable_offset and not is_full:
        read = await partition.read(at, min(weight_max, READ_BYTES_MAX), until=partition.stable_offset)
        for batch in committed_batches(_contiguous(read), partition.aborted_between(at, read.next_offset)):
            first = max(at, partition.start_offset)
            parsed = read_row_batch(batch, max(first, base_offset_of(batch)) + left, partition.origins.marked_from)
            if parsed is None:
                continue
            if subjects is not None and codec is not None:
                parsed = await subjects.unframed(parsed)
            part = parsed.from_offset(first, left)
            available = len(parsed.offsets(part))
            part, weight = parsed.within_weight(part, weight_max, at_least=0 if spans else 1)
            offsets = parsed.offsets(part)
            if offsets:
                spans.append(BatchSpan(parsed, part, offsets))
            left -= len(offsets)
            weight_max -= weight
            is_full = left <= 0 or weight_max <= 0 or len(offsets) < available
            if is_full:
                break
        if read.next_offset <= at:
            break
        at = read.next_offset
        if not spans:
            await asyncio.sleep(0)  # a long run without rows may be read from memory without suspending
    start = spans[0].offsets[0] if spans else max(offset, partition.start_offset)
    return PulledRows(spans, start, partition.number, codec)


def _contiguous(read: ReadResult) -> Buffer:
    """The batches that were read, in one buffer."""
    data = read.batches[0] if len(read.batches) == 1 else joined(read)
    assert not isinstance(data, FilePiece), "this read does not ask for files"
    return data


def table_rows(batch: ReadBatch, part: slice, codec: RowCodec | None) -> list[Row]:
    """Rows of a batch as rows of a static table, without their place in the queue."""
    rows = _decode_span(BatchSpan(batch, part, batch.offsets(part)), codec, 0)
    for row in rows:
        del row[TABLET_INDEX], row[ROW_INDEX]
    return rows


def _encode_binary(span: BatchSpan, codec: RowCodec, number: int) -> Iterator[bytes | memoryview]:
    """Encode rows as binary YSON. A row that the kernel cannot encode is left to the library, with some rows after it."""
    batch, part, offsets = span
    envelope = _row_envelope(batch, codec, number)
    at, end = part.start, part.start + len(offsets)
    while at < end:
        weights = envelope.weights[at:end]
        pieces, count = write_binary(codec.columns, batch.records, batch.table[at:end], envelope._replace(weights=weights))
        yield from pieces
        at += count
        tail = slice(at, min(at + LIBRARY_ROWS, end))
        if at < end:
            yield write_rows(Format(YSON, "binary"), _decode_span(BatchSpan(batch, tail, batch.offsets(tail)), codec, number))
        at = tail.stop


def _row_envelope(batch: ReadBatch, codec: RowCodec, number: int) -> RowEnvelope:
    before = b'{"%b"=%d;"%b"=' % (TABLET_INDEX.encode(), number, ROW_INDEX.encode())
    after = b'"%b"=%du;' % (TIMESTAMP.encode(), batch.timestamp) if codec.schema.has(TIMESTAMP) else b""
    weights = np.empty(0, np.int64)
    if codec.has_weight:
        after += b'"%b"=' % WEIGHT.encode()
        if batch.weights is None:
            after += b"#;"
        else:
            weights = batch.weights
    return RowEnvelope(batch.base_offset, before, after, weights)


def _decode_span(span: BatchSpan, codec: RowCodec | None, number: int) -> list[Row]:
    batch, part, offsets = span
    if codec is None:
        return _kafka_rows(batch, part, number)
    after: Row = {}
    if codec.schema.has(TIMESTAMP):
        after[TIMESTAMP] = YsonUint64(batch.timestamp)
    around = ({TABLET_INDEX: number, ROW_INDEX: 0}, after)
    are_checked = batch.is_checked or codec.columns.are_plain(batch.records, batch.table[part])
    rows = codec.decode(batch.values(part), lambda: batch.keys(part), around, are_checked=are_checked)
    for offset, row in zip(offsets, rows, strict=True):
        row[ROW_INDEX] = offset
    if codec.has_weight:
        weights: list[Any] = [None] * len(offsets) if batch.weights is None else batch.weights[part].tolist()
        for weight, row in zip(weights, rows, strict=True):
            row[WEIGHT] = weight
    return rows


def _kafka_rows(batch: ReadBatch, part: slice, number: int) -> list[Row]:
    """Messages of Kafka's clients, as rows."""
    columns = (batch.offsets(part), batch.keys(part), batch.values(part), batch.headers(part), batch.times(part))
    return [
        {
            TABLET_INDEX: number,
            ROW_INDEX: offset,
            "key": key,
            "value": value,
            "headers": [list(header) for header in without_own(read_headers(headers, 0), batch.own_prefix)],
            TIMESTAMP: YsonUint64(commit_timestamp(time_ms, offset)),
        }
        for offset, key, value, headers, time_ms in zip(*columns, strict=True)
    ]
