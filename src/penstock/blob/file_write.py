"""Writes of buffers to a place in a file, in calls of a size that the kernel takes well."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from penstock.blob.disk import Buffer

WRITE_PIECE_BYTES = 1 << 20
VECTOR_BYTES_MAX = WRITE_PIECE_BYTES + (64 << 10)  # a blob of 1 MiB goes out with its header
VECTOR_MAX = 1024


def set_aside(fd: int, length: int) -> None:
    """Preallocate a file up to so many bytes, where that can be done."""
    try:
        os.posix_fallocate(fd, 0, length)
    except OSError as error:
        # A file system without preallocation works too, only slower; a nearly full one may still take the write itself.
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENOSPC):
            raise


def write_all(fd: int, buffers: Sequence[Buffer], offset: int) -> None:
    """Write the buffers one after another from `offset`, in pieces that the kernel takes well."""
    vector: list[Buffer] = []
    vector_bytes = 0
    for buffer in buffers:
        length = len(buffer)
        if vector_bytes + length <= VECTOR_BYTES_MAX and len(vector) < VECTOR_MAX:
            vector.append(buffer)
            vector_bytes += length
            continue
        offset += write_vector(fd, vector, vector_bytes, offset)
        if length <= WRITE_PIECE_BYTES:
            vector, vector_bytes = [buffer], length
            continue
        vector, vector_bytes = [], 0
        view = memoryview(buffer)
        for begin in range(0, length, WRITE_PIECE_BYTES):
            piece = view[begin : begin + WRITE_PIECE_BYTES]
            offset += write_vector(fd, [piece], len(piece), offset)
    write_vector(fd, vector, vector_bytes, offset)


def write_vector(fd: int, vector: list[Buffer], length: int, offset: int) -> int:
    """Write buffers of so many bytes in all in one call. Returns how many."""
    if not vector:
        return 0
    written = os.pwritev(fd, vector, offset)
    if written < length:
        write_rest(fd, vector, written, offset)
    return length


def write_rest(fd: int, vector: list[Buffer], written: int, offset: int) -> None:
    """Write what a call has left of buffers. Rare: that happens near the end of space. The rest goes out plainly, and then fails
    plainly."""
    rest = memoryview(b"".join(vector))[written:]
    while rest:
        count = os.pwrite(fd, rest, offset + written)
        written += count
        rest = rest[count:]
