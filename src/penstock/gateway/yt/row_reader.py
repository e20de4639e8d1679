"""Reading rows of a queue from an offset on, as committed: what is not, and what was aborted, is not there."""

from __future__ import annotations

from typing import Any, NamedTuple

from yt.yson import YsonUint64

from penstock.core.record_format import read_headers
from penstock.gateway.yt.formats import YSON, Format, write_rows
from penstock.gateway.yt.row_batch import ReadBatch, commit_timestamp, read_row_batch
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.schema import ROW_INDEX, TABLET_INDEX, TIMESTAMP, WEIGHT
from penstock.queue import Partition, committed_batches, joined

ROWS_DEFAULT = 1000
ROWS_MAX = 100_000
BYTES_DEFAULT = 16 << 20
READ_BYTES_MAX = 4 << 20

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
        if format_.name == YSON and format_.form == "binary" and self.codec is not None and self.codec.binary.can_write:
            return b"".join(_binary(stretch, self.codec, self.number) for stretch in self.stretches)
        return write_rows(format_, self.rows())


async def pull(partition: Partition, codec: RowCodec | None, offset: int, *, rows_max: int, bytes_max: int) -> Pulled:
    """Rows from an offset on: at least one if there is any, then not many more than are asked for. Below the first row that is
    kept, reading begins with that."""
    at = max(offset, partition.start_offset)
    found: list[Stretch] = []
    count = size = 0
    while at < partition.stable_offset and count < rows_max and (size < bytes_max or not found):
        read = await partition.read(at, min(bytes_max, READ_BYTES_MAX), until=partition.stable_offset)
        for batch in committed_batches(joined(read), partition.aborted_between(at, read.next_offset)):
            if count >= rows_max or (size >= bytes_max and found):
                break
            parsed = read_row_batch(batch)
            if parsed is None:
                continue
            part = parsed.from_offset(max(at, partition.start_offset), rows_max - count)
            offsets = parsed.offsets(part)
            if offsets:
                found.append(Stretch(parsed, part, offsets))
                count += len(offsets)
                size += len(batch)
        if read.next_offset <= at:
            break
        at = read.next_offset
    start = found[0].offsets[0] if found else max(offset, partition.start_offset)
    return Pulled(found, start, partition.number, codec)


def table_rows(batch: ReadBatch, part: slice, codec: RowCodec | None) -> list[Row]:
    """Some rows of a batch as a static table has them: not saying where in their queue they were."""
    rows = _rows_of(Stretch(batch, part, batch.offsets(part)), codec, 0)
    for row in rows:
        del row[TABLET_INDEX], row[ROW_INDEX]
    return rows


def _binary(stretch: Stretch, codec: RowCodec, number: int) -> bytes:
    batch, part, offsets = stretch
    stored = codec.stored_rows(batch.values(part))
    stamp = b'"%b"=%du;' % (TIMESTAMP.encode(), batch.timestamp) if codec.schema.has(TIMESTAMP) else b""
    if not codec.has_weight:
        after = [stamp] * len(offsets)
    elif batch.weights is None:
        after = [stamp + b'"%b"=#;' % WEIGHT.encode()] * len(offsets)
    else:
        ending = stamp + b'"%b"=' % WEIGHT.encode()
        after = [b"%b%d;" % (ending, weight) for weight in batch.weights[part].tolist()]
    before = b'"%b"=%d;"%b"=' % (TABLET_INDEX.encode(), number, ROW_INDEX.encode())
    written = None if stored is None else codec.binary.write(stored, offsets, before, after)
    return write_rows(Format(YSON, "binary"), _rows_of(stretch, codec, number)) if written is None else written


def _rows_of(stretch: Stretch, codec: RowCodec | None, number: int) -> list[Row]:
    batch, part, offsets = stretch
    if codec is None:
        return _records(batch, part, number)
    after: Row = {}
    if codec.schema.has(TIMESTAMP):
        after[TIMESTAMP] = YsonUint64(batch.timestamp)
    rows = codec.decode(batch.values(part), lambda: batch.keys(part), {TABLET_INDEX: number, ROW_INDEX: 0}, after)
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
            "headers": [list(header) for header in read_headers(headers, 0)],
            TIMESTAMP: YsonUint64(commit_timestamp(time_ms, offset)),
        }
        for offset, key, value, headers, time_ms in zip(*columns, strict=True)
    ]
