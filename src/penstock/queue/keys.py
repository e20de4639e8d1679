"""How a partition is laid out in its KV tablet. Keys are of fixed width and big-endian, so that key order is offset order.

     "d" | partition 4 | first offset 8 | messages 4 | kind 1     data; kind "b" body, "h" head
     "m" | partition 4                                            meta: start offset, end offset
     "s" | partition 4 | source id                                what a source has written last (see sources.py)
     "t" | partition 4 | producer id 8                            an open transaction: its first offset
     "a" | partition 4 | last offset 8 | producer id 8            an aborted transaction: its first offset
     "c" | partition 4 | consumer                                 a consumer's position
     "e" | partition 4 | generation 4                             the first offset that generation wrote
     "k" | partition 4                                            how far compaction has come (see clean_state.py)
     "g" | partition 4                                            which gateways have written to it (see origins.py)
     "l" | partition 4                                            up to which offset there are keys; the log goes on from there
     "w" | partition 4 | number 4                                 data that compaction has written and not yet put in place

The head of a data value describes it, and the value is the batches, and for a body its marks behind them:

     version 1 | bytes of batches 4 | bytes of marks 4 | earliest timestamp 8 | latest timestamp 8
                                                       | from version 2 on: offsets that hold no message 4
     mark: first offset 8 | byte 4 | latest timestamp up to the next mark 8
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from penstock.core.errors import CorruptionError
from penstock.core.format_version import check_version

VERSION = 1
COUNTED_VERSION = 2
UNCOUNTED = -1
BODY, HEAD = b"b", b"h"

_PARTITION = Struct(">cI")
_DATA = Struct(">cIQIc")
_META = Struct(">BQQ")
_DESCRIPTION = Struct(">BIIqq")
_COUNTED = Struct(">BIIqqI")
_TRANSACTION = Struct(">cIQ")
_ABORTED = Struct(">cIQQ")
_EPOCH = Struct(">cII")
_STAGED = Struct(">cII")
_OFFSET = Struct(">Q")


class DataKey(NamedTuple):
    """The key of a data blob."""

    partition: int
    first_offset: int
    messages: int
    kind: bytes

    def pack(self) -> bytes:
        """The stored form."""
        return _DATA.pack(b"d", *self)

    @classmethod
    def unpack(cls, key: bytes) -> DataKey:
        """The data key whose stored form this is."""
        return cls(*_DATA.unpack(key)[1:])


class Description(NamedTuple):
    """The head of a data value. `hidden` is how many of its offsets hold no message, being those of markers or gone by
    compaction; UNCOUNTED in a piece of the head, which is counted when it is loaded, and in bodies of before this was kept."""

    data_size: int
    marks_size: int
    min_timestamp: int
    max_timestamp: int
    hidden: int = UNCOUNTED

    def pack(self) -> bytes:
        """The stored form."""
        return _DESCRIPTION.pack(VERSION, *self[:-1]) if self.hidden == UNCOUNTED else _COUNTED.pack(COUNTED_VERSION, *self)

    @classmethod
    def unpack(cls, raw: bytes) -> Description:
        """The description whose stored form this is."""
        layout = _COUNTED if raw[:1] == bytes((COUNTED_VERSION,)) else _DESCRIPTION
        return cls(*_fields(layout, raw, "the description of a data blob", COUNTED_VERSION))


class Meta(NamedTuple):
    """Where a partition starts, and where it ended when this was written; data after that speaks for itself."""

    start_offset: int
    end_offset: int

    def pack(self) -> bytes:
        """The stored form."""
        return _META.pack(VERSION, *self)

    @classmethod
    def unpack(cls, raw: bytes) -> Meta:
        """The meta value whose stored form this is."""
        return cls(*_fields(_META, raw, "the meta value of a partition"))


def prefix(kind: bytes, partition: int) -> bytes:
    """What all keys of one kind of a partition start with; also the meta key."""
    return _PARTITION.pack(kind, partition)


def past(key_prefix: bytes) -> bytes:
    """The end of the range of keys with this prefix."""
    return key_prefix[:-4] + _PARTITION.pack(b"x", int.from_bytes(key_prefix[-4:], "big") + 1)[1:]


def partition_of(key: bytes) -> int:
    """The partition a key belongs to."""
    number: int = _PARTITION.unpack_from(key)[1]
    return number


def transaction_key(partition: int, producer_id: int) -> bytes:
    """The key of an open transaction."""
    return _TRANSACTION.pack(b"t", partition, producer_id)


def aborted_key(partition: int, last_offset: int, producer_id: int) -> bytes:
    """The key of an aborted transaction."""
    return _ABORTED.pack(b"a", partition, last_offset, producer_id)


def producer_of(key: bytes) -> int:
    """The producer in the key of a transaction, open or aborted."""
    return int.from_bytes(key[-8:], "big")


def last_offset_of(key: bytes) -> int:
    """The last offset in the key of an aborted transaction."""
    number: int = _ABORTED.unpack(key)[2]
    return number


def epoch_key(partition: int, epoch: int) -> bytes:
    """The key of a leader epoch."""
    return _EPOCH.pack(b"e", partition, epoch)


def epoch_of(key: bytes) -> int:
    """The epoch in its key."""
    number: int = _EPOCH.unpack(key)[2]
    return number


def staged_key(partition: int, number: int) -> bytes:
    """The key of data that compaction has written and not yet put in place."""
    return _STAGED.pack(b"w", partition, number)


def pack_offset(offset: int) -> bytes:
    """An offset as a value."""
    return _OFFSET.pack(offset)


def unpack_offset(raw: bytes) -> int:
    """The offset in a value."""
    number: int = _OFFSET.unpack_from(raw)[0]
    return number


def _fields(layout: Struct, raw: bytes, name: str, version_max: int = VERSION) -> tuple[Any, ...]:
    """What a value holds behind its version."""
    check_version(raw[0] if raw else 0, version_max, name)
    if len(raw) != layout.size:
        raise CorruptionError(f"{name} has {len(raw)} bytes, not {layout.size}")
    return layout.unpack(raw)[1:]
