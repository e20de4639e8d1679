"""Decompressing one batch after another into the same memory: what it returns holds until the next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.record_compression import decompress

_GZIP, _SNAPPY, _LZ4, _ZSTD = range(1, 5)
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
FIRST_BYTES = 1 << 20
PLAIN_BYTES_MAX = 128 << 20


class Decompressor:
    """Call it with a codec and the records of a batch."""

    def __init__(self) -> None:
        import cramjam

        self._scratch = bytearray(FIRST_BYTES)
        self._error: type[Exception] = cramjam.DecompressionError
        self._into: dict[int, Callable[[Any, bytearray], int]] = {
            _GZIP: cramjam.gzip.decompress_into,
            _SNAPPY: cramjam.snappy.decompress_raw_into,
            _LZ4: cramjam.lz4.decompress_into,
            _ZSTD: cramjam.zstd.decompress_into,
        }

    def __call__(self, codec: int, records: memoryview) -> memoryview:
        """The records without their compression. ValueError if they are not what they claim to be."""
        into = self._into.get(codec)
        if into is None or (codec == _SNAPPY and bytes(records[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC):
            return decompress(codec, records)
        while True:
            try:
                size = into(records, self._scratch)
                return memoryview(self._scratch)[:size]
            except self._error as error:
                # Damaged, or more than there is memory for: it does not say which.
                if len(self._scratch) >= PLAIN_BYTES_MAX:
                    raise ValueError(str(error)) from error
            self._scratch = bytearray(min(len(self._scratch) * 8, PLAIN_BYTES_MAX))
