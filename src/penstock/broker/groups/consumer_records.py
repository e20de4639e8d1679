"""What is kept of a group whose coordinator assigns partitions (KIP-848), record by record, and how it is stored.

"h" | group | 0 | "g"                 the group itself
"h" | group | 0 | "m" | member id     a member
"h" | group | 0 | "t" | member id     what the member should have in the end

group:   version 1 | epoch 4 | assignment epoch 4 | empty since 8 (ms; 0: has members) | assignor text
         | topics 4 | topics x (topic id 16 | partitions 4)
member:  version 1 | epoch 4 | previous epoch 4 | state 1 | rebalance timeout 4 (ms) | instance id text | rack text
         | client id text | client host text | pattern text | assignor text | names 4 | names x text | assigned queues
         | revoking queues
target:  version 1 | queues
text:    length 2 (65535: none) | UTF-8
queues:  topics 4 | topics x (topic id 16 | numbers 4 | numbers x 4)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final
from uuid import UUID

from penstock.broker.consumers import TopicPartition
from penstock.core.errors import ConfigError, CorruptionError

VERSION = 1
PREFIX = b"h"
GROUP, MEMBER, TARGET = b"g", b"m", b"t"
NO_QUEUES: Final[frozenset[TopicPartition]] = frozenset()
NO_TEXT = 0xFFFF

_U16 = Struct(">H")
_U32 = Struct(">I")
_GROUP = Struct(">BIIQ")
_MEMBER = Struct(">BiiBI")
_TOPIC = Struct(">16sI")


class MemberState(IntEnum):
    """The progress of a member towards its target assignment."""

    STABLE = 0  # it has what it can have
    UNREVOKED = 1  # it must give up partitions and has not reported that it did
    UNRELEASED = 2  # it waits for partitions that others have not given up


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group: its epoch grows with every change that asks for another assignment, and the assignment's follows it."""

    epoch: int = 0
    assignment_epoch: int = 0
    empty_since_ms: int = 0
    assignor: str = ""
    topics: Mapping[UUID, int] = field(default_factory=dict)  # what the members subscribe to, with how many partitions

    def pack(self) -> bytes:
        """The stored form."""
        head = _GROUP.pack(VERSION, self.epoch, self.assignment_epoch, self.empty_since_ms)
        topics = [_TOPIC.pack(topic.bytes, count) for topic, count in sorted(self.topics.items())]
        return head + _text(self.assignor) + _U32.pack(len(topics)) + b"".join(topics)

    @classmethod
    def unpack(cls, raw: bytes) -> GroupRecord:
        """The group whose stored form is `raw`."""
        reader = _Reader(raw)
        _, epoch, assignment_epoch, empty_since_ms = reader.take(_GROUP)
        assignor = reader.text() or ""
        topics = dict(reader.topic() for _ in range(reader.number()))
        reader.finish()
        return cls(epoch, assignment_epoch, empty_since_ms, assignor, topics)


@dataclass(frozen=True, slots=True)
class Member:
    """A member: its subscription, and what it was assigned last. It may use `assigned` and must give up `revoking`."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    names: frozenset[str] = frozenset()
    pattern: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: frozenset[TopicPartition] = NO_QUEUES
    revoking: frozenset[TopicPartition] = NO_QUEUES

    def pack(self) -> bytes:
        """The stored form."""
        parts = [_MEMBER.pack(VERSION, self.epoch, self.previous_epoch, self.state, self.rebalance_timeout_ms)]
        texts = (self.instance_id, self.rack_id, self.client_id, self.client_host, self.pattern, self.assignor)
        parts += map(_text, texts)
        parts.append(_U32.pack(len(self.names)))
        parts += map(_text, sorted(self.names))
        parts += (_queues(self.assigned), _queues(self.revoking))
        return b"".join(parts)

    @classmethod
    def unpack(cls, member_id: str, raw: bytes) -> Member:
        """The member whose stored form is `raw`."""
        reader = _Reader(raw)
        _, epoch, previous_epoch, state, rebalance_timeout_ms = reader.take(_MEMBER)
        instance_id, rack_id, client_id, client_host, pattern, assignor = (reader.text() for _ in range(6))
        names = frozenset(reader.text() or "" for _ in range(reader.number()))
        assigned, revoking = reader.queues(), reader.queues()
        reader.finish()
        return cls(
            id=member_id,
            instance_id=instance_id,
            rack_id=rack_id,
            client_id=client_id or "",
            client_host=client_host or "",
            rebalance_timeout_ms=rebalance_timeout_ms,
            names=names,
            pattern=pattern or "",
            assignor=assignor,
            epoch=epoch,
            previous_epoch=previous_epoch,
            state=MemberState(state),
            assigned=assigned,
            revoking=revoking,
        )


def pack_target(queues: frozenset[TopicPartition]) -> bytes:
    """The stored form of a member's target."""
    return bytes([VERSION]) + _queues(queues)


def unpack_target(raw: bytes) -> frozenset[TopicPartition]:
    """The target whose stored form is `raw`."""
    reader = _Reader(raw)
    reader.skip(1)
    queues = reader.queues()
    reader.finish()
    return queues


def key_of(group: str, kind: bytes = b"", member_id: str = "") -> bytes:
    """The key of a record; without a kind, what the keys of all records of the group begin with."""
    return PREFIX + group.encode() + b"\0" + kind + member_id.encode()


def _text(value: str | None) -> bytes:
    if value is None:
        return _U16.pack(NO_TEXT)
    raw = value.encode()
    return _U16.pack(len(raw)) + raw


def _queues(queues: frozenset[TopicPartition]) -> bytes:
    topics: dict[UUID, list[int]] = {}
    for queue in sorted(queues):
        topics.setdefault(queue.topic_id, []).append(queue.partition)
    parts = [_U32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += (_TOPIC.pack(topic.bytes, len(numbers)), b"".join(map(_U32.pack, numbers)))
    return b"".join(parts)


class _Reader:
    """Takes a stored record apart from front to back."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0
        if not raw:
            raise CorruptionError("a record of a group is empty")
        if raw[0] > VERSION:
            raise ConfigError(f"a record of a group has format {raw[0]}; upgrade Penstock")

    def take(self, form: Struct) -> tuple[int, ...]:
        begin = self.skip(form.size)
        return form.unpack_from(self._raw, begin)

    def skip(self, size: int) -> int:
        begin, self._at = self._at, self._at + size
        if self._at > len(self._raw):
            raise CorruptionError(f"a record of a group ends after {len(self._raw)} bytes; {self._at} are needed")
        return begin

    def number(self) -> int:
        return self.take(_U32)[0]

    def text(self) -> str | None:
        size = self.take(_U16)[0]
        if size == NO_TEXT:
            return None
        begin = self.skip(size)
        return self._raw[begin : self._at].decode()

    def topic(self) -> tuple[UUID, int]:
        begin = self.skip(_TOPIC.size)
        topic_id, number = _TOPIC.unpack_from(self._raw, begin)
        return UUID(bytes=topic_id), number

    def queues(self) -> frozenset[TopicPartition]:
        partitions: list[TopicPartition] = []
        for _ in range(self.number()):
            topic_id, count = self.topic()
            partitions += (TopicPartition(topic_id, self.number()) for _ in range(count))
        return frozenset(partitions)

    def finish(self) -> None:
        if self._at != len(self._raw):
            raise CorruptionError(f"a record of a group has {len(self._raw)} bytes where {self._at} were expected")
