"""What consumers of a classic group say to each other through the broker: the topics that they read, and the partitions that they
are given. Only to know and to show that; the rest is between them."""

from __future__ import annotations

from struct import Struct, error

CONSUMER_PROTOCOL = "consumer"

_HEADER = Struct(">hi")  # version, number of topics
_LENGTH = Struct(">h")
_COUNT = Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's metadata, of whichever version; None if it is not of that form."""
    topics: set[str] = set()
    try:
        version, count = _HEADER.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        place = _HEADER.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, place)
            place += _LENGTH.size
            if length < 0 or place + length > len(metadata):
                return None
            topics.add(metadata[place : place + length].decode())
            place += length
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]] | None:
    """The partitions by topic in what a consumer was assigned, of whichever version; None if it is not of that form."""
    partitions: dict[str, tuple[int, ...]] = {}
    try:
        version, count = _HEADER.unpack_from(assignment)
        if version < 0 or not 0 <= count <= len(assignment):
            return None
        place = _HEADER.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(assignment, place)
            place += _LENGTH.size
            topic = assignment[place : place + length].decode()
            place += length
            (numbers,) = _COUNT.unpack_from(assignment, place)
            place += _COUNT.size
            if length < 0 or not 0 <= numbers <= len(assignment):
                return None
            partitions[topic] = Struct(f">{numbers}i").unpack_from(assignment, place)
            place += 4 * numbers
    except (error, UnicodeDecodeError):
        return None
    return partitions
