"""Reading rows of a queue from an offset on, as committed: what is not, and what was aborted, is not there."""

from __future__ import annotations

from typing import Any, NamedTuple

from yt.yson import YsonUint64

from penstock.broker.weights import joined
from penstock.gateway.yt.row_batch import ReadBatch, commit_timestamp, is_dropped, read_row_batch
from penstock.gateway.yt.row_codec import RowCodec, decode_headers
from penstock.gateway.yt.schema import ROW_INDEX, TABLET_INDEX, TIMESTAMP, WEIGHT
from penstock.queue import Partition, split_batches

ROWS_DEFAULT = 1000
BYTES_DEFAULT = 16 << 20
READ_BYTES_MAX = 4 << 20

Row = dict[str, Any]


class Pulled(NamedTuple):
    """Rows, and the offset of the first of them, or the one that was asked for if there are none."""

    rows: list[Row]
    start_offset: int


async def pull(partition: Partition, codec: RowCodec | None, offset: int, *, rows_max: int, bytes_max: int) -> Pulled:
    """Rows from an offset on: at least one if there is any, then not many more than are asked for. Below the first row that is
    kept, reading begins with that."""
    at = max(offset, partition.start_offset)
    rows: list[Row] = []
    size = 0
    while at < partition.stable_offset and len(rows) < rows_max and (size < bytes_max or not rows):
        read = await partition.read(at, min(bytes_max, READ_BYTES_MAX), until=partition.stable_offset)
        aborted = sorted(partition.aborted_between(at, read.next_offset), key=lambda one: one.first_offset)
        dropping: set[int] = set()
        for batch in split_batches(joined(read)):
            base_offset = int.from_bytes(batch[:8], "big")
            while aborted and aborted[0].first_offset <= base_offset:
                dropping.add(aborted.pop(0).producer_id)
            if is_dropped(batch, dropping):
                if batch[22] & 0x20:
                    dropping.discard(int.from_bytes(batch[43:51], "big", signed=True))
                continue
            found = read_row_batch(batch)
            if found is not None and len(rows) < rows_max:
                rows += _rows_of(found, codec, partition.number, max(at, partition.start_offset), rows_max - len(rows))
                size += len(batch)
        if read.next_offset <= at:
            break
        at = read.next_offset
    return Pulled(rows, rows[0][ROW_INDEX] if rows else max(offset, partition.start_offset))


def _rows_of(batch: ReadBatch, codec: RowCodec | None, number: int, from_offset: int, rows_max: int) -> list[Row]:
    skipped = next((at for at, offset in enumerate(batch.offsets) if offset >= from_offset), len(batch.offsets))
    part = slice(skipped, skipped + rows_max)
    offsets = batch.offsets[part]
    if codec is None:
        return _records(batch, part, number)
    decoded = codec.decode(batch.values[part], batch.keys[part])
    has_timestamp = codec.schema.has(TIMESTAMP)
    timestamp = YsonUint64(batch.timestamp)
    weights: list[Any] = [None] * len(offsets) if batch.weights is None else batch.weights[part]
    rows: list[Row] = []
    for offset, row, weight in zip(offsets, decoded, weights, strict=True):
        full: Row = {TABLET_INDEX: number, ROW_INDEX: offset, **row}
        if has_timestamp:
            full[TIMESTAMP] = timestamp
        if codec.has_weight:
            full[WEIGHT] = weight
        rows.append(full)
    return rows


def _records(batch: ReadBatch, part: slice, number: int) -> list[Row]:
    """What Kafka's clients have written, as rows."""
    records = zip(
        batch.offsets[part], batch.keys[part], batch.values[part], batch.headers[part], batch.times_ms[part], strict=True
    )
    return [
        {
            TABLET_INDEX: number,
            ROW_INDEX: offset,
            "key": key,
            "value": value,
            "headers": decode_headers(headers),
            TIMESTAMP: YsonUint64(commit_timestamp(time_ms, offset)),
        }
        for offset, key, value, headers, time_ms in records
    ]
