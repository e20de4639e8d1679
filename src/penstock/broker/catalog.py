"""The catalog of topics, stored in the system tablet (the seed's SchemeShard for topics).

"t" | topic name                    the topic (see topic.py)
"n"                                 the next tablet id, 8 bytes
"p"                                 the next producer id that no block has, 8 bytes
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Protocol
from uuid import UUID

from penstock.broker.errors import InvalidPartitionsError, LimitReachedError, TopicExistsError, UnknownTopicError
from penstock.broker.limits import BrokerLimits
from penstock.broker.system_tablet import TableTablet
from penstock.broker.topic import Topic, check_name
from penstock.broker.topic_config import NO_DEFAULTS, TopicConfig
from penstock.tablet import DeleteRange, Request, Write

FIRST_TABLET = 1000
# Writes to the partitions of one tablet share a log entry: fewer tablets write fewer entries and start sooner. But all of them
# are unavailable while their tablet restarts.
PARTITIONS_PER_TABLET = 16
PRODUCER_BLOCK = 1000


class TabletSpread(Protocol):
    """How the tablets of new partitions are spread."""

    @property
    def spread(self) -> int:
        """Over how many nodes, if there are as many partitions."""
        ...

    def choose_groups(self, count: int) -> Sequence[int]:
        """The storage groups of so many tablets; empty if they are all in the first one."""
        ...


class Catalog:
    """Topics by name and by id. Every change is durable before it is seen."""

    def __init__(
        self,
        tablet: TableTablet,
        random: Random,
        defaults: Mapping[str, str] = NO_DEFAULTS,
        *,
        limits: BrokerLimits | None = None,
    ) -> None:
        self._limits = limits or BrokerLimits()
        self._tablet = tablet
        self._defaults = defaults  # what topics inherit
        self._random = random
        self._changing = asyncio.Lock()
        self._producer_next = self._producer_end = 0
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_tablet: tuple[int, dict[int, Topic]] = (-1, {})  # of this version
        self.version = 0  # another one after every change
        self._load(tablet)

    def follow(self, tablet: TableTablet, keys: Iterable[bytes]) -> list[Topic]:
        """Apply changed keys of a followed tablet. Returns the changed topics as they are now; a deleted topic is returned as
        it was, marked as being deleted."""
        changed: list[Topic] = []
        for key in keys:
            if not key.startswith(b"t"):
                continue
            stored = tablet.head(key)
            if stored is not None:
                topic = Topic.unpack(stored)
                before = self._by_name.get(topic.name)
                if before is not None and before.id != topic.id:
                    del self._by_id[before.id]
                    changed.append(before._replace(deleting=True))
                self._take(topic._replace(config=topic.config.under(self._defaults)))
                changed.append(self._by_name[topic.name])
            elif (gone := self._by_name.pop(key[1:].decode(), None)) is not None:
                del self._by_id[gone.id]
                self.version += 1
                changed.append(gone._replace(deleting=True))
        return changed

    def topic_of_tablet(self, tablet_id: int) -> Topic | None:
        """The topic that a tablet is part of, also one that is being deleted; None if there is none."""
        if self._by_tablet[0] != self.version:
            self._by_tablet = (self.version, {number: topic for topic in self._by_name.values() for number in topic.tablets})
        return self._by_tablet[1].get(tablet_id)

    async def reload(self, tablet: TableTablet) -> None:
        """The tablet was started again: what failed may have been done. What was not given out of a block of producer ids stays
        unused."""
        async with self._changing:
            self._producer_next = self._producer_end = 0
            self._by_name.clear()
            self._by_id.clear()
            self._load(tablet)
            self.version += 1

    @property
    def generation(self) -> int:
        """The generation of its tablet."""
        return self._tablet.generation

    def topics(self) -> list[Topic]:
        """Every topic that is not being deleted, by name."""
        return sorted((topic for topic in self._by_name.values() if not topic.deleting), key=lambda topic: topic.name)

    def deleting(self) -> list[Topic]:
        """Topics whose data is still to be deleted."""
        return [topic for topic in self._by_name.values() if topic.deleting]

    def topic(self, name: str) -> Topic:
        """A topic by name."""
        topic = self._by_name.get(name)
        if topic is None or topic.deleting:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return topic

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """A topic by id."""
        topic = self._by_id.get(topic_id)
        if topic is None or topic.deleting:
            raise UnknownTopicError(f"there is no topic with id {topic_id}")
        return topic

    def check_new(self, name: str, partitions: int) -> None:
        """Validate a new topic as `create` does, without creating it."""
        check_name(name)
        most = self._limits.topic_partitions
        if not 1 <= partitions <= most:
            raise InvalidPartitionsError(f"a topic has 1 to {most} partitions, not {partitions} (topic_partitions_max)")
        known = self._by_name.get(name)
        if known is not None:
            state = "still being deleted; try again when its data is gone from all nodes" if known.deleting else "there already"
            raise TopicExistsError(f"topic {name!r} is {state}")
        self._check_room(partitions)

    async def create(
        self, name: str, partitions: int, config: TopicConfig, replicas: int = 1, spread: TabletSpread | None = None
    ) -> Topic:
        """Create a topic with a new id."""
        async with self._changing:
            self.check_new(name, partitions)
            topic_id = UUID(int=self._random.getrandbits(128), version=4)
            tablets, groups = self._new_tablets(partitions, spread)
            topic = Topic(name, topic_id, tablets, config.under(self._defaults), replicas=replicas, groups=groups)
            await self._store(topic, next_tablet=tablets[-1] + 1)
            return topic

    async def add_partitions(self, name: str, partitions: int, spread: TabletSpread | None = None) -> Topic:
        """Increase the number of partitions of a topic to `total`."""
        async with self._changing:
            topic = self.topic(name)
            most = self._limits.topic_partitions
            if not topic.partitions < partitions <= most:
                raise InvalidPartitionsError(
                    f"topic {name!r} has {topic.partitions} partitions and can get more, up to {most}, not {partitions} "
                    "(topic_partitions_max)"
                )
            self._check_room(partitions - topic.partitions)
            added, groups = self._new_tablets(partitions - topic.partitions, spread)
            if topic.groups or groups:
                groups = (topic.groups or (None,) * topic.partitions) + (groups or (None,) * len(added))
            topic = topic._replace(tablets=topic.tablets + added, groups=groups)
            await self._store(topic, next_tablet=added[-1] + 1)
            return topic

    async def configure(self, name: str, config: TopicConfig) -> Topic:
        """Change the configuration of a topic."""
        async with self._changing:
            topic = self.topic(name)._replace(config=config.under(self._defaults))
            await self._store(topic)
            return topic

    async def mark_deleting(self, name: str) -> Topic:
        """Hide a topic from all clients; its data is deleted afterwards."""
        async with self._changing:
            topic = self.topic(name)._replace(deleting=True)
            await self._store(topic)
            return topic

    async def forget(self, topic: Topic) -> None:
        """Remove a topic whose data is deleted; its name is free again."""
        async with self._changing:
            if topic.id not in self._by_id:
                return  # a concurrent request was first, and a new topic may have the name by now
            key = b"t" + topic.name.encode()
            await self._tablet.execute(Request((DeleteRange(key, key + b"\0"),), makes_room=True))
            del self._by_name[topic.name]
            del self._by_id[topic.id]
            self.version += 1

    async def new_producer_id(self) -> int:
        """Allocate a unique producer id."""
        async with self._changing:
            if self._producer_next == self._producer_end:
                begin = int.from_bytes(self._tablet.head(b"p") or bytes(8), "big")
                end = begin + PRODUCER_BLOCK
                await self._tablet.execute(Request((Write(b"p", end.to_bytes(8, "big")),)))
                self._producer_next, self._producer_end = begin, end
            self._producer_next += 1
            return self._producer_next - 1

    def _check_room(self, more: int) -> None:
        """Raise LimitReachedError if this many more partitions exceed the limit."""
        count = sum(topic.partitions for topic in self._by_name.values())
        if count + more > self._limits.partitions:
            raise LimitReachedError(
                f"there are {count} partitions in all, {more} more are asked for, and {self._limits.partitions} may be; delete "
                "topics, or raise partitions_max"
            )

    @property
    def next_tablet(self) -> int:
        """The first tablet id that no topic has had."""
        return int.from_bytes(self._tablet.head(b"n") or FIRST_TABLET.to_bytes(8, "big"), "big")

    def _new_tablets(self, partitions: int, spread: TabletSpread | None) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
        """The tablets of new partitions, and their groups; those are empty if all are in the first group."""
        per_tablet = PARTITIONS_PER_TABLET if spread is None else max(1, min(PARTITIONS_PER_TABLET, partitions // spread.spread))
        ordinals = [number // per_tablet for number in range(partitions)]
        groups = () if spread is None else spread.choose_groups(ordinals[-1] + 1)
        first = self.next_tablet
        return tuple(first + at for at in ordinals), tuple(groups[at] for at in ordinals) if groups else ()

    async def _store(self, topic: Topic, next_tablet: int | None = None) -> None:
        writes = [Write(b"t" + topic.name.encode(), b"", head=topic.pack())]
        if next_tablet is not None:
            writes.append(Write(b"n", next_tablet.to_bytes(8, "big")))
        await self._tablet.execute(Request(tuple(writes), makes_room=topic.deleting))
        self._take(topic)

    def _load(self, tablet: TableTablet) -> None:
        for key in tablet.keys(b"t", b"u"):
            topic = Topic.unpack(tablet.head(key) or b"")
            self._take(topic._replace(config=topic.config.under(self._defaults)))

    def _take(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self.version += 1
