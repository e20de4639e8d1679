"""The hash of a key by which Kafka's own producer chooses a partition: murmur2."""

from __future__ import annotations

_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of some bytes, as an unsigned number."""
    length = len(data)
    state = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        part = (part ^ part >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ part
    if length > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition to which Kafka's own producer sends a message of this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
