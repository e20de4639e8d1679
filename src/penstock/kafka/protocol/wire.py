"""What compiled codecs call for the rare cases: long varints, unknown tags, and saying what is wrong with a message."""

from __future__ import annotations

import struct
from functools import cache

from penstock.core.errors import InvalidRequestError

FEW = 9
"""Arrays of numbers shorter than this (replicas of a partition, mostly) have their formats made in advance."""


class ProtocolError(InvalidRequestError):
    """The bytes are no Kafka message of the kind and version they claim to be."""

    code = "kafka_protocol"


class UnsupportedVersionError(ProtocolError):
    """There is no codec for this api key in this version; the header was still read as far as the correlation id."""

    code = "kafka_unsupported_version"

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"api key {api_key} version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


def read_uvarint(buf: memoryview, at: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose `first` byte, before `at`, has its top bit set: the value, and where it ends."""
    byte = buf[at]
    if byte < 0x80:
        return first & 0x7F | byte << 7, at + 1
    value = first & 0x7F | (byte & 0x7F) << 7
    byte = buf[at + 1]
    if byte < 0x80:
        return value | byte << 14, at + 2
    value |= (byte & 0x7F) << 14
    byte = buf[at + 2]
    if byte < 0x80:
        return value | byte << 21, at + 3
    value |= (byte & 0x7F) << 21
    byte = buf[at + 3]
    if byte < 0x10:
        return value | byte << 28, at + 4
    raise ProtocolError(f"the varint at byte {at - 1} does not fit 32 bits")


def uvarint(value: int) -> bytes:
    """`value`, of 32 bits at most, in groups of seven bits, the lowest first; the top bit says that more follow."""
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)) + uvarint(value >> 21)


def read_tag(buf: memoryview, at: int, end: int) -> tuple[int, int, int]:
    """A tagged field's number, where its value starts and where it ends."""
    tag = buf[at]
    at += 1
    if tag > 0x7F:
        tag, at = read_uvarint(buf, at, tag)
    size = buf[at]
    at += 1
    if size > 0x7F:
        size, at = read_uvarint(buf, at, size)
    if at + size > end:
        raise overrun(f"tagged field {tag}", size, end - at)
    return tag, at, at + size


def skip_tags(buf: memoryview, at: int, end: int, count: int) -> int:
    """Step over `count` tagged fields, all of them unknown; `count` is the first byte of the section."""
    if count > 0x7F:
        count, at = read_uvarint(buf, at, count)
    if count > (end - at) // 2:
        raise overrun("the tagged fields", count, end - at)
    for _ in range(count):
        at = read_tag(buf, at, end)[2]
    return at


@cache
def few_structs(form: str) -> list[struct.Struct]:
    """The formats of arrays of 0 to `FEW` - 1 numbers."""
    return [struct.Struct(f">{count}{form}") for count in range(FEW)]


def overrun(name: str, length: int, left: int) -> ProtocolError:
    """`length` is as announced on the wire: it is below what is allowed there, or needs more than the bytes that are `left`."""
    return ProtocolError(f"{name} announces a length of {length}, which does not fit the {left} bytes left")


def misfit(name: str, at: int, end: int) -> ProtocolError:
    return ProtocolError(f"{name} ends at byte {at} of {end}")
