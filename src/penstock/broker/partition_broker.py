"""What every node of a cluster runs, and a single node as well: the partitions of topics that are here, and the tables that
clients of partitions need. A single node and the leader of a cluster run a `Broker`, which has all the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from penstock.blob import Buffer
from penstock.broker.access import Access, AccessRules
from penstock.broker.age_clock import AgeClock
from penstock.broker.catalog import Catalog
from penstock.broker.compaction import Compaction
from penstock.broker.dynamic_config import PREFIX as DYNAMIC_CONFIG
from penstock.broker.dynamic_config import DynamicConfig
from penstock.broker.errors import PartitionElsewhereError, PartitionUnavailableError, UnknownTopicError
from penstock.broker.head_limit import HeadLimit
from penstock.broker.intake import Intake
from penstock.broker.internal_topics import check_not_internal
from penstock.broker.log_limit import LogLimit
from penstock.broker.options import BrokerOptions
from penstock.broker.other_nodes import OtherNodes
from penstock.broker.quotas import FETCH_QUOTA, PRODUCE_QUOTA, Quotas
from penstock.broker.retention import NeededFrom, Retention
from penstock.broker.route import Route
from penstock.broker.sign_in import SignIn
from penstock.broker.system_tablet import TableTablet
from penstock.broker.tablets import Tablets
from penstock.broker.tokens import Tokens
from penstock.broker.topic import Topic
from penstock.broker.users import Users
from penstock.core.clock import Clock
from penstock.queue import Partition, SourceWrite, WriteOutcome, WriteResult
from penstock.tablet import KvTablet

STARTS_AT_ONCE = 64
NEW_STARTS_AT_ONCE = 1024  # they have nothing to read


class Produced(NamedTuple):
    """Where a batch was stored. `append_time_ms` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    append_time_ms: int
    start_offset: int
    duplicate: bool


class PartitionBroker:
    """Serves the partitions whose tablets run here. `table` is the system tablet or a copy of it that follows the leader's."""

    def __init__(
        self,
        table: TableTablet,
        tablets: Tablets,
        options: BrokerOptions,
        *,
        clock: Clock,
        random: Random,
        others: OtherNodes | None = None,
    ) -> None:
        self.options = options
        self.clock = clock
        self.tablets = tablets
        self.probe = tablets.probe
        self.others = others  # None: there are no other nodes
        self._random = random
        self.routes: dict[tuple[str | bytes, int], Route] = {}  # those that `route` has found
        tablets.watch(self.routes.clear)
        self.intake = Intake(clock)
        self.ages = AgeClock(table, clock, options.elapsed)  # tells what is old enough to be deleted
        self.dynamic = DynamicConfig(table)
        self.catalog = Catalog(table, random, self.dynamic.topic_defaults, limits=options.limits)
        self.quotas = Quotas(table, _default_quotas(options), clock)
        self.users = Users(table, options.security)
        self.sign_in = SignIn(self.users, clock)
        self.tokens = None if options.security is None else Tokens(table, self.users, options.security, clock)
        self.access = _access(table, options)  # None: everyone may do everything
        self._tasks: list[asyncio.Task[None]] = []

    def partition(self, topic: Topic, number: int) -> Partition:
        """A partition of a topic, to read from or to ask. UnknownTopicError if it has no such partition,
        PartitionUnavailableError while its tablet starts, PartitionElsewhereError if another node runs it."""
        self.check_partition(topic, number)
        tablet_id = topic.tablets[number]
        if self.others is not None and not self.tablets.hosts(tablet_id):
            raise self._elsewhere(topic, number, self.others)
        return self.tablets.partition(tablet_id, number, topic.name)

    def check_partition(self, topic: Topic, number: int) -> None:
        """Raise UnknownTopicError if a topic has no such partition, on whichever node."""
        if not 0 <= number < topic.partitions:
            raise UnknownTopicError(f"topic {topic.name!r} has partitions 0..{topic.partitions - 1}, not {number}")

    def _elsewhere(self, topic: Topic, number: int, others: OtherNodes) -> PartitionUnavailableError:
        owner = others.owner_of(topic.tablets[number])
        name = f"partition {number} of topic {topic.name!r}"
        if owner == others.node_id:
            return PartitionUnavailableError(f"{name} is starting; try again in a moment")
        if owner is None:
            return PartitionElsewhereError(f"{name} is on no node yet; try again in a moment")
        return PartitionElsewhereError(f"{name} is on {others.name_of(owner)}; ask that one", owner)

    def owner_of(self, topic: Topic, number: int) -> int | None:
        """The node that runs a partition, or should; None if that is not known, or there is only this one."""
        others = self.others
        if others is None:
            return None
        tablet_id = topic.tablets[number]
        state = self.tablets.state(tablet_id)
        return others.node_id if state is not None and state.is_up else others.owner_of(tablet_id)

    def route(self, topic: str | bytes, number: int) -> Route:
        """A partition to write to, by the name or the id of its topic. Raises what `partition` and the catalog raise."""
        route = self.routes.get((topic, number))
        if route is None:
            catalog = self.catalog
            known_topic = catalog.topic(topic) if isinstance(topic, str) else catalog.topic_by_id(UUID(bytes=topic))
            check_not_internal(known_topic.name)
            route = Route(known_topic, self.partition(known_topic, number))
            self.routes[topic, number] = route
        return route

    async def confirm(self) -> None:
        """Wait for a new confirmation that no other node has taken over tablets of this one, before an answer that clients act
        on. UnconfirmedError if it does not arrive in time."""
        confirmations = self.tablets.storage.confirmations
        if confirmations is not None:
            await confirmations.confirm()

    def data_directories(self) -> list[Path]:
        """The data directories of the storage groups, one for each VDisk on this node."""
        groups = self.tablets.storage.groups()
        paths = (group.vdisk_directory(order) for group in groups for order in range(len(group.disks)))
        return [path for path in paths if path.is_absolute()]

    async def produce(self, topic: Topic, number: int, raw: Buffer) -> Produced:
        """Store one batch in a partition; it is durable when this returns. Duplicates of an idempotent producer are dropped."""
        partition = self.partition(topic, number)
        stored: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        append_time_ms = self.begin_produce(Route(topic, partition), raw, stored)
        result = await stored
        return Produced(result.base_offset, append_time_ms, partition.start_offset, result.duplicate)

    def begin_produce(
        self,
        route: Route,
        raw: Buffer,
        outcome: WriteOutcome,
        source: SourceWrite | None = None,
        *,
        from_client: bool = False,
        admit: Callable[[], None] | None = None,
    ) -> int:
        """Check one batch and append it to the partition's write queue; `outcome` is completed when it is durable. Returns the
        append time, -1 if the topic does not use it. The caller must not change the bytes until then. Without a `source`, the
        producer id in the batch identifies the producer. With `from_client`, the records are validated as well; if that runs
        in a thread, `admit` is called again before the batch is queued."""
        return self.intake.begin(route, raw, outcome, source, from_client=from_client, admit=admit)

    async def host(self, tablets: Mapping[int, Topic], *, are_new: bool = False) -> None:
        """Run tablets of topics here, a limited number at a time. Those of a new topic have no state to read."""
        starts = self.starts(tablets, are_new=are_new)
        at_once = NEW_STARTS_AT_ONCE if are_new else STARTS_AT_ONCE
        for begin in range(0, len(starts), at_once):
            await asyncio.gather(*starts[begin : begin + at_once])

    def starts(self, tablets: Mapping[int, Topic], *, are_new: bool = False) -> list[Coroutine[Any, Any, None]]:
        """What runs each of these tablets here: see `Tablets.host`."""
        parts = {topic.id: (topic.by_tablet(), topic.config.for_partition()) for topic in tablets.values()}
        starts: list[Coroutine[Any, Any, None]] = []
        for tablet_id, topic in tablets.items():
            numbers, config = parts[topic.id]
            group = topic.group_of(tablet_id)
            starts.append(self.tablets.host(tablet_id, numbers[tablet_id], config, group, is_new=are_new))
        return starts

    def apply(self, topics: list[Topic]) -> None:
        """Apply the configuration of topics to their partitions that are here."""
        self.routes.clear()
        for topic in topics:
            config = topic.config.for_partition()
            for tablet_id in set(topic.tablets):
                self.tablets.configure(tablet_id, config)

    async def follow_tables(self, table: TableTablet, keys: set[bytes] | None) -> None:
        """Some keys of the followed tablet have changed, or any if they are not named: apply them."""
        if keys is None:
            await self.reload_tables(table)
            known = {tablet_id for topic in self.catalog.topics() for tablet_id in topic.tablets}
            gone = [state.tablet for state in self.tablets.states() if state.tablet not in known]
            topics = self.catalog.topics()
        else:
            prefixes = {key[:1] for key in keys}
            for prefix, reload in self._reloads().items():
                if prefix in prefixes:
                    await reload(table)
            changed = self.catalog.follow(table, keys)
            gone = [tablet_id for topic in changed if topic.deleting for tablet_id in set(topic.tablets)]
            topics = self.catalog.topics() if DYNAMIC_CONFIG in prefixes else [topic for topic in changed if not topic.deleting]
        self.apply(topics)
        await asyncio.gather(*(self.tablets.release(tablet_id) for tablet_id in gone))

    def _reloads(self) -> dict[bytes, Callable[[TableTablet], Awaitable[None]]]:
        """How the tables are reloaded, by the first byte of their keys; the catalog aside."""
        reloads: dict[bytes, Callable[[TableTablet], Awaitable[None]]] = {
            DYNAMIC_CONFIG: self.dynamic.reload,
            b"q": self.quotas.reload,
            b"u": self.users.reload,
        }
        if self.tokens is not None:
            reloads[b"g"] = reloads[b"k"] = self.tokens.reload
        if self.access is not None:
            reloads[b"a"] = self.access.rules.reload
        return reloads

    async def reload_tables(self, table: TableTablet) -> None:
        """Reload the tables of the system tablet."""
        for reload in self._reloads().values():
            await reload(table)
        await self.catalog.reload(table)
        self.routes.clear()

    def start_upkeep(self, retention: Retention, leased_from: NeededFrom, **more: Coroutine[Any, Any, None]) -> None:
        """Start what is done to partitions from time to time, and other tasks that end with the broker."""
        compaction = Compaction(
            self.catalog, self.tablets, leased_from, self.options.compaction, clock=self.ages, random=self._random
        )
        loops = {
            "retention": retention.run(),
            "compaction": compaction.run(),
            "head-limit": HeadLimit(self.tablets).run(),
            **more,
        }
        if self.others is not None:
            loops["log-limit"] = LogLimit(self.running_tablets).run()
        self._tasks += (asyncio.create_task(loop, name=name) for name, loop in loops.items())

    def running_tablets(self) -> list[KvTablet]:
        """All tablets that this node runs."""
        return self.tablets.running()

    def start_followed_upkeep(
        self,
        needed_from: NeededFrom,
        leased_from: NeededFrom,
        prepare: Callable[[], Awaitable[None]],
        following: Coroutine[Any, Any, None],
    ) -> None:
        """The same on a follower: the leader provides what must be kept, before each run of retention and in a background
        task."""
        interval_s = self.options.retention_interval_s
        retention = Retention(self.catalog, self.tablets, needed_from, prepare, ages=self.ages, interval_s=interval_s)
        self.start_upkeep(retention, leased_from, floors=following)

    async def stop_tasks(self) -> None:
        """Stop the tasks; the tablets run on."""
        self.tablets.unwatch(self.routes.clear)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def _default_quotas(options: BrokerOptions) -> dict[str, float]:
    rates = {PRODUCE_QUOTA: options.produce_bytes_per_s, FETCH_QUOTA: options.fetch_bytes_per_s}
    return {kind: rate for kind, rate in rates.items() if rate is not None}


def _access(tablet: TableTablet, options: BrokerOptions) -> Access | None:
    """Returns None if no access rules apply."""
    security = options.security
    if security is not None:
        admins = frozenset({f"User:{security.admin_user}"})
        return Access(AccessRules(tablet), admins=admins, allow_without_rule=security.allow_without_rule)
    if options.rules_for_anonymous:
        return Access(AccessRules(tablet), admins=frozenset(), allow_without_rule=True)
    return None
