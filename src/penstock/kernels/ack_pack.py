"""Acknowledgements to a writer of YDB's protocol, all of a request in one pass.

One is: 0a length | 08 seqno | 12 length 08 offset, or in place of the offset something that all of them have. Each number is a
varint.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import put_varint, varint_size
else:
    from penstock.core.varint_buffers import put_varint, varint_size

COMPILED: Final[bool] = cython.compiled

ACK_BYTES_MAX: Final = 26  # with an offset; without, it is as much less as `instead` is shorter than 13 bytes


@cython.boundscheck(False)
@cython.wraparound(False)
def pack_acks(
    seqnos: cython.ulonglong[::1],
    base_offset: cython.longlong,
    instead: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
) -> int:
    """Put an acknowledgement of each number into `out`; the bytes that they take. Offsets are counted from `base_offset`; if that
    is negative, each has `instead` behind its number."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    offset: cython.ulonglong
    tail: cython.Py_ssize_t = len(instead)
    for row in range(len(seqnos)):
        size = 1 + varint_size(seqnos[row])
        out[at] = 0x0A
        if base_offset < 0:
            at = put_varint(out, at + 1, size + tail)
        else:
            offset = base_offset + row
            at = put_varint(out, at + 1, size + 3 + varint_size(offset))
        out[at] = 0x08
        at = put_varint(out, at + 1, seqnos[row])
        if base_offset < 0:
            out[at : at + tail] = instead
            at += tail
        else:
            out[at] = 0x12
            out[at + 1] = cython.cast(cython.uchar, 1 + varint_size(offset))
            out[at + 2] = 0x08
            at = put_varint(out, at + 3, offset)
    return at
