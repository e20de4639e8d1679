"""The checksums of the blocks of a long record, in one pass over its bytes, which needs no interpreter: what else this process
does goes on meanwhile. Bytes whose checksum is known are not passed over again, but for the shorter side of where they are cut:
CRC32C of bytes one behind the other follows from that of each, and that of either part from the other's and that of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import cython

from penstock.core.checksum import KEEP_LOCK, crc32c

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.libc.stdlib import free, malloc
    from cython.cimports.penstock.kernels.checksums import (
        SummedPart,
        crc_of,
        penstock_crc32c,
        penstock_crc32c_alone,
        penstock_crc32c_before,
        penstock_crc32c_combines,
    )

COMPILED: Final[bool] = cython.compiled

_SUM_SIZE = cython.declare(cython.Py_ssize_t, 4)
# To give up the interpreter's lock and take it again costs more than the checksum of fewer bytes.
_KEEP_LOCK_MAX = cython.declare(cython.Py_ssize_t, 128 << 10)
_DIRECT_MAX = cython.declare(cython.Py_ssize_t, 4 << 10)  # a pass over so many bytes is as quick as what saves it
_BATCH_CHECKSUM_AT = cython.declare(cython.Py_ssize_t, 17)
_BATCH_CHECKED_FROM = cython.declare(cython.Py_ssize_t, 21)
_BATCH_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)


def block_sums(
    buffers: Sequence[bytes | bytearray | memoryview], block_size: cython.Py_ssize_t, known: Sequence[int] | None = None
) -> bytes:
    """Returns CRC32C, big-endian, of each block of so many bytes of buffers that follow one another; the last may be short.
    `known` has the checksum of each buffer, or -1."""
    if block_size <= 0:
        raise ValueError(f"a block has at least one byte, not {block_size}")
    if not cython.compiled or not penstock_crc32c_combines():
        return _plain_sums(buffers, block_size)  # by the package, which knows the instructions of other processors as well
    size: cython.Py_ssize_t = 0
    taken: cython.Py_ssize_t = 0
    parts: cython.pointer(SummedPart) = cython.cast(
        cython.pointer(SummedPart), malloc((len(buffers) + 1) * cython.sizeof(SummedPart))
    )
    if parts == cython.NULL:
        raise MemoryError
    try:
        for buffer in buffers:
            parts[taken].checksum = -1 if known is None else known[taken]
            PyObject_GetBuffer(buffer, cython.address(parts[taken].view), PyBUF_SIMPLE)
            size += parts[taken].view.len
            taken += 1
        sums: bytearray = bytearray((size + block_size - 1) // block_size * _SUM_SIZE)
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(sums))
        if size <= _KEEP_LOCK_MAX:
            _sum_blocks(parts, taken, block_size, out)
        else:
            with cython.nogil:
                _sum_blocks(parts, taken, block_size, out)
        return bytes(sums)
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(cython.address(parts[taken].view))
        free(parts)


def records_sum(batch: bytes | bytearray | memoryview) -> int:
    """Returns CRC32C of what stands behind the header of a record batch, by the checksum in that header; -1 if that takes a pass
    over the bytes here. The batch must have been checked."""
    if not cython.compiled:
        return -1
    size: cython.Py_ssize_t = len(batch)
    if size < _BATCH_HEADER_SIZE or not penstock_crc32c_combines():
        return -1
    header: bytes = bytes(batch[:_BATCH_HEADER_SIZE])
    front: cython.uint = crc_of(header, _BATCH_CHECKED_FROM, 0)
    checksum: cython.uint = int.from_bytes(header[_BATCH_CHECKSUM_AT:_BATCH_CHECKED_FROM], "big")
    return checksum ^ penstock_crc32c_before(front, size - _BATCH_HEADER_SIZE)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _sum_blocks(
    parts: cython.pointer(SummedPart),
    count: cython.Py_ssize_t,
    block_size: cython.Py_ssize_t,
    out: cython.p_uchar,
) -> cython.void:
    checksum: cython.uint = 0
    filled: cython.Py_ssize_t = 0
    which: cython.Py_ssize_t
    size: cython.Py_ssize_t
    for which in range(count):
        data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, parts[which].view.buf)
        left: cython.Py_ssize_t = parts[which].view.len
        # Of the part that is left of this buffer, if it is known.
        rest: cython.longlong = parts[which].checksum if left > _DIRECT_MAX else -1
        while left:
            size = min(left, block_size - filled)
            if rest < 0 or left > size + block_size:
                checksum = penstock_crc32c(checksum, data, size)
                rest = -1
            else:
                first: cython.uint = _first_sum(data, size, left, cython.cast(cython.uint, rest))
                checksum = penstock_crc32c_before(checksum, size) ^ first
                rest = cython.cast(cython.uint, rest) ^ penstock_crc32c_before(first, left - size)
            data += size
            left -= size
            filled += size
            if filled == block_size:
                out = _put_sum(out, checksum)
                checksum = 0
                filled = 0
    if filled:
        _put_sum(out, checksum)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _first_sum(
    data: cython.p_const_uchar, size: cython.Py_ssize_t, whole: cython.Py_ssize_t, checksum: cython.uint
) -> cython.uint:
    """The checksum of the first bytes, so many, of bytes with this checksum: by a pass over the shorter part."""
    behind: cython.Py_ssize_t = whole - size
    if behind == 0:
        return checksum
    if size <= behind:
        return penstock_crc32c(0, data, size)
    return penstock_crc32c_alone(checksum ^ penstock_crc32c(0, data + size, behind), behind)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_sum(out: cython.p_uchar, checksum: cython.uint) -> cython.p_uchar:
    out[0] = checksum >> 24
    out[1] = checksum >> 16 & 0xFF
    out[2] = checksum >> 8 & 0xFF
    out[3] = checksum & 0xFF
    return out + _SUM_SIZE


def _plain_sums(buffers: Sequence[bytes | bytearray | memoryview], block_size: int) -> bytes:
    """As `block_sums`, by the crc32c package."""
    sums = bytearray()
    checksum = filled = 0
    for buffer in buffers:
        view = memoryview(buffer)
        while view:
            part = view[: block_size - filled]
            checksum = crc32c(part, checksum, KEEP_LOCK)
            view = view[len(part) :]
            filled += len(part)
            if filled == block_size:
                sums += checksum.to_bytes(4, "big")
                checksum = filled = 0
    if filled:
        sums += checksum.to_bytes(4, "big")
    return bytes(sums)
