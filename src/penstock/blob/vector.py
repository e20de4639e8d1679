"""Bytes in several buffers that are one blob: they go to the disk as they lie, and are never joined on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.blob.disk import Buffer
from penstock.core.checksum import crc32c
from penstock.kernels.block_sums import block_sums

KnownSums = Mapping[int, tuple[Buffer, int]]
"""By the id of a buffer, the buffer itself, so that the id is of no other, and CRC32C of its bytes, which was verified."""


class Vector:
    """Buffers, none of them empty, whose bytes follow one another. `known_sums` may have the checksums of some of them."""

    __slots__ = ("_size", "buffers", "known_sums")

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = buffers
        self._size = sum(map(len, buffers))
        self.known_sums: KnownSums | None = None

    def __len__(self) -> int:
        return self._size

    def checksum(self) -> int:
        """CRC32C of all the bytes."""
        checksum = 0
        for buffer in self.buffers:
            checksum = crc32c(buffer, checksum)
        return checksum

    def block_table(self, block_size: int) -> bytes:
        """CRC32C of each block of so many bytes; the last may be short."""
        known = self.known_sums
        if not known:
            return block_sums(self.buffers, block_size)
        return block_sums(self.buffers, block_size, [known[id(each)][1] if id(each) in known else -1 for each in self.buffers])


class SummedBuffer(Vector):
    """A buffer and the checksums of its blocks of `block_size` bytes, which are computed once if they are not given. They stay
    with the bytes from the node that puts them to the record on each disk, so that damage on the way is noticed."""

    __slots__ = ("_block_size", "_block_table")

    def __init__(self, buffer: Buffer, block_size: int, block_table: bytes | None = None) -> None:
        super().__init__((buffer,))
        self._block_size = block_size
        self._block_table = block_table

    def block_table(self, block_size: int) -> bytes:
        """See Vector."""
        if block_size != self._block_size:
            return super().block_table(block_size)
        if self._block_table is None:
            self._block_table = super().block_table(block_size)
        return self._block_table


Content = Buffer | Vector
"""What a blob is made of."""


def contiguous(content: Content) -> Buffer:
    """The bytes as one buffer, copied only if they are in several."""
    if not isinstance(content, Vector):
        return content
    return content.buffers[0] if len(content.buffers) == 1 else b"".join(content.buffers)
