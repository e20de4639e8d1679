"""The broker: topics with their partitions, and consumers with their committed offsets, for all gateways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

from penstock.blob import BlobStorage, Buffer
from penstock.broker.access import Access, AccessRules
from penstock.broker.age_clock import AgeClock
from penstock.broker.buffered_transactions import BufferedCommits
from penstock.broker.catalog import Catalog
from penstock.broker.compaction import Compaction
from penstock.broker.consumers import Consumers, TopicPartition
from penstock.broker.dynamic_config import DynamicConfig
from penstock.broker.errors import TopicExistsError, UnknownTopicError
from penstock.broker.groups.consumer_coordinator import ConsumerCoordinator
from penstock.broker.groups.coordinator import GroupCoordinator
from penstock.broker.groups.expiry import Expiry
from penstock.broker.groups.registry import CONSUMER, Groups
from penstock.broker.groups.subscriptions import TopicsOfCatalog
from penstock.broker.head_limit import HeadLimit
from penstock.broker.intake import Intake, Route
from penstock.broker.internal_topics import INTERNAL_CONFIG, INTERNAL_PARTITIONS, check_not_internal
from penstock.broker.leases import Leases, is_short_of_room
from penstock.broker.namespace import Namespace, Tree
from penstock.broker.options import BrokerOptions
from penstock.broker.probe import BrokerProbe, BrokerReading
from penstock.broker.queue_agent import Exporter, QueueAgent, StaticExports
from penstock.broker.quotas import FETCH_QUOTA, PRODUCE_QUOTA, Quotas
from penstock.broker.registrations import Registrations
from penstock.broker.retention import Retention
from penstock.broker.sign_in import SignIn
from penstock.broker.system_tablet import SystemTablet, TableTablet
from penstock.broker.system_tablets import SystemTablets, check_existence
from penstock.broker.table_store import TableStore
from penstock.broker.tablets import TabletDamage, Tablets
from penstock.broker.tokens import Tokens
from penstock.broker.topic import Topic
from penstock.broker.topic_config import TopicConfig
from penstock.broker.transactional_offsets import TransactionalOffsets
from penstock.broker.transactions import MarkerWriter, TransactionCoordinator, TransactionStore
from penstock.broker.users import Users
from penstock.broker.weights import Weights
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.queue import (
    BlobCache,
    Partition,
    PartitionConfig,
    SourceWrite,
    WriteOutcome,
    WriteResult,
)
from penstock.tablet import KvTablet

log = logging.getLogger(__name__)

STARTS_AT_ONCE = 64
NEW_STARTS_AT_ONCE = 1024  # they have nothing to read
CATCH_UP_S = 1.0


class Produced(NamedTuple):
    """Where a batch was stored. `append_time_ms` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    append_time_ms: int
    start_offset: int
    duplicate: bool


class Broker:
    """One node's broker, on its running system tablets. Create it with `start`, which also starts all topics."""

    def __init__(
        self,
        storage: BlobStorage,
        tablets: SystemTablets,
        options: BrokerOptions,
        *,
        clock: Clock,
        random: Random,
        probe: BrokerProbe,
        is_short_of_room: Callable[[], bool],
    ) -> None:
        self.options = options
        self.clock = clock
        self.probe = probe
        self.system_tablets = tablets
        self._storage = storage
        self._random = random
        self.routes: dict[tuple[str | bytes, int], Route] = {}  # those that `route` has found
        self.intake = Intake(clock)
        cache = BlobCache(options.cache_bytes)
        self.tablets = Tablets(storage, options, cache=cache, clock=clock, random=random, probe=probe)
        self.tablets.watch(self.routes.clear)
        self.ages = AgeClock(tablets.system, clock, options.elapsed)  # tells what is old enough to be deleted
        self.dynamic = DynamicConfig(tablets.system)
        self.catalog = Catalog(tablets.system, random, self.dynamic.topic_defaults, limits=options.limits)
        self.quotas = Quotas(tablets.system, _default_quotas(options), clock)
        self.users = Users(tablets.system, options.security)
        self.sign_in = SignIn(self.users, clock)
        self.tokens = None if options.security is None else Tokens(tablets.system, self.users, options.security, clock)
        self.access = _access(tablets.system, options)  # None: everyone may do everything
        self.consumers = Consumers(tablets.consumers, clock)
        self.leases = Leases(tablets.consumers, options.leases, clock, is_short_of_room=is_short_of_room)
        self.registrations = Registrations(tablets.consumers)
        self._offsets = TransactionalOffsets(tablets.consumers, self.consumers, clock)
        self.tables = TableStore(tablets.tables)
        self.namespace = self._new_namespace(tablets.namespace)
        self.weights = Weights()
        self._exports = self._new_exports()
        self.queue_agent = self._new_queue_agent(tablets.namespace)
        self._retention = self._new_retention()
        # These two are replaced whenever their tablet restarts; `start` loads their stored state.
        self.transactions = self._new_transactions(tablets.transactions.latest)
        self.groups = self._new_groups(tablets.consumers.latest)
        self.commits = BufferedCommits(self.transactions, self.consumers)
        self._expiry: asyncio.Task[None] | None = None
        self._catch_up_task: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, storage: BlobStorage, options: BrokerOptions, *, clock: Clock, random: Random) -> Broker:
        """Start the system tablets, then those of every topic."""
        if options.must_exist:
            await check_existence(storage, options.group)
        probe = BrokerProbe(clock)
        life = await storage.life(options.group)
        tablets = await SystemTablets.start(storage, options, clock=clock, random=random, probe=probe.tablets)
        try:
            broker = cls(
                storage,
                tablets,
                options,
                clock=clock,
                random=random,
                probe=probe,
                is_short_of_room=lambda: is_short_of_room(life),
            )
        except BaseException:
            await tablets.stop()
            raise
        try:
            await broker._open()
        except BaseException:
            await broker.stop()
            raise
        return broker

    async def _open(self) -> None:
        """Start every topic, then resume transactions and groups."""
        for topic in self.catalog.deleting():
            await self._finish_deleting(topic)
        await self._host(self.catalog.topics())
        tablets = self.system_tablets
        await self._resume_transactions(tablets.transactions.latest)
        await self.namespace.repair()
        # The session timeouts of group members restart here, so nothing slow may follow.
        await self._resume_groups(tablets.consumers.latest)
        tablets.system.on_restart(self._reload_system)
        tablets.namespace.on_restart(self.namespace.tree.reload)
        for hook in (self.leases.reload, self.registrations.reload, self._offsets.reload, self._resume_groups):
            tablets.consumers.on_restart(hook)
        tablets.transactions.on_restart(self._resume_transactions)
        self._start_background_tasks()

    async def create_topic(
        self, name: str, partitions: int | None = None, config: TopicConfig | None = None, replicas: int = 1
    ) -> Topic:
        """Create a topic; it can be written to when this returns."""
        check_not_internal(name)
        count = self.options.default_partitions if partitions is None else partitions
        topic = await self.catalog.create(name, count, config or TopicConfig(), replicas)
        await self._host([topic], are_new=True)
        return topic

    async def internal_topic(self, name: str) -> Topic:
        """Returns one of the broker's own topics, and creates it on first use."""
        try:
            return self.catalog.topic(name)
        except UnknownTopicError:
            pass
        try:
            topic = await self.catalog.create(name, INTERNAL_PARTITIONS, INTERNAL_CONFIG)
        except TopicExistsError:
            # A concurrent request has created it.
            return self.catalog.topic(name)
        await self._host([topic])
        return topic

    async def add_partitions(self, name: str, partitions: int) -> Topic:
        """Increase the number of partitions of a topic to `total`."""
        check_not_internal(name)
        topic = await self.catalog.add_partitions(name, partitions)
        await self._host([topic])
        return topic

    async def configure_topic(self, name: str, config: TopicConfig) -> Topic:
        """Change the configuration of a topic."""
        topic = await self.catalog.configure(name, config)
        self._apply([topic])
        return topic

    async def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Set what a broker, or without a name all of them, have while they run; topics that inherit some of it follow. Call it
        with `dynamic.changing` held."""
        await self.dynamic.set(name, settings)
        self._apply(self.catalog.topics())

    def _apply(self, topics: list[Topic]) -> None:
        """Apply the configuration of topics to their partitions."""
        self.routes.clear()
        for topic in topics:
            for tablet_id in set(topic.tablets):
                self.tablets.configure(tablet_id, topic.config.for_partition())

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its data and the committed offsets in it."""
        check_not_internal(name)
        topic = await self.catalog.mark_deleting(name)
        self.routes.clear()
        await self._finish_deleting(topic)

    def partition(self, topic: Topic, number: int) -> Partition:
        """A partition of a topic, to read from or to ask. UnknownTopicError if it has no such partition,
        PartitionUnavailableError while its tablet starts."""
        if not 0 <= number < topic.partitions:
            raise UnknownTopicError(f"topic {topic.name!r} has partitions 0..{topic.partitions - 1}, not {number}")
        return self.tablets.partition(topic.tablets[number], number, topic.name)

    async def examine(self, topic: Topic) -> TabletDamage:
        """Read all stored data of a topic and report what is lost. UnavailableError if part of the storage cannot answer now."""
        return TabletDamage.of_all([await self.tablets.examine(tablet_id) for tablet_id in sorted(set(topic.tablets))])

    async def give_up_lost(self, topic: Topic) -> TabletDamage:
        """Give up the lost data of damaged partitions, so that they serve again. Returns what was lost."""
        damages: list[TabletDamage] = []
        for tablet_id in sorted(set(topic.tablets)):
            damages.append(await self.tablets.examine(tablet_id))
            if not damages[-1].is_none:
                await self.tablets.give_up_lost(tablet_id)
        return TabletDamage.of_all(damages)

    def route(self, topic: str | bytes, number: int) -> Route:
        """A partition to write to, by the name or the id of its topic. Raises what `partition` and the catalog raise."""
        route = self.routes.get((topic, number))
        if route is None:
            catalog = self.catalog
            known_topic = catalog.topic(topic) if isinstance(topic, str) else catalog.topic_by_id(UUID(bytes=topic))
            check_not_internal(known_topic.name)
            route = Route.to(known_topic, self.partition(known_topic, number))
            self.routes[topic, number] = route
        return route

    def reading(self) -> BrokerReading:
        """Returns a cheap view of the broker for metrics and health checks."""
        return BrokerReading(self)

    def data_directories(self) -> list[Path]:
        """The data directories of the topics' storage group, one per disk."""
        groups = [group for group in self._storage.groups() if group.id == self.options.group]
        return [group.vdisk_directory(order) for group in groups for order in range(len(group.disks))]

    async def produce(self, topic: Topic, number: int, raw: Buffer) -> Produced:
        """Store one batch in a partition; it is durable when this returns. Duplicates of an idempotent producer are dropped."""
        partition = self.partition(topic, number)
        stored: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        append_time_ms = self.begin_produce(Route.to(topic, partition), raw, stored)
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
        """Check one batch and queue it behind those before it; `outcome` is told when it is durable. The time it was stamped
        with, -1 if it was not. The bytes must not change until then. Without a `source`, a batch of Kafka's says whose it is.
        One that is `from_client`, and not made here, has its records checked as well; if that takes long, `admit` is asked
        again, before it is queued, whether it still may be."""
        return self.intake.begin(route, raw, outcome, source, from_client=from_client, admit=admit)

    async def system_tablet(self, tablet_id: int) -> SystemTablet:
        """Start an optional system tablet; it is kept running, and stopped with the broker."""
        return await self.system_tablets.start_another(tablet_id)

    async def new_producer(self) -> tuple[int, int]:
        """Allocate an id and epoch for an idempotent producer."""
        return await self.catalog.new_producer_id(), 0

    def needed_from(self, topic: Topic, number: int) -> int | None:
        """The first offset of a partition that must be kept for a consumer or lease; None if there is none."""
        return self._retention.needed_from(topic, number)

    async def stop(self) -> None:
        """Finish what is in flight and stop every tablet."""
        await self.system_tablets.stop_restarting()
        tasks = self._tasks if self._catch_up_task is None else [*self._tasks, self._catch_up_task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stop_transactions()
        await self._exports.stop()
        await self._stop_groups()
        await self.tablets.stop()
        await self.system_tablets.stop()

    def _start_background_tasks(self) -> None:
        compaction = Compaction(
            self.catalog,
            self.tablets,
            self.leases,
            self.options.compaction,
            clock=self.ages,
            random=self._random,
            probe=self.probe,
        )
        loops = {
            "retention": self._retention.run(),
            "compaction": compaction.run(),
            "queue-agent": self.queue_agent.run(),
            "head-limit": HeadLimit(self.tablets).run(),
        }
        self._tasks += (asyncio.create_task(loop, name=name) for name, loop in loops.items())

    async def _reload_system(self, tablet: KvTablet) -> None:
        """Reload the tables of the system tablet, and apply them."""
        await self.dynamic.reload(tablet)
        await self.catalog.reload(tablet)
        await self.quotas.reload(tablet)
        await self.users.reload(tablet)
        if self.tokens is not None:
            await self.tokens.reload(tablet)
        if self.access is not None:
            await self.access.rules.reload(tablet)
        self.routes.clear()
        if self._catch_up_task is not None:
            self._catch_up_task.cancel()
        self._catch_up_task = asyncio.create_task(self._catch_up(), name="catch-up")

    async def _catch_up(self) -> None:
        """Apply changes of topics that were stored although their requests failed."""
        while True:
            try:
                for topic in self.catalog.deleting():
                    await self._finish_deleting(topic)
                topics = self.catalog.topics()
                await self._host(topics)
                self._apply(topics)
            except PenstockError as error:
                log.warning("changes of topics will be carried out later: %s", error)
                await asyncio.sleep(CATCH_UP_S)
            else:
                return

    def _new_namespace(self, tablet: SystemTablet) -> Namespace:
        return Namespace(
            Tree(tablet),
            self.catalog,
            self,
            self.consumers,
            tables=self.tables,
            group_names=lambda: [summary.name for summary in self.groups.listed()],
            clock=self.clock,
            random=self._random,
            nodes_max=self.options.limits.yt_nodes,
        )

    def _new_exports(self) -> StaticExports:
        exporter = Exporter(self.namespace, self.tables, self.partition, clock=self.clock, random=self._random)
        return StaticExports(self.namespace, exporter, self.clock, self.ages)

    def _new_queue_agent(self, tablet: SystemTablet) -> QueueAgent:
        return QueueAgent(
            self.options.cluster_name,
            namespace=self.namespace,
            registrations=self.registrations,
            consumers=self.consumers,
            partition_of=self.partition,
            weights=self.weights,
            exports=self._exports,
            is_leader=lambda: tablet.serves,
            leased_from=self.leases.needed_from,
            clock=self.clock,
            ages=self.ages,
        )

    def _new_retention(self) -> Retention:
        return Retention(
            self.catalog,
            self.consumers,
            self.tablets,
            self.queue_agent.needed_from,
            self.leases,
            ages=self.ages,
            interval_s=self.options.retention_interval_s,
            probe=self.probe,
        )

    def _new_transactions(self, tablet: KvTablet) -> TransactionCoordinator:
        return TransactionCoordinator(
            TransactionStore(tablet),
            MarkerWriter(self._partition_of, self._offsets, self.clock),
            self._offsets,
            new_producer_id=self.catalog.new_producer_id,
            clock=self.clock,
            ages=self.ages,
            options=self.options.transactions,
        )

    async def _resume_transactions(self, tablet: KvTablet) -> None:
        """Resume the stored transactions: complete those that were decided before the last stop of broker or tablet."""
        await self._stop_transactions()
        self.transactions = self._new_transactions(tablet)
        self.transactions.start()
        self.commits.use(self.transactions)

    async def _stop_transactions(self) -> None:
        await self.commits.stop()
        await self.transactions.stop()

    def _partition_of(self, place: TopicPartition) -> Partition:
        return self.partition(self.catalog.topic_by_id(place.topic_id), place.partition)

    def _new_groups(self, tablet: KvTablet) -> Groups:
        groups = Groups(tablet, self.consumers, self.options.limits.groups)
        groups.classic = GroupCoordinator(groups, tablet, self.options.groups, clock=self.clock, random=self._random)
        groups.consumer = ConsumerCoordinator(
            tablet,
            self.options.consumer_groups,
            names=groups,
            topics=TopicsOfCatalog(self.catalog),
            clock=self.clock,
            random=self._random,
        )
        return groups

    async def _resume_groups(self, tablet: KvTablet) -> None:
        """Load the stored groups. After a restart of the tablet, members must find their coordinator again."""
        await self._stop_groups()
        groups = self._new_groups(tablet)
        await groups.classic.load()
        groups.consumer.load()
        groups.add_kind(CONSUMER, groups.consumer)
        self.groups = groups
        expiry = Expiry(groups, self.consumers, self.catalog, self.options.groups, self.ages)
        self._expiry = asyncio.create_task(expiry.run(), name="expiry")

    async def _stop_groups(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        await self.groups.classic.stop()
        await self.groups.consumer.stop()

    async def _host(self, topics: list[Topic], *, are_new: bool = False) -> None:
        """Start the tablets of some topics, a limited number at a time. Those of a new topic have no state to read."""
        wanted: list[tuple[int, set[int], PartitionConfig]] = []
        for topic in topics:
            by_tablet: dict[int, set[int]] = {}
            for number, tablet_id in enumerate(topic.tablets):
                by_tablet.setdefault(tablet_id, set()).add(number)
            config = topic.config.for_partition()
            wanted += ((tablet_id, numbers, config) for tablet_id, numbers in by_tablet.items())
        at_once = NEW_STARTS_AT_ONCE if are_new else STARTS_AT_ONCE
        for begin in range(0, len(wanted), at_once):
            await asyncio.gather(*(self.tablets.host(*tablet, is_new=are_new) for tablet in wanted[begin : begin + at_once]))

    async def _finish_deleting(self, topic: Topic) -> None:
        await self.tablets.erase_all(sorted(set(topic.tablets)))
        await self.consumers.forget_topic(topic.id)
        await self.catalog.forget(topic)


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
