"""The codecs of record batches, for those who must look into one: gzip, snappy (plain and in Java's framing), lz4 and zstd."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

Buffer = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# What a batch may grow to; a small one may claim to hold gigabytes.
PLAIN_BYTES_MAX = 128 << 20
LIKELY_RATIO = 8  # how much larger than compressed most records are at most
LIKELY_MIN = 16 << 10
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = 16
XERIAL_VERSIONS = b"\0\0\0\1\0\0\0\1"
XERIAL_CHUNK = 32 << 10
GZIP_WINDOW = 31  # zlib's way of asking for gzip


def decompress(codec: int, records: memoryview, bytes_max: int = PLAIN_BYTES_MAX) -> memoryview:
    """The records of a batch without their compression. ValueError if they are not what they claim to be, or more than
    `bytes_max` bytes."""
    if codec == NONE:
        return records
    if codec == GZIP:
        return _gunzip(records, bytes_max)
    if codec not in (SNAPPY, LZ4, ZSTD):
        raise ValueError(f"compression {codec} is not known")
    import cramjam

    try:
        if codec == SNAPPY:
            return _snappy(records, bytes_max)
        return _into_fixed(cramjam.lz4 if codec == LZ4 else cramjam.zstd, records, bytes_max)
    except cramjam.DecompressionError as error:
        raise ValueError(f"{error} (they may take {bytes_max} bytes)") from error


def compress_like(codec: int, sent: memoryview, records: Buffer, level: int | None = None) -> bytes:
    """Records with the compression that those of a batch were sent with, in the same framing. `level` is as the codec counts;
    None is its default."""
    if codec == GZIP:
        packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=GZIP_WINDOW)
        return packer.compress(records) + packer.flush()
    if codec not in (SNAPPY, LZ4, ZSTD):
        raise ValueError(f"compression {codec} is not known")
    import cramjam

    raw = bytes(records)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(raw, level))
    if codec == LZ4:
        # Clients in Java read only blocks that do not lean on one another.
        frame = cramjam.lz4.Compressor(level, content_checksum=False, block_linked=False)
        frame.compress(raw)
        return bytes(frame.finish())
    if bytes(sent[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return bytes(cramjam.snappy.compress_raw(raw))
    chunks = [XERIAL_MAGIC + XERIAL_VERSIONS]
    for begin in range(0, len(raw), XERIAL_CHUNK):
        chunk = bytes(cramjam.snappy.compress_raw(raw[begin : begin + XERIAL_CHUNK]))
        chunks += (len(chunk).to_bytes(4, "big"), chunk)
    return b"".join(chunks)


def _gunzip(records: memoryview, bytes_max: int) -> memoryview:
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    try:
        plain = unpacker.decompress(records, bytes_max + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(plain) > bytes_max:
        raise ValueError(f"the records take more than {bytes_max} bytes")
    if not unpacker.eof:
        raise ValueError("the gzip stream is cut short")
    if unpacker.unused_data:
        raise ValueError(f"{len(unpacker.unused_data)} bytes are left over after the gzip stream")
    return memoryview(plain)


def _into_fixed(module: Any, records: memoryview, bytes_max: int) -> memoryview:
    """What lz4 or zstd unpacks into a buffer of fixed size, since a small batch may hold gigabytes. One that is likely to do is
    tried first: memory that was used before is had for less than that of the largest batch there may be."""
    import cramjam
    import numpy as np

    raw = bytes(records)
    likely = max(LIKELY_MIN, LIKELY_RATIO * len(raw))
    if likely < bytes_max:
        out = np.empty(likely, np.uint8)
        with suppress(cramjam.DecompressionError):  # damaged, or too long: it does not say which
            return out.data[: module.decompress_into(raw, out)]
    out = np.empty(bytes_max, np.uint8)
    return out.data[: module.decompress_into(raw, out)]


def _snappy(records: memoryview, bytes_max: int) -> memoryview:
    import cramjam

    raw = bytes(records)
    if not raw.startswith(XERIAL_MAGIC):
        return memoryview(cramjam.snappy.decompress_raw(_small_enough(raw, bytes_max)))
    # Java's own framing: chunks, each with its size.
    out = bytearray()
    at = XERIAL_HEADER
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big", signed=True)
        chunk = raw[at + 4 : at + 4 + size]
        if size <= 0 or len(chunk) < size:
            raise ValueError(f"a snappy chunk of {size} bytes does not fit")
        out += bytes(cramjam.snappy.decompress_raw(_small_enough(chunk, bytes_max - len(out))))
        at += 4 + size
    return memoryview(out)


def _small_enough(raw: bytes, bytes_max: int) -> bytes:
    """Snappy says first how long its content is."""
    size = shift = 0
    for byte in raw[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > bytes_max:
        raise ValueError(f"the records take {size} bytes, {bytes_max} are left for them")
    return raw
