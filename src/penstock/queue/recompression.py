"""A batch in the compression that its topic asks for, where producers use another."""

from __future__ import annotations

from penstock.blob import Buffer
from penstock.core.checksum import crc32c
from penstock.core.record_compression import NONE, XERIAL_MAGIC, compress_like
from penstock.core.record_format import CODEC_MASK, CRC_FROM, HEADER_SIZE
from penstock.queue.batch import Batch


def recompressed(batch: Batch, plain: Buffer, codec: int) -> bytes:
    """The batch with its records, which are given without compression, compressed otherwise; nothing else of it changes."""
    # Every client reads snappy in Java's framing; some read no other.
    packed = bytes(plain) if codec == NONE else compress_like(codec, memoryview(XERIAL_MAGIC), plain)
    made = bytearray(batch.data[:HEADER_SIZE])
    made += packed
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[21:23] = (batch.attributes & ~CODEC_MASK | codec).to_bytes(2, "big", signed=True)
    made[17:21] = crc32c(memoryview(made)[CRC_FROM:]).to_bytes(4, "big")
    return bytes(made)
