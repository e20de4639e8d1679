"""Leases: a reader protects the messages it plans to read from automatic deletion until it has read them.

A lease names partitions, and for each the first offset that is still needed. While it is valid, retention, trimming and
compaction delete nothing from there on; explicit requests (deleting records or topics) are carried out all the same. It is weaker
than an important consumer: it is granted for minutes and must be renewed, ends when it has protected the same messages for a day,
and is ignored while a disk is nearly full.

Leases outlive the broker. What is stored of one is what it held at first: as it moves on, only memory does, so after a restart it
holds somewhat more than it has to, for as long as it is granted for at a time.

"l" | lease id 16 | user
value: version 1 | duration in ms 4 | size of the owner's name 2 | owner | each partition: topic id 16 | number 4 | offset 8
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.blob import VDiskHost
from penstock.broker.consumers import TopicPartition
from penstock.broker.errors import LeaseLimitError, LeaseSpentError, UnknownLeaseError
from penstock.broker.system_tablet import TableTablet
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError
from penstock.core.format_version import check_version
from penstock.tablet import DeleteRange, Request, Write

VERSION: Final = 1
OWNER_SIZE_MAX: Final = 1000
FREE_LEAST: Final = 0.05  # of a disk; with less, leases are ignored

_VALUE: Final = Struct(">BIH")
_POSITION: Final = Struct(">16sIQ")

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Limits of leases."""

    leases_max: int = 10_000
    partitions_max: int = 10_000  # of one lease
    partitions_in_all_max: int = 200_000
    duration_s_max: float = 600.0  # the longest duration of a grant
    held_s_max: float = 86_400.0  # the longest time a lease may protect the same messages


class LeaseKey(NamedTuple):
    """The id of a lease together with its user, so that another user with the same id has another lease."""

    id: UUID
    user: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The protected offsets, the owner and the expiry; `since_s` is when it was taken or last advanced."""

    owner: str
    duration_s: float
    positions: Positions = field(repr=False)
    since_s: float
    expires_s: float
    refused_s: float = float("-inf")  # when a renewal was last refused because it had protected the same messages for too long


class LeaseBook:
    """All leases, in memory. Time comes in with each call."""

    def __init__(self, options: LeaseOptions) -> None:
        self._options = options
        self._leases: dict[LeaseKey, Lease] = {}
        self._partitions = 0  # of all leases
        self._by_place: dict[TopicPartition, dict[LeaseKey, Lease]] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def __contains__(self, key: LeaseKey) -> bool:
        return key in self._leases

    def take(self, key: LeaseKey, owner: str, duration_s: float, positions: Positions, now_s: float) -> Lease:
        """Take a lease, or move an existing one to other offsets. Raises LeaseLimitError and LeaseSpentError."""
        known = self._leases.get(key)
        if known is not None and now_s >= known.expires_s and not self._is_spent(known, now_s):
            known = None
        self._check_room(1 if known is None else 0, len(positions) - len(known.positions if known else ()), now_s)
        since_s = now_s
        if known is not None and not _has_advanced(known.positions, positions):
            self._check_not_spent(key, known, now_s)
            since_s = known.since_s
        duration_s = min(duration_s, self._options.duration_s_max)
        return self._put(key, self._prolonged(Lease(owner, duration_s, positions, since_s, now_s), now_s))

    def restore(self, key: LeaseKey, lease: Lease) -> None:
        """Restore a stored lease with its full duration."""
        self._put(key, lease)

    def renew(self, key: LeaseKey, now_s: float) -> Lease:
        """Extend a lease from now. UnknownLeaseError if it has expired, LeaseSpentError if it may not be extended."""
        known = self._leases.get(key)
        if known is None or (now_s >= known.expires_s and not self._is_spent(known, now_s)):
            raise UnknownLeaseError(f"lease {key.id} is not there: it was released, or not renewed in time; take another")
        self._check_not_spent(key, known, now_s)
        return self._put(key, self._prolonged(known, now_s))

    def drop(self, key: LeaseKey) -> bool:
        """End a lease. Returns False if it does not exist."""
        known = self._leases.pop(key, None)
        if known is None:
            return False
        self._partitions -= len(known.positions)
        for place in known.positions:
            holders = self._by_place[place]
            del holders[key]
            if not holders:
                del self._by_place[place]
        return True

    def expired(self, now_s: float) -> list[LeaseKey]:
        """Expired leases that are still in the book. A spent lease is remembered while it is requested."""
        return [key for key, lease in self._leases.items() if now_s >= max(lease.expires_s, lease.refused_s + lease.duration_s)]

    def of_partition(self, place: TopicPartition, now_s: float) -> list[Lease]:
        """The leases on a partition."""
        return [lease for lease in self._by_place.get(place, {}).values() if now_s < lease.expires_s]

    def _check_room(self, leases: int, partitions: int, now_s: float) -> None:
        """Check the limits, dropping expired leases if necessary."""
        if not self._has_room(leases, partitions):
            for key in self.expired(now_s):
                self.drop(key)
        if not self._has_room(leases, partitions):
            raise LeaseLimitError(
                f"there are {len(self._leases)} leases already, of {self._partitions} partitions in all, and at most "
                f"{self._options.leases_max} and {self._options.partitions_in_all_max}; release some, or wait until some expire"
            )

    def _has_room(self, leases: int, partitions: int) -> bool:
        options = self._options
        has_leases = leases <= 0 or len(self._leases) + leases <= options.leases_max
        return has_leases and (partitions <= 0 or self._partitions + partitions <= options.partitions_in_all_max)

    def _is_spent(self, lease: Lease, now_s: float) -> bool:
        return now_s >= lease.since_s + self._options.held_s_max

    def _check_not_spent(self, key: LeaseKey, lease: Lease, now_s: float) -> None:
        if self._is_spent(lease, now_s):
            self._put(key, replace(lease, refused_s=now_s))
            raise LeaseSpentError(
                f"the lease of {lease.owner!r} has held the same messages for {self._options.held_s_max:g} s, as long as one "
                "may; read them, or make the reader an important consumer of the topic"
            )

    def _prolonged(self, lease: Lease, now_s: float) -> Lease:
        return replace(lease, expires_s=min(now_s + lease.duration_s, lease.since_s + self._options.held_s_max))

    def _put(self, key: LeaseKey, lease: Lease) -> Lease:
        self.drop(key)
        self._leases[key] = lease
        self._partitions += len(lease.positions)
        for place in lease.positions:
            self._by_place.setdefault(place, {})[key] = lease
        return lease


class Leases:
    """The leases of a broker. A lease protects its messages from the call of `take` on, and is durable when that returns."""

    def __init__(
        self,
        tablet: TableTablet,
        options: LeaseOptions,
        clock: Clock,
        *,
        is_short_of_room: Callable[[], bool] = lambda: False,
    ) -> None:
        self._tablet = tablet
        self._options = options
        self._clock = clock
        self._is_short_of_room = is_short_of_room
        self._book = LeaseBook(options)
        self._stored: dict[LeaseKey, Lease] = {}
        self._changing = asyncio.Lock()
        self._load(tablet)

    async def reload(self, tablet: TableTablet) -> None:
        """Load what is stored after a restart of the tablet, where a failed request may have been committed; memory is newer."""
        self._stored.clear()
        self._load(tablet)

    async def take(self, key: LeaseKey, owner: str, duration_s: float, positions: Positions) -> Lease:
        """Take a lease, or move an existing one to other offsets."""
        self._check(owner, duration_s, positions)
        lease = self._book.take(key, owner, duration_s, positions, self._clock.monotonic())
        async with self._changing:
            stored = self._stored.get(key)
            if key in self._book and (stored is None or not _covers(stored, lease)):
                await self._tablet.execute(Request((Write(_pack_key(key), b"", head=_pack(lease)),)))
                self._stored[key] = lease
        return lease

    def renew(self, key: LeaseKey) -> Lease:
        """Extend a lease by its duration from now."""
        return self._book.renew(key, self._clock.monotonic())

    async def release(self, key: LeaseKey) -> bool:
        """End a lease. Returns False if it does not exist."""
        was_there = self._book.drop(key)
        await self._forget([key])
        return was_there

    async def sweep(self) -> None:
        """Delete expired leases."""
        keys = self._book.expired(self._clock.monotonic())
        for key in keys:
            self._book.drop(key)
        await self._forget([*keys, *(key for key in self._stored if key not in self._book)])

    def needed_from(self, place: TopicPartition) -> int | None:
        """The first offset of a partition that a lease protects; None without leases, or while they are ignored."""
        lease = self.holder(place)
        return None if lease is None else lease.positions[place]

    def holder(self, place: TopicPartition) -> Lease | None:
        """The lease with the lowest offset in a partition."""
        held = self._book.of_partition(place, self._clock.monotonic())
        if not held or self._is_short_of_room():
            return None
        return min(held, key=lambda lease: lease.positions[place])

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._book)

    def __len__(self) -> int:
        return len(self._book)

    def _check(self, owner: str, duration_s: float, positions: Positions) -> None:
        most = self._options.partitions_max
        if not 0 < len(positions) <= most:
            raise InvalidRequestError(f"a lease names 1 to {most} partitions, not {len(positions)}; take several")
        if len(owner.encode()) > OWNER_SIZE_MAX:
            raise InvalidRequestError(f"the owner of a lease has a name of at most {OWNER_SIZE_MAX} bytes")
        if duration_s <= 0 or min(positions.values()) < 0:
            raise InvalidRequestError("a lease is for a time above 0 and holds offsets from 0 on")

    async def _forget(self, keys: list[LeaseKey]) -> None:
        async with self._changing:
            gone = [key for key in dict.fromkeys(keys) if key in self._stored and key not in self._book]
            if gone:
                packed_keys = [_pack_key(key) for key in gone]
                await self._tablet.execute(
                    Request(tuple(DeleteRange(packed_key, packed_key + b"\0") for packed_key in packed_keys), makes_room=True)
                )
                for key in gone:
                    del self._stored[key]

    def _load(self, tablet: TableTablet) -> None:
        for key, lease in _load_all(tablet, self._clock.monotonic()):
            self._stored[key] = lease
            if key not in self._book:
                self._book.restore(key, lease)


def is_short_of_room(life: VDiskHost) -> bool:
    """Whether a disk of the group is nearly full, so that leases are ignored."""
    spaces = [vdisk.space for vdisk in life.vdisks.values()]
    is_full = any(vdisk.full for vdisk in life.vdisks.values())
    return is_full or any(space is not None and space.free < FREE_LEAST * space.total for space in spaces)


def _has_advanced(before: Positions, after: Positions) -> bool:
    return any(offset > before.get(place, offset) for place, offset in after.items())


def _covers(stored: Lease, wanted: Lease) -> bool:
    """Whether the stored lease already protects at least as much for at least as long."""
    held = stored.positions
    return stored.duration_s >= wanted.duration_s and all(
        place in held and held[place] <= offset for place, offset in wanted.positions.items()
    )


def _pack_key(key: LeaseKey) -> bytes:
    return b"l" + key.id.bytes + key.user.encode()


def _pack(lease: Lease) -> bytes:
    owner = lease.owner.encode()
    held = (_POSITION.pack(place.topic_id.bytes, place.partition, offset) for place, offset in lease.positions.items())
    return _VALUE.pack(VERSION, int(lease.duration_s * 1000), len(owner)) + owner + b"".join(held)


def _load_all(tablet: TableTablet, now_s: float) -> Iterator[tuple[LeaseKey, Lease]]:
    for key in tablet.keys(b"l", b"m"):
        raw = tablet.head(key) or b""
        check_version(raw[0] if raw else 0, VERSION, "a lease")
        _, duration_ms, size = _VALUE.unpack_from(raw)
        begin = _VALUE.size + size
        positions = {
            TopicPartition(UUID(bytes=topic_id), number): offset
            for topic_id, number, offset in _POSITION.iter_unpack(raw[begin:])
        }
        owner, duration_s = raw[_VALUE.size : begin].decode(), duration_ms / 1000
        yield LeaseKey(UUID(bytes=key[1:17]), key[17:].decode()), Lease(owner, duration_s, positions, now_s, now_s + duration_s)
