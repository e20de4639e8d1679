"""Numbers of seven bits a byte, the lowest first, the sign in the lowest bit: as record batches and binary YSON have them."""

from __future__ import annotations

_SMALL = 1 << 14


def varint(number: int) -> bytes:
    """A number as bytes."""
    return _VARINTS[number] if 0 <= number < _SMALL else _made(number)


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a byte, and the byte after it. IndexError if it does not end within 64 bits."""
    zigzag = data[at]
    at += 1
    if zigzag < 0x80:  # as most do
        return (zigzag >> 1) ^ -(zigzag & 1), at
    zigzag &= 0x7F
    for shift in range(7, 64, 7):
        byte = data[at]
        at += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), at
    raise IndexError("a number takes more than 64 bits")


def _made(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


# Most are lengths of small things, and are asked for again and again.
_VARINTS = [_made(number) for number in range(_SMALL)]
