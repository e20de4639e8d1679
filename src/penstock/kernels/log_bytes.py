"""The bytes that a small write adds to the log, put together in one pass: a blob id, the header of a record, and an entry with
appends. Their formats are drawn in blob/blob_id.py, blob/record.py and tablet/log_format.py.
"""

from __future__ import annotations

from typing import Final

import cython

from penstock.core.checksum import crc32c

if cython.compiled:
    from cython.cimports.penstock.kernels.checksums import crc_at, crc_of
    from cython.cimports.penstock.kernels.varints import bytes_at, cut_bytes, put_bytes, put_number, put_start, unfilled, zeroed
else:
    from penstock.core.varint_buffers import put_bytes, put_number

    def crc_of(data: bytes | bytearray | memoryview, start: int, crc: int) -> int:
        """As the compiled kernel has it."""
        return crc32c(memoryview(data)[start:], crc)

    def bytes_at(data: bytes, at: int, end: int) -> bytes:
        """As the compiled kernel has it."""
        return data[at:end]

    def cut_bytes(data: bytearray, at: int, end: int) -> bytes:
        """As the compiled kernel has it."""
        return bytes(data[at:end])

    def crc_at(data: bytearray, start: int, end: int) -> int:
        """As the compiled kernel has it."""
        return crc32c(memoryview(data)[start:end])

    def put_start(out: bytearray, data: bytearray, size: int) -> None:
        """As the compiled kernel has it."""
        out[:size] = data[:size]

    def unfilled(size: int) -> bytearray:
        """As the compiled kernel has it, where its bytes are any."""
        return bytearray(size)

    def zeroed(size: int) -> bytearray:
        """As the compiled kernel has it."""
        return bytearray(size)


COMPILED: Final[bool] = cython.compiled

HEADER_SIZE: Final = 64
SHORT_MAX: Final = 16 << 10  # the checksum of more bytes is sooner computed by the crc32c package

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_SHORT_MAX = cython.declare(cython.Py_ssize_t, SHORT_MAX)
_CHECKED_SIZE = cython.declare(cython.Py_ssize_t, HEADER_SIZE - 4)  # of the header, by its own checksum
_START_SIZE = cython.declare(cython.Py_ssize_t, 8)  # of an entry, before its checksum
_SECTIONS_AT = cython.declare(cython.Py_ssize_t, 12)
_APPEND_SIZE = cython.declare(cython.Py_ssize_t, 12)
_PLACE_SIZE = cython.declare(cython.Py_ssize_t, 16)
_ID_SIZE = cython.declare(cython.Py_ssize_t, 25)
_CHANNEL_MAX = cython.declare(cython.longlong, 0xFF)
_TABLET_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_NUMBER_MAX = cython.declare(cython.longlong, 0xFFFFFFFF)


def record_start(  # noqa: PLR0917 - compiled, keywords make it slower
    start: bytes,
    blob_id: bytes,
    body: object,
    length: cython.Py_ssize_t,
    chunk: cython.longlong,
    offset: cython.longlong,
    durable_chunk: cython.longlong,
    durable_offset: cython.longlong,
) -> bytearray:
    """Returns the header of a record at this place, whose body is in one piece and has no table; `start` is what all records of
    its kind start with."""
    at: cython.Py_ssize_t
    header: bytearray = zeroed(_HEADER_SIZE)
    at = put_bytes(header, 0, start)
    at = put_number(header, at, length, 4)
    at = put_number(header, at, crc_of(body, 0, 0) if length <= _SHORT_MAX else crc32c(body), 4)
    at = put_number(header, at, chunk, 4)
    at = put_number(header, at, offset, 4)
    at = put_number(header, at, durable_chunk, 4)
    at = put_number(header, at, durable_offset, 4)
    put_bytes(header, at, blob_id)
    put_number(header, _CHECKED_SIZE, crc_at(header, 0, _CHECKED_SIZE), 4)
    return header


def packed_id(  # noqa: PLR0917 - compiled, keywords make it slower
    tablet: cython.ulonglong,
    channel: cython.longlong,
    generation: cython.longlong,
    step: cython.longlong,
    cookie: cython.longlong,
    size_part: cython.longlong,
) -> bytes:
    """Returns the stored form of a blob id. OverflowError if a field does not fit its width."""
    at: cython.Py_ssize_t
    number: cython.longlong
    packed: bytearray = unfilled(_ID_SIZE)
    for number in (generation, step, cookie, size_part):
        if number < 0 or number > _NUMBER_MAX:
            raise OverflowError(f"{number} is no field of a blob id")
    if tablet < 0 or tablet > _TABLET_MAX or channel < 0 or channel > _CHANNEL_MAX:
        raise OverflowError(f"tablet {tablet} and channel {channel} are none of a blob id")
    at = put_number(packed, 0, tablet, 8)
    at = put_number(packed, at, channel, 1)
    at = put_number(packed, at, generation, 4)
    at = put_number(packed, at, step, 4)
    at = put_number(packed, at, cookie, 4)
    at = put_number(packed, at, size_part, 4)
    return cut_bytes(packed, 0, at)


def part_of(data: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
    """Returns some of the bytes, as a slice does, which takes several times as long."""
    if at < 0 or end < at or end > len(data):
        raise IndexError(f"{len(data)} bytes have no part from {at} to {end}")
    return bytes_at(data, at, end)


def entry_of_appends(start: bytes, sections: list, appends: list) -> bytearray:
    """Returns an entry that starts with these bytes, has these sections, then the appends: of each its queue, note and data."""
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t = _SECTIONS_AT + 4
    queue: cython.longlong
    section: bytes
    note: bytes
    data: bytes
    for section in sections:
        size += len(section)
    for _, note, data in appends:
        size += _APPEND_SIZE + len(note) + len(data)
    entry: bytearray = zeroed(size)
    put_bytes(entry, 0, start)
    at = _SECTIONS_AT
    for section in sections:
        at = put_bytes(entry, at, section)
    at = put_number(entry, at, len(appends), 4)
    for queue, note, data in appends:
        at = put_number(entry, at, queue, 4)
        at = put_number(entry, at, len(note), 4)
        at = put_number(entry, at, len(data), 4)
        at = put_bytes(entry, at, note)
        at = put_bytes(entry, at, data)
    checksum: cython.longlong = crc_at(entry, 0, _START_SIZE)
    is_short: cython.bint = size <= _SHORT_MAX
    checksum = crc_of(entry, _SECTIONS_AT, checksum) if is_short else crc32c(memoryview(entry)[_SECTIONS_AT:], checksum)
    put_number(entry, _START_SIZE, checksum, 4)
    return entry


def set_place(batch: bytearray, offset: cython.longlong, length: cython.longlong, epoch: cython.longlong) -> None:
    """Sets the fields of a record batch that its checksum does not cover: base offset, length and leader epoch."""
    if len(batch) < _PLACE_SIZE:
        raise IndexError(f"{len(batch)} bytes are no record batch")
    put_number(batch, put_number(batch, put_number(batch, 0, offset, 8), length, 4), epoch, 4)


def grown(room: bytearray, size: cython.Py_ssize_t, capacity: cython.Py_ssize_t) -> bytearray:
    """Returns a buffer of another capacity whose first bytes are those of this one, so many. The rest of it is not filled."""
    if size < 0 or size > len(room) or size > capacity:
        raise IndexError(f"{size} bytes of {len(room)} do not fit into {capacity}")
    larger: bytearray = unfilled(capacity)
    put_start(larger, room, size)
    return larger


def copy_into(room: bytearray, at: cython.Py_ssize_t, data: bytes) -> None:
    """Copies bytes to a place in a buffer that is large enough. A slice that is assigned to copies them twice."""
    if at < 0 or at + len(data) > len(room):
        raise IndexError(f"{len(data)} bytes do not fit at {at} of {len(room)}")
    put_bytes(room, at, data)
