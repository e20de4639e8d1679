"""Numbers of seven bits a byte, the lowest first, as records of Kafka and binary YSON write them; the lowest bit is the sign."""

from __future__ import annotations

_SMALL = 1 << 14


def varint(number: int) -> bytes:
    """A number from 0 on as records and YSON write it: doubled, seven bits a byte."""
    return _VARINTS[number] if number < _SMALL else _made_varint(number)


def _made_varint(number: int) -> bytes:
    zigzag = number << 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_VARINTS: list[bytes] = [_made_varint(number) for number in range(_SMALL)]


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and the place after it. IndexError if it does not end."""
    zigzag = shift = 0
    while True:
        byte = raw[at]
        at += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), at
        shift += 7
