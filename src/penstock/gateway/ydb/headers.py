"""How what a YDB message has beyond data and time is kept in a record: as headers, ours first and always in this order.

ydb.producer      the producer id (the seed's SourceId)
ydb.seqno         its number, in decimal digits
ydb.group         the message group, if it is not the producer id
ydb.session.NAME  what the writer said of its session, under each NAME
NAME              metadata of the message; its item __key is the key of the record and no header
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PRODUCER: Final = b"ydb.producer"
SEQNO: Final = b"ydb.seqno"
GROUP: Final = b"ydb.group"
SESSION: Final = b"ydb.session."
OWN_PREFIX: Final = "ydb."
KEY_ITEM: Final = "__key"

SMALL: Final = 1 << 14


def varint(number: int) -> bytes:
    """A number as records have it: zigzag, seven bits a byte."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


VARINTS: Final[list[bytes]] = [varint(number) for number in range(SMALL)]


def packed(name: bytes, value: bytes) -> bytes:
    """One header of a record."""
    return varint(len(name)) + name + varint(len(value)) + value


def unpacked(raw: bytes, at: int) -> Iterable[tuple[bytes, bytes]]:
    """The headers whose count begins at a byte of some records; a null value is taken as empty."""
    count, at = _number(raw, at)
    for _ in range(count):
        size, at = _number(raw, at)
        name = raw[at : at + size]
        at += size
        size, at = _number(raw, at)
        size = max(size, 0)
        yield name, raw[at : at + size]
        at += size


def _number(raw: bytes, at: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = raw[at]
        at += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), at
        shift += 7
