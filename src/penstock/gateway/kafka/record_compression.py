"""The codecs of record batches, for those who must look into one: gzip, snappy (plain and in Java's framing), lz4 and zstd."""

from __future__ import annotations

import zlib

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# What a batch may grow to; a small one may claim to hold gigabytes.
PLAIN_BYTES_MAX = 128 << 20
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = 16
GZIP_WINDOW = 31  # zlib's way of asking for gzip


def decompress(codec: int, records: memoryview) -> memoryview:
    """The records of a batch without their compression. ValueError if they are not what they claim to be."""
    if codec == NONE:
        return records
    if codec == GZIP:
        try:
            return memoryview(zlib.decompressobj(GZIP_WINDOW).decompress(records, PLAIN_BYTES_MAX))
        except zlib.error as error:
            raise ValueError(str(error)) from error
    if codec not in (SNAPPY, LZ4, ZSTD):
        raise ValueError(f"compression {codec} is not known")
    import cramjam

    try:
        if codec == SNAPPY:
            return _snappy(records)
        module = cramjam.lz4 if codec == LZ4 else cramjam.zstd
        # Into a buffer of fixed size, which takes memory only as it is filled: a small batch may hold gigabytes.
        out = bytearray(PLAIN_BYTES_MAX)
        return memoryview(out)[: module.decompress_into(bytes(records), out)]
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


def _snappy(records: memoryview) -> memoryview:
    import cramjam

    raw = bytes(records)
    if not raw.startswith(XERIAL_MAGIC):
        return memoryview(cramjam.snappy.decompress_raw(_small_enough(raw)))
    # Java's own framing: chunks, each with its size.
    out = bytearray()
    at = XERIAL_HEADER
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big", signed=True)
        chunk = raw[at + 4 : at + 4 + size]
        if size <= 0 or len(chunk) < size or len(out) > PLAIN_BYTES_MAX:
            raise ValueError(f"a snappy chunk of {size} bytes does not fit")
        out += bytes(cramjam.snappy.decompress_raw(_small_enough(chunk)))
        at += 4 + size
    return memoryview(out)


def _small_enough(raw: bytes) -> bytes:
    """Snappy says first how long its content is."""
    size = shift = 0
    for byte in raw[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > PLAIN_BYTES_MAX:
        raise ValueError(f"the records take {size} bytes")
    return raw
