"""Stored batches to Arrow columns: the kernel alone, on one core, without a broker and without Spark."""

from __future__ import annotations

import time

from bench.measure import Row, Setting, limit_row
from penstock.client.record_batch import Record, encode_batch
from penstock.core.checksum import crc32c
from penstock.core.record_compression import LZ4, NONE, compress_like

RECORDS = 400_000
GOAL_MILLIONS = 15.0


async def rows(setting: Setting) -> list[Row]:
    """Records a second out of the batches that a client with default settings makes (16 KiB), and out of large ones."""
    found = []
    for size, a_batch, goal in ((100, 150, GOAL_MILLIONS), (100, 8000, GOAL_MILLIONS), (1024, 1000, None)):
        for codec, name in ((NONE, "none"), (LZ4, "lz4")):
            data = stored(size, a_batch, RECORDS * 100 // size // a_batch, codec)
            rates = [_decoded(data) / 1e6 for _ in range(setting.rounds(15) + 1)][1:]
            row = limit_row(
                f"decode to Arrow, {size} B, {a_batch} records a batch, {name}, million/s",
                rates,
                unit="M/s",
                goal=goal if codec == NONE else None,
                at_least=True,
            )
            found.append(row)
    return found


def stored(size: int, a_batch: int, batches: int, codec: int = NONE) -> bytes:
    """Batches as a fetch returns them."""
    value = (bytes(range(256)) * (size // 512 + 1))[: size // 2] + bytes(size - size // 2)
    raw = bytearray(encode_batch([Record(0, 1_700_000_000_000 + number, None, value) for number in range(a_batch)]))
    if codec != NONE:
        raw[61:] = compress_like(codec, memoryview(b""), raw[61:])
        raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
        raw[21:23] = codec.to_bytes(2, "big")
    raw[17:21] = crc32c(memoryview(raw)[21:]).to_bytes(4, "big")
    data = bytearray()
    for number in range(batches):
        raw[:8] = (number * a_batch).to_bytes(8, "big")
        data += raw
    return bytes(data)


def _decoded(data: bytes) -> float:
    """Decode it all to record batches; records a second."""
    import pyarrow as pa

    from penstock.kafka.client import TopicPartition
    from penstock.kernels.arrow_decode import BatchDecoder
    from penstock.spark.arrow_batches import ArrowBatchFactory
    from penstock.spark.columns import Layout
    from penstock.spark.decompression import Decompressor

    layout = Layout(
        pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("timestampType", pa.int32()),
            ]
        )
    )
    started = time.thread_time()  # of this thread, however busy the machine is
    maker = ArrowBatchFactory(layout, TopicPartition("topic", 0), None)
    decoder = BatchDecoder(0, 1 << 62, Decompressor())
    decoder.feed(data)
    rows, more = 0, True
    while more:
        making = maker.start(len(data), decoder.needed, RECORDS)
        more = decoder.fill(making.room)
        rows += making.finish().num_rows
    return rows / (time.thread_time() - started)
