"""What consumers say when they join a classic group: the topics that they read. Only to know that; the rest is between them."""

from __future__ import annotations

from struct import Struct, error

CONSUMER_PROTOCOL = "consumer"

_HEADER = Struct(">hi")  # version, number of topics
_LENGTH = Struct(">h")


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
