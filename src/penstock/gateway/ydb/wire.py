"""The few pieces of the protocol's encoding that are put together by hand, where a Python object a message would be too much."""

from __future__ import annotations


def number(value: int) -> bytes:
    """A number: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
