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


class SummedBuffer(Vector):
    """A buffer and the checksums of its blocks of `block_size` bytes, which are computed once if they are not given. They stay
    with the bytes from the node that puts them to the record on each disk, so that damage on the way is noticed."""

    __slots__ = ("_block_size", "_checksums")

    def __init__(self, buffer: Buffer, block_size: int, checksums: Sequence[int] | None = None) -> None:
        super().__init__((buffer,))
        self._block_size = block_size
        self._checksums = checksums

    def checksums(self, block_size: int) -> Iterator[int]:
        """See Vector."""
        if block_size != self._block_size:
            return super().checksums(block_size)
        if self._checksums is None:
            self._checksums = list(super().checksums(block_size))
        return iter(self._checksums)


Content = Buffer | Vector
"""What a blob is made of."""


def contiguous(content: Content) -> Buffer:
    """The bytes as one buffer, copied only if they are in several."""
    if not isinstance(content, Vector):
        return content
    return content.buffers[0] if len(content.buffers) == 1 else b"".join(content.buffers)
