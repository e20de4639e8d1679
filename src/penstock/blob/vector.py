"""Bytes in several buffers that are one blob: they go to the disk as they lie, and are never joined on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.blob.disk import Buffer
from penstock.core.checksum import KEEP_LOCK, crc32c


class Vector:
    """Buffers, none of them empty, whose bytes follow one another."""

    __slots__ = ("_size", "buffers")

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = buffers
        self._size = sum(map(len, buffers))

    def __len__(self) -> int:
        return self._size

    def checksum(self) -> int:
        """CRC32C of all the bytes."""
        checksum = 0
        for buffer in self.buffers:
            checksum = crc32c(buffer, checksum)
        return checksum

    def checksums(self, block_size: int) -> Iterator[int]:
        """CRC32C of each block of so many bytes; the last may be short."""
        checksum = filled = 0
        for buffer in self.buffers:
            view = memoryview(buffer)
            begin = 0
            while begin < len(view):
                part = view[begin : begin + block_size - filled]
                checksum = crc32c(part, checksum, KEEP_LOCK)
                begin += len(part)
                filled += len(part)
                if filled == block_size:
                    yield checksum
                    checksum = filled = 0
        if filled:
            yield checksum


Content = Buffer | Vector
"""What a blob is made of."""


def contiguous(content: Content) -> Buffer:
    """The bytes as one buffer, copied only if they are in several."""
    return b"".join(content.buffers) if isinstance(content, Vector) else content
