"""Registrations of consumers at queues, many to many and across clusters (seed 002).

"r" | queue cluster | 0 | queue path | 0 | consumer cluster | 0 | consumer path
value: version 1 | vital 1 | number of partitions 4, -1 for all | each of them 4
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from penstock.broker.system_tablet import TableTablet
from penstock.core.errors import InvalidRequestError
from penstock.core.format_version import check_version
from penstock.tablet import DeleteRange, Request, Write

VERSION = 1
REF_SIZE_MAX = 4000
PARTITIONS_MAX = 100_000
ALL_PARTITIONS = -1

_VALUE = Struct(">B?i")
_PARTITION = Struct(">I")


class Ref(NamedTuple):
    """A queue or a consumer by its path on a named cluster."""

    cluster: str
    path: str

    def __str__(self) -> str:
        return f"{self.cluster}:{self.path}"


class Registration(NamedTuple):
    """The registration of a consumer at a queue. Messages that a vital consumer has not read are not trimmed. `partitions` None
    is all."""

    queue: Ref
    consumer: Ref
    vital: bool
    partitions: tuple[int, ...] | None = None

    def covers(self, partition: int) -> bool:
        """Whether the consumer reads this partition."""
        return self.partitions is None or partition in self.partitions


class Registrations:
    """The table of registrations. Every change is durable before it is seen."""

    def __init__(self, tablet: TableTablet) -> None:
        self._tablet = tablet
        self._by_queue: dict[Ref, dict[Ref, Registration]] = {}
        self._by_consumer: dict[Ref, dict[Ref, Registration]] = {}
        self._load(tablet)

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        self._by_queue.clear()
        self._by_consumer.clear()
        self._load(tablet)

    async def register(self, registration: Registration) -> None:
        """Create or change a registration."""
        await self._tablet.execute(Request((Write(_key(registration), b"", head=_pack(registration)),), makes_room=True))
        self._take(registration)

    async def unregister(self, queue: Ref, consumer: Ref) -> bool:
        """Delete a registration. Returns whether there was one."""
        registration = self.registration(queue, consumer)
        if registration is None:
            return False
        key = _key(registration)
        await self._tablet.execute(Request((DeleteRange(key, key + b"\0"),), makes_room=True))
        self._by_queue.get(queue, {}).pop(consumer, None)
        self._by_consumer.get(consumer, {}).pop(queue, None)
        return True

    def registration(self, queue: Ref, consumer: Ref) -> Registration | None:
        """The registration of a consumer at a queue."""
        return self._by_queue.get(queue, {}).get(consumer)

    def of_queue(self, queue: Ref) -> list[Registration]:
        """Every consumer of a queue."""
        return list(self._by_queue.get(queue, {}).values())

    def of_consumer(self, consumer: Ref) -> list[Registration]:
        """Every queue of a consumer."""
        return list(self._by_consumer.get(consumer, {}).values())

    def queues(self) -> list[Ref]:
        """Every queue that has a consumer."""
        return [queue for queue, consumers in self._by_queue.items() if consumers]

    def consumers(self) -> list[Ref]:
        """Every consumer that has a queue."""
        return [consumer for consumer, queues in self._by_consumer.items() if queues]

    def __iter__(self) -> Iterator[Registration]:
        return (registration for consumers in self._by_queue.values() for registration in consumers.values())

    def _load(self, tablet: TableTablet) -> None:
        for key in tablet.keys(b"r", b"s"):
            self._take(_unpack(key, tablet.head(key) or b""))

    def _take(self, registration: Registration) -> None:
        self._by_queue.setdefault(registration.queue, {})[registration.consumer] = registration
        self._by_consumer.setdefault(registration.consumer, {})[registration.queue] = registration


def _key(registration: Registration) -> bytes:
    parts = [part.encode() for part in (*registration.queue, *registration.consumer)]
    if any(not part or b"\0" in part for part in parts) or sum(map(len, parts)) > REF_SIZE_MAX:
        raise InvalidRequestError(
            f"names of clusters and paths of a registration are not empty, without zeros, and at most {REF_SIZE_MAX} bytes in all"
        )
    return b"r" + b"\0".join(parts)


def _pack(registration: Registration) -> bytes:
    partitions = registration.partitions
    if partitions is None:
        return _VALUE.pack(VERSION, registration.vital, ALL_PARTITIONS)
    if len(partitions) > PARTITIONS_MAX or any(not 0 <= number < 1 << 32 for number in partitions):
        raise InvalidRequestError(f"a registration names at most {PARTITIONS_MAX} partitions, by their numbers")
    return _VALUE.pack(VERSION, registration.vital, len(partitions)) + b"".join(map(_PARTITION.pack, partitions))


def _unpack(key: bytes, raw: bytes) -> Registration:
    check_version(raw[0] if raw else 0, VERSION, "a registration")
    _, vital, count = _VALUE.unpack_from(raw)
    partitions = None if count == ALL_PARTITIONS else tuple(number for (number,) in _PARTITION.iter_unpack(raw[_VALUE.size :]))
    queue_cluster, queue_path, consumer_cluster, consumer_path = (part.decode() for part in key[1:].split(b"\0"))
    return Registration(Ref(queue_cluster, queue_path), Ref(consumer_cluster, consumer_path), vital, partitions)
