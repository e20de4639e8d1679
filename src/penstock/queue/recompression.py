"""Recompresses a batch when its topic's `compression.type` differs from the producer's."""

from __future__ import annotations

from penstock.blob import Buffer
from penstock.core.record_compression import NONE, XERIAL_MAGIC, compress_like
from penstock.core.record_format import ATTRIBUTES, CODEC_MASK, HEADER_SIZE, seal_batch
from penstock.queue.batch import Batch


def recompressed(batch: Batch, plain: Buffer, codec: int, level: int | None = None) -> bytes:
    """The batch with its records, which are given without compression, compressed otherwise; nothing else of it changes."""
    # Every client reads snappy in Java's framing; some read no other.
    packed = bytes(plain) if codec == NONE else compress_like(codec, memoryview(XERIAL_MAGIC), plain, level)
    data = bytearray(batch.data[:HEADER_SIZE])
    data += packed
    data[ATTRIBUTES] = (batch.attributes & ~CODEC_MASK | codec).to_bytes(2, "big", signed=True)
    seal_batch(data)
    return bytes(data)
