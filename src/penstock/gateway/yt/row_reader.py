"""Reading rows of a queue from an offset on, as committed: what is not, and what was aborted, is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from yt.yson import YsonUint64

from penstock.blob import Buffer, FilePiece
from penstock.core.record_format import base_offset_of, read_headers, without_own
from penstock.gateway.yt.binary_rows import Surroundings, write_binary
from penstock.gateway.yt.formats import YSON, Format, write_rows
from penstock.gateway.yt.row_batch import ReadBatch, commit_timestamp, read_row_batch
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.schema import ROW_INDEX, TABLET_INDEX, TIMESTAMP, WEIGHT
from penstock.queue import Partition, ReadResult, committed_batches, joined

ROWS_DEFAULT = 1000
ROWS_MAX = 100_000
BYTES_DEFAULT = 16 << 20
READ_BYTES_MAX = 4 << 20
LONG_WAY_ROWS = 100

Row = dict[str, Any]


class Stretch(NamedTuple):
    """Some of the rows of a batch."""

    batch: ReadBatch
    part: slice
    offsets: list[int]


class Pulled(NamedTuple):
    """Rows where they are stored, and the offset of the first of them, or the one that was asked for if there are none."""

    stretches: list[Stretch]
    start_offset: int
    number: int
    codec: RowCodec | None

    @property
    def next_offset(self) -> int | None:
        """The offset after the last row; None if there is none."""
        return self.stretches[-1].offsets[-1] + 1 if self.stretches else None

    def rows(self) -> list[Row]:
        """The rows themselves."""
        return [row for stretch in self.stretches for row in _rows_of(stretch, self.codec, self.number)]

    def written(self, format_: Format) -> bytes:
        """The rows as they are sent."""
        if format_.name == YSON and format_.form == "binary" and self.codec is not None and self.codec.columns.are_scalar:
            return b"".join(piece for stretch in self.stretches for piece in _binary(stretch, self.codec, self.number))
        return write_rows(format_, self.rows())


async def pull(partition: Partition, codec: RowCodec | None, offset: int, *, rows_max: int, weight_max: int) -> Pulled:
    """Rows from an offset on: at least one if there is any, and no more than are asked for, by number and by weight. Below the
    first row that is kept, reading begins with that."""
    at = max(offset, partition.start_offset)
    found: list[Stretch] = []
    left, is_full = rows_max, False
    while at < partition.stable_offset and not is_full:
        read = await partition.read(at, min(weight_max, READ_BYTES_MAX), until=partition.stable_offset)
        for batch in committed_batches(_in_one(read), partition.aborted_between(at, read.next_offset)):
            first = max(at, partition.start_offset)
            parsed = read_row_batch(batch, max(first, _base_offset(batch)) + left, partition.origins.marked_from)
            if parsed is None:
                continue
            part = parsed.from_offset(first, left)
            there = len(parsed.offsets(part))
            part, weight = parsed.within_weight(part, weight_max, at_least=0 if found else 1)
            offsets = parsed.offsets(part)
            if offsets:
                found.append(Stretch(parsed, part, offsets))
            left -= len(offsets)
            weight_max -= weight
            is_full = left <= 0 or weight_max <= 0 or len(offsets) < there
            if is_full:
                break
        if read.next_offset <= at:
            break
        at = read.next_offset
        if not found:
            await asyncio.sleep(0)  # a long stretch of what holds no rows is read from memory without suspending
    start = found[0].offsets[0] if found else max(offset, partition.start_offset)
    return Pulled(found, start, partition.number, codec)


def _in_one(read: ReadResult) -> Buffer:
    """What was read in one piece: as it is, if it is one."""
    found = read.batches[0] if len(read.batches) == 1 else joined(read)
    assert not isinstance(found, FilePiece), "nothing was asked for as a file"
    return found


def _base_offset(batch: memoryview) -> int:
    return base_offset_of(batch)


def table_rows(batch: ReadBatch, part: slice, codec: RowCodec | None) -> list[Row]:
    """Some rows of a batch as a static table has them: not saying where in their queue they were."""
    rows = _rows_of(Stretch(batch, part, batch.offsets(part)), codec, 0)
    for row in rows:
        del row[TABLET_INDEX], row[ROW_INDEX]
    return rows


def _binary(stretch: Stretch, codec: RowCodec, number: int) -> Iterator[bytes | memoryview]:
    """Rows as binary YSON; those that do not fit are written by the library, with some of those behind them."""
    batch, part, offsets = stretch
    around = _surroundings(batch, codec, number)
    at, end = part.start, part.start + len(offsets)
    while at < end:
        weights = around.weights[at:end]
        pieces, count = write_binary(codec.columns, batch.records, batch.table[at:end], around._replace(weights=weights))
        yield from pieces
        at += count
        rest = slice(at, min(at + LONG_WAY_ROWS, end))
        if at < end:
            yield write_rows(Format(YSON, "binary"), _rows_of(Stretch(batch, rest, batch.offsets(rest)), codec, number))
        at = rest.stop


def _surroundings(batch: ReadBatch, codec: RowCodec, number: int) -> Surroundings:
    before = b'{"%b"=%d;"%b"=' % (TABLET_INDEX.encode(), number, ROW_INDEX.encode())
    after = b'"%b"=%du;' % (TIMESTAMP.encode(), batch.timestamp) if codec.schema.has(TIMESTAMP) else b""
    weights = np.empty(0, np.int64)
    if codec.has_weight:
        after += b'"%b"=' % WEIGHT.encode()
        if batch.weights is None:
            after += b"#;"
        else:
            weights = batch.weights
    return Surroundings(batch.base_offset, before, after, weights)


def _rows_of(stretch: Stretch, codec: RowCodec | None, number: int) -> list[Row]:
    batch, part, offsets = stretch
    if codec is None:
        return _records(batch, part, number)
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


def _records(batch: ReadBatch, part: slice, number: int) -> list[Row]:
    """What Kafka's clients have written, as rows."""
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
