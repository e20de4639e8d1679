"""Decompresses batches into reused memory: a result is valid until the next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.record_compression import GZIP, LZ4, PLAIN_BYTES_MAX, SNAPPY, XERIAL_MAGIC, ZSTD, decompress

FIRST_BYTES = 1 << 20


class Decompressor:
    """Call it with a codec and the records of a batch."""

    def __init__(self) -> None:
        import cramjam

        self._scratch = bytearray(FIRST_BYTES)
        self._error: type[Exception] = cramjam.DecompressionError
        self._into: dict[int, Callable[[Any, bytearray], int]] = {
            GZIP: cramjam.gzip.decompress_into,
            SNAPPY: cramjam.snappy.decompress_raw_into,
            LZ4: cramjam.lz4.decompress_into,
            ZSTD: cramjam.zstd.decompress_into,
        }

    def __call__(self, codec: int, records: memoryview) -> memoryview:
        """Decompress records. Raises ValueError if they are damaged."""
        into = self._into.get(codec)
        if into is None or (codec == SNAPPY and bytes(records[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC):
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
