"""Committed offsets of consumers: one table for all gateways, by consumer, topic and partition, in its own tablet.

"o" | consumer | 0 | topic id 16 | partition 4
value: version 1 | offset 8 | leader epoch 4 | commit time 8 | metadata
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.broker.system_tablet import TableTablet
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError
from penstock.core.format_version import check_version
from penstock.tablet import Command, DeleteRange, Request, Write

VERSION = 1
METADATA_MAX = 4096
CONSUMER_SIZE_MAX = 1000
OBJECT_PREFIX = "\1"  # names of consumers and producers that are objects of the namespace, and no groups, begin with it

_POSITION = Struct(">BqiQ")
_TOPIC_PARTITION = Struct(">16sI")


class TopicPartition(NamedTuple):
    """A partition, by the id of its topic."""

    topic_id: UUID
    partition: int


class Position(NamedTuple):
    """The committed offset of a consumer in a partition: the offset of the next message to consume."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_time_ms: int = 0


class Consumers:
    """The table of committed offsets."""

    def __init__(self, tablet: TableTablet, clock: Clock) -> None:
        self._tablet = tablet
        self._clock = clock
        self.pending: dict[tuple[str, TopicPartition], set[int]] = {}  # producers whose open transactions set a position

    def is_unstable(self, consumer: str, place: TopicPartition) -> bool:
        """Whether an open transaction sets this offset."""
        return (consumer, place) in self.pending

    def position(self, consumer: str, place: TopicPartition) -> Position | None:
        """The committed offset of a consumer; None if it never committed there."""
        raw = self._tablet.head(_key(consumer, place))
        return None if raw is None else unpack_position(raw)

    def positions(self, consumer: str) -> dict[TopicPartition, Position]:
        """All committed offsets of a consumer."""
        begin = _prefix(consumer)
        positions: dict[TopicPartition, Position] = {}
        for key in self._tablet.keys(begin, begin[:-1] + b"\1"):
            topic_id, partition = _TOPIC_PARTITION.unpack(key[len(begin) :])
            positions[TopicPartition(UUID(bytes=topic_id), partition)] = unpack_position(self._tablet.head(key) or b"")
        return positions

    def has_positions(self, consumer: str) -> bool:
        """Whether a consumer has any committed offset."""
        begin = _prefix(consumer)
        return next(iter(self._tablet.keys(begin, begin[:-1] + b"\1")), None) is not None

    def consumers(self) -> list[str]:
        """Every consumer with a committed offset."""
        return sorted({key[1 : -_TOPIC_PARTITION.size - 1].decode() for key in self._tablet.keys(b"o", b"p")})

    def page(self, after: bytes, limit: int) -> tuple[list[tuple[str, TopicPartition, Position]], bytes]:
        """Returns up to `limit` positions of all consumers, and the `after` of the next page, which is b"" at the end. Start with
        b""."""
        entries: list[tuple[str, TopicPartition, Position]] = []
        for key in self._tablet.keys(max(after, b"o"), b"p"):
            if len(entries) == limit:
                return entries, key
            topic_id, partition = _TOPIC_PARTITION.unpack(key[-_TOPIC_PARTITION.size :])
            position = unpack_position(self._tablet.head(key) or b"")
            entries.append(
                (key[1 : -_TOPIC_PARTITION.size - 1].decode(), TopicPartition(UUID(bytes=topic_id), partition), position)
            )
        return entries, b""

    async def commit(self, consumer: str, positions: Iterable[tuple[TopicPartition, Position]]) -> None:
        """Commit offsets of a consumer, atomically and durably."""
        await self.commit_all((consumer, place, position) for place, position in positions)

    async def commit_all(self, positions: Iterable[tuple[str, TopicPartition, Position]]) -> None:
        """Commit offsets of several consumers, atomically and durably."""
        now_ms = int(self._clock.wall() * 1000)
        writes = tuple(position_write(consumer, place, position, now_ms) for consumer, place, position in positions)
        if writes:
            await self._tablet.execute(Request(writes, makes_room=True))

    async def forget(self, consumer: str, places: Iterable[TopicPartition]) -> None:
        """Delete committed offsets."""
        keys = [_key(consumer, place) for place in places]
        if keys:
            await self._tablet.execute(Request(tuple(DeleteRange(key, key + b"\0") for key in keys), makes_room=True))

    def forget_all_commands(self, consumer: str) -> tuple[Command, ...]:
        """The commands that delete all committed offsets of a consumer; empty if it has none."""
        begin = _prefix(consumer)
        return (DeleteRange(begin, begin[:-1] + b"\1"),) if self.has_positions(consumer) else ()

    async def forget_topic(self, topic_id: UUID) -> None:
        """Delete all committed offsets in a topic."""
        keys = [key for key in self._tablet.keys(b"o", b"p") if key[-_TOPIC_PARTITION.size : -4] == topic_id.bytes]
        for begin in range(0, len(keys), 1000):
            commands = tuple(DeleteRange(key, key + b"\0") for key in keys[begin : begin + 1000])
            await self._tablet.execute(Request(commands, makes_room=True))


def _prefix(consumer: str) -> bytes:
    name = consumer.encode()
    if not name or len(name) > CONSUMER_SIZE_MAX or b"\0" in name:
        raise InvalidRequestError(f"a consumer's name has 1 to {CONSUMER_SIZE_MAX} bytes, none of them zero")
    return b"o" + name + b"\0"


def _key(consumer: str, place: TopicPartition) -> bytes:
    return _prefix(consumer) + _TOPIC_PARTITION.pack(place.topic_id.bytes, place.partition)


def position_write(consumer: str, place: TopicPartition, position: Position, now_ms: int) -> Write:
    """The command that sets a position."""
    return Write(_key(consumer, place), b"", head=pack_position(position, now_ms))


def pack_position(position: Position, now_ms: int) -> bytes:
    """The stored form of a position."""
    metadata = position.metadata.encode()
    if len(metadata) > METADATA_MAX:
        raise InvalidRequestError(f"the metadata of a position has {len(metadata)} bytes, at most {METADATA_MAX} are kept")
    return _POSITION.pack(VERSION, position.offset, position.leader_epoch, now_ms) + metadata


def unpack_position(raw: bytes) -> Position:
    check_version(raw[0] if raw else 0, VERSION, "the position of a consumer")
    _, offset, leader_epoch, commit_time_ms = _POSITION.unpack_from(raw)
    return Position(offset, leader_epoch, raw[_POSITION.size :].decode(), commit_time_ms)
