"""Offsets committed inside a transaction: staged until it ends, then moved to the table of committed offsets or dropped.

"x" | producer id 8 | consumer | 0 | topic id 16 | partition 4
value: as in the table of positions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.broker.consumers import Consumers, Position, TopicPartition, pack_position, position_write, unpack_position
from penstock.broker.system_tablet import TableTablet
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError
from penstock.tablet import Command, DeleteRange, Request, Write

CONSUMER_SIZE_MAX = 1000

_PREFIX = Struct(">cQ")
_QUEUE = Struct(">16sI")


class _Staged(NamedTuple):
    """A key taken apart."""

    producer_id: int
    consumer: str
    queue: TopicPartition


class TransactionalOffsets:
    """The staged offsets of open transactions, by producer."""

    def __init__(self, tablet: TableTablet, consumers: Consumers, clock: Clock) -> None:
        self._tablet = tablet
        self._pending = consumers.pending
        self._clock = clock
        self._load(tablet)

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        self._pending.clear()
        self._load(tablet)

    async def stage(self, producer_id: int, consumer: str, positions: Iterable[tuple[TopicPartition, Position]]) -> None:
        """Stage offsets for the end of the producer's transaction, atomically and durably."""
        now_ms = int(self._clock.wall() * 1000)
        staged: list[_Staged] = []
        commands: list[Command] = []
        for queue, position in positions:
            staged.append(_Staged(producer_id, consumer, queue))
            commands.append(Write(_key(staged[-1]), b"", head=pack_position(position, now_ms)))
        if not commands:
            return
        await self._tablet.execute(Request(tuple(commands)))
        for entry in staged:
            self._note(entry)

    async def finish(self, producer_id: int, *, commit: bool, is_known: Callable[[UUID], bool]) -> None:
        """End a transaction: atomically commit its offsets, or discard them. Idempotent."""
        begin, end = _PREFIX.pack(b"x", producer_id), _PREFIX.pack(b"x", producer_id + 1)
        staged_keys = list(self._tablet.keys(begin, end))
        now_ms = int(self._clock.wall() * 1000)
        commands: list[Command] = []
        for key in staged_keys if commit else ():
            _, consumer, queue = _unpack_key(key)
            if is_known(queue.topic_id):
                commands.append(position_write(consumer, queue, unpack_position(self._tablet.head(key) or b""), now_ms))
        # Even if nothing is there: what was staged in vain could else be found again after a crash, and taken for the next one's.
        await self._tablet.execute(Request((*commands, DeleteRange(begin, end)), makes_room=True))
        for key in staged_keys:
            self._forget(_unpack_key(key))

    def _load(self, tablet: TableTablet) -> None:
        for key in tablet.keys(b"x", b"y"):
            self._note(_unpack_key(key))

    def _note(self, staged: _Staged) -> None:
        self._pending.setdefault((staged.consumer, staged.queue), set()).add(staged.producer_id)

    def _forget(self, staged: _Staged) -> None:
        place = (staged.consumer, staged.queue)
        left = self._pending.get(place, set())
        left.discard(staged.producer_id)
        if not left:
            self._pending.pop(place, None)


def _key(staged: _Staged) -> bytes:
    name = staged.consumer.encode()
    if not name or len(name) > CONSUMER_SIZE_MAX or b"\0" in name:
        raise InvalidRequestError(f"a consumer's name has 1 to {CONSUMER_SIZE_MAX} bytes, none of them zero")
    prefix = _PREFIX.pack(b"x", staged.producer_id)
    return prefix + name + b"\0" + _QUEUE.pack(staged.queue.topic_id.bytes, staged.queue.partition)


def _unpack_key(key: bytes) -> _Staged:
    producer_id: int = _PREFIX.unpack_from(key)[1]
    topic_id, partition = _QUEUE.unpack(key[-_QUEUE.size :])
    return _Staged(producer_id, key[_PREFIX.size : -_QUEUE.size - 1].decode(), TopicPartition(UUID(bytes=topic_id), partition))
