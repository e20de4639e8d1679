"""Numbers within buffers. Varints have seven bits a byte, the lowest first, and zigzag ones end in the bit of their sign; signed
numbers have a given size, the highest byte first.

They are for kernels that are not compiled; one that is has the same from kernels/varints.pxd.
"""

from __future__ import annotations

from typing import Final

_WORD: Final = (1 << 64) - 1


def zigzag_at(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The zigzag number that begins here and the byte after it, which is -1 if the number does not end before `end`."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= _WORD  # as in a register
            return value >> 1 ^ -(value & 1), at
        shift += 7
    return 0, -1


def varint_size(number: int) -> int:
    """How many bytes a number takes."""
    size = 1
    while number > 0x7F:
        number >>= 7
        size += 1
    return size


def put_varint(out: memoryview, at: int, number: int) -> int:
    """Write a number; the byte after it."""
    while number > 0x7F:
        out[at] = number & 0x7F | 0x80
        number >>= 7
        at += 1
    out[at] = number
    return at + 1


def zigzag_size(number: int) -> int:
    """How many bytes a zigzag number takes."""
    return varint_size(number << 1 ^ number >> 63)


def put_zigzag(out: memoryview, at: int, number: int) -> int:
    """Write a zigzag number; the byte after it."""
    return put_varint(out, at, number << 1 ^ number >> 63)


def unsigned_at(data: bytes, at: int, size: int) -> int:
    """The number without a sign of so many bytes that begins here."""
    return int.from_bytes(data[at : at + size], "big")


def signed_at(data: bytearray, at: int, size: int) -> int:
    """The signed number of so many bytes that begins here."""
    return int.from_bytes(data[at : at + size], "big", signed=True)


def varint_at(data: bytearray, at: int, end: int) -> tuple[int, int]:
    """The number of at most four bytes that begins here and the byte after it, which is -1 if it does not end before `end`."""
    value = shift = 0
    while at < end and shift < 28:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


def put_number(out: bytearray, at: int, number: int, size: int) -> int:
    """Write a number of so many bytes, signed or not; the byte after it."""
    out[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "big")
    return at + size


def put_bytes(out: bytearray, at: int, data: bytes) -> int:
    """Write some bytes; the byte after them."""
    end = at + len(data)
    out[at:end] = data
    return end
