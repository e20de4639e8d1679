"""The broker: topics with their partitions, and consumers with their positions, for every gateway alike."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

from penstock.blob import BlobStorage, Buffer, Status
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
from penstock.broker.quotas import FETCH, PRODUCE, Quotas
from penstock.broker.registrations import Registrations
from penstock.broker.retention import Retention
from penstock.broker.sign_in import SignIn
from penstock.broker.system_tablet import SystemTablet, TableTablet
from penstock.broker.table_store import TableStore
from penstock.broker.tablets import TabletDamage, Tablets, tablet_info
from penstock.broker.tokens import Tokens
from penstock.broker.topic import Topic
from penstock.broker.topic_config import TopicConfig
from penstock.broker.transactional_offsets import TransactionalOffsets
from penstock.broker.transactions import Ending, TransactionCoordinator, TransactionStore
from penstock.broker.users import Users
from penstock.broker.weights import Weights
from penstock.core.clock import Clock
from penstock.core.errors import DataMissingError, PenstockError
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

SYSTEM_TABLET = 2
CONSUMERS_TABLET = 3
TRANSACTIONS_TABLET = 4
NAMESPACE_TABLET = 5
TABLES_TABLET = 8
STARTS_AT_ONCE = 64
NEW_STARTS_AT_ONCE = 1024  # they have nothing to read
CATCH_UP_S = 1.0


class Produced(NamedTuple):
    """Where a batch was stored. `append_time_ms` is -1 unless the topic stamps messages itself."""

    base_offset: int
    append_time_ms: int
    start_offset: int
    duplicate: bool


class Broker:
    """One node's broker. Make it with `start`."""

    def __init__(self, storage: BlobStorage, options: BrokerOptions, *, clock: Clock, random: Random) -> None:
        self.options = options
        self.clock = clock
        self._storage = storage
        self._random = random
        cache = BlobCache(options.cache_bytes)
        self._routes: dict[tuple[str | bytes, int], Route] = {}
        self._intake = Intake(clock)
        self.probe = BrokerProbe(clock)
        self._tablets = Tablets(
            storage,
            options.group,
            cache=cache,
            clock=clock,
            random=random,
            changed=self._routes.clear,
            probe=self.probe,
        )
        self._system: list[SystemTablet] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._catching_up: asyncio.Task[None] | None = None
        self._stops: dict[str, Callable[[], Awaitable[None]]] = {}  # of what works on a system tablet, to be stopped before it
        self.ages: AgeClock  # by which it is told what is old enough to be deleted
        self.catalog: Catalog
        self.dynamic: DynamicConfig
        self.consumers: Consumers
        self.registrations: Registrations
        self.leases: Leases
        self.namespace: Namespace
        self.tables: TableStore
        self.weights = Weights()
        self.queue_agent: QueueAgent
        self._offsets: TransactionalOffsets
        self.groups: Groups
        self.transactions: TransactionCoordinator
        self.commits = BufferedCommits()
        self.quotas: Quotas
        self.users: Users
        self.sign_in: SignIn
        self.tokens: Tokens | None = None  # with security only
        self.access: Access | None = None  # None: nobody is asked who they are
        self.needed_from: Callable[[Topic, int], int | None]  # where the first message is that a consumer must still see

    @classmethod
    async def start(cls, storage: BlobStorage, options: BrokerOptions, *, clock: Clock, random: Random) -> Broker:
        """Start the system tablets, then those of every topic."""
        broker = cls(storage, options, clock=clock, random=random)
        if options.must_exist:
            await broker._check_existence()
        try:
            system, consumers, transactions, namespace = await asyncio.gather(
                broker._boot(SYSTEM_TABLET),
                broker._boot(CONSUMERS_TABLET),
                broker._boot(TRANSACTIONS_TABLET),
                broker._boot(NAMESPACE_TABLET),
            )
            broker.ages = AgeClock(system, clock, options.elapsed)
            broker.dynamic = DynamicConfig(system)
            broker.catalog = Catalog(system, random, broker.dynamic.topic_defaults, limits=options.limits)
            broker.consumers = Consumers(consumers, clock)
            broker._admit(system)
            for topic in broker.catalog.deleting():
                await broker._finish_deleting(topic)
            await broker._host(broker.catalog.topics())
            broker._offsets = TransactionalOffsets(consumers, broker.consumers, clock)
            await broker._start_transactions(transactions.latest)
            life = await storage.life(options.group)
            broker.leases = Leases(consumers, options.leases, clock, is_short_of_room=lambda: is_short_of_room(life))
            consumers.on_restart(broker.leases.reload)
            await broker._start_namespace(namespace, consumers)
            # The sessions of members begin anew with this, so nothing that takes long may come after it.
            await broker._start_groups(consumers.latest)
            system.on_restart(broker._system_restarted)
            consumers.on_restart(broker._offsets.reload)
            consumers.on_restart(broker._start_groups)
            transactions.on_restart(broker._start_transactions)
        except BaseException:
            await broker.stop()
            raise
        broker._tidy_up()
        return broker

    async def create_topic(self, name: str, partitions: int | None = None, config: TopicConfig | None = None) -> Topic:
        """A new topic; it can be written to when this returns."""
        check_not_internal(name)
        count = self.options.default_partitions if partitions is None else partitions
        topic = await self.catalog.create(name, count, config or TopicConfig())
        await self._host([topic], are_new=True)
        return topic

    async def internal_topic(self, name: str) -> Topic:
        """A topic that the broker keeps for itself; it is made when it is asked for first."""
        try:
            return self.catalog.topic(name)
        except UnknownTopicError:
            pass
        try:
            topic = await self.catalog.create(name, INTERNAL_PARTITIONS, INTERNAL_CONFIG)
        except TopicExistsError:
            # Another was first.
            return self.catalog.topic(name)
        await self._host([topic])
        return topic

    async def add_partitions(self, name: str, partitions: int) -> Topic:
        """Give a topic more partitions, so that it has this many."""
        check_not_internal(name)
        topic = await self.catalog.add_partitions(name, partitions)
        await self._host([topic])
        return topic

    async def configure_topic(self, name: str, config: TopicConfig) -> Topic:
        """Give a topic another configuration."""
        topic = await self.catalog.configure(name, config)
        self._apply([topic])
        return topic

    async def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Set what a broker, or without a name all of them, have while they run; topics that inherit some of it follow. Call it
        with `dynamic.changing` held."""
        await self.dynamic.set(name, settings)
        self._apply(self.catalog.topics())

    def _apply(self, topics: list[Topic]) -> None:
        """Have partitions go by what the configuration of their topics says now."""
        self._routes.clear()
        for topic in topics:
            for tablet_id in set(topic.tablets):
                self._tablets.configure(tablet_id, topic.config.for_partition())

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its data and the positions of consumers in it."""
        check_not_internal(name)
        topic = await self.catalog.mark_deleting(name)
        self._routes.clear()
        await self._finish_deleting(topic)

    def partition(self, topic: Topic, number: int) -> Partition:
        """A partition of a topic, to read from or to ask. UnknownTopicError if it has no such partition,
        PartitionUnavailableError while its tablet starts."""
        if not 0 <= number < topic.partitions:
            raise UnknownTopicError(f"topic {topic.name!r} has partitions 0..{topic.partitions - 1}, not {number}")
        return self._tablets.partition(topic.tablets[number], number, topic.name)

    async def examine(self, topic: Topic) -> TabletDamage:
        """Read all that is stored of a topic, and tell what is lost. UnavailableError if it cannot be told now."""
        return TabletDamage.of_all([await self._tablets.examine(tablet_id) for tablet_id in sorted(set(topic.tablets))])

    async def give_up_lost(self, topic: Topic) -> TabletDamage:
        """Have the damaged partitions of a topic serve again without what is lost; what that was."""
        found: list[TabletDamage] = []
        for tablet_id in sorted(set(topic.tablets)):
            found.append(await self._tablets.examine(tablet_id))
            if not found[-1].is_none:
                await self._tablets.give_up_lost(tablet_id)
        return TabletDamage.of_all(found)

    def route(self, topic: str | bytes, number: int) -> Route:
        """A partition to write to, by the name or the id of its topic. Raises what `partition` and the catalog raise."""
        found = self._routes.get((topic, number))
        if found is None:
            catalog = self.catalog
            named = catalog.topic(topic) if isinstance(topic, str) else catalog.topic_by_id(UUID(bytes=topic))
            check_not_internal(named.name)
            found = Route.to(named, self.partition(named, number))
            self._routes[topic, number] = found
        return found

    def reading(self) -> BrokerReading:
        """What it can be asked for in passing, for those who watch it."""
        return BrokerReading(self)

    def data_directories(self) -> list[Path]:
        """Where the storage group of the topics keeps its data: one directory a disk."""
        groups = [group for group in self._storage.groups() if group.id == self.options.group]
        return [group.vdisk_directory(order) for group in groups for order in range(len(group.disks))]

    async def produce(self, topic: Topic, number: int, raw: Buffer) -> Produced:
        """Store one batch in a partition; durable when this returns. An idempotent producer's batch is stored once."""
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
        return self._intake.begin(route, raw, outcome, source, from_client=from_client, admit=admit)

    async def system_tablet(self, tablet_id: int) -> SystemTablet:
        """Start a tablet for something that not every broker has; it is kept running, and stopped with the broker."""
        return await self._boot(tablet_id)

    async def new_producer(self) -> tuple[int, int]:
        """An id and epoch for an idempotent producer."""
        return await self.catalog.new_producer_id(), 0

    async def stop(self) -> None:
        """Finish what is under way and stop every tablet."""
        for tablet in self._system:
            await tablet.keep_no_more()
        tasks = self._tasks if self._catching_up is None else [*self._tasks, self._catching_up]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in list(self._stops):
            await self._stops.pop(name)()
        await self._tablets.stop()
        for tablet in self._system:
            await tablet.stop()

    def _tidy_up(self) -> None:
        """Begin to let go of what nobody needs, again and again."""
        options, catalog, tablets, probe = self.options, self.catalog, self._tablets, self.probe
        retention = Retention(
            catalog,
            self.consumers,
            tablets,
            self.queue_agent.needed_from,
            self.leases,
            ages=self.ages,
            interval_s=options.retention_interval_s,
            probe=probe,
        )
        self.needed_from = retention.needed_from
        compaction = Compaction(
            catalog, tablets, self.leases, options.compaction, clock=self.ages, random=self._random, probe=probe
        )
        for name, one in (("retention", retention), ("compaction", compaction), ("queue-agent", self.queue_agent)):
            self._tasks.append(asyncio.create_task(one.run(), name=name))
        self._tasks.append(asyncio.create_task(HeadLimit(tablets).run(), name="head-limit"))

    def _admit(self, system: TableTablet) -> None:
        """Who may do what, and how much of it."""
        options = self.options
        rates = {PRODUCE: options.produce_bytes_per_s, FETCH: options.fetch_bytes_per_s}
        self.quotas = Quotas(system, {kind: rate for kind, rate in rates.items() if rate is not None}, self.clock)
        self.users = Users(system, options.security)
        self.sign_in = SignIn(self.users, self.clock)
        if options.security is not None:
            self.tokens = Tokens(system, self.users, options.security, self.clock)
            self.access = Access(
                AccessRules(system),
                admins=frozenset({f"User:{options.security.admin_user}"}),
                allow_without_rule=options.security.allow_without_rule,
            )
        elif options.rules_for_anonymous:
            self.access = Access(AccessRules(system), admins=frozenset(), allow_without_rule=True)

    async def _system_restarted(self, tablet: KvTablet) -> None:
        """The tables of the system tablet are read anew, and what they say now is carried out."""
        await self.dynamic.reload(tablet)
        await self.catalog.reload(tablet)
        await self.quotas.reload(tablet)
        await self.users.reload(tablet)
        if self.tokens is not None:
            await self.tokens.reload(tablet)
        if self.access is not None:
            await self.access.rules.reload(tablet)
        self._routes.clear()
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._catching_up = asyncio.create_task(self._catch_up(), name="catch-up")

    async def _catch_up(self) -> None:
        """Carry out changes of topics that are stored though whoever asked for them was told otherwise."""
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

    async def _start_namespace(self, tablet: SystemTablet, consumers: SystemTablet) -> None:
        """What is under which path, who is registered where, and the agent that looks after both."""
        tree = Tree(tablet)
        self.tables = TableStore(await self._boot(TABLES_TABLET))
        self.registrations = Registrations(consumers)
        self.namespace = Namespace(
            tree,
            self.catalog,
            self,
            self.consumers,
            tables=self.tables,
            group_names=lambda: [summary.name for summary in self.groups.listed()],
            clock=self.clock,
            random=self._random,
            nodes_max=self.options.limits.yt_nodes,
        )
        exporter = Exporter(self.namespace, self.tables, self.partition, clock=self.clock, random=self._random)
        exports = StaticExports(self.namespace, exporter, self.clock, self.ages)
        self._stops["exports"] = exports.stop
        self.queue_agent = QueueAgent(
            self.options.cluster_name,
            namespace=self.namespace,
            registrations=self.registrations,
            consumers=self.consumers,
            partition_of=self.partition,
            weights=self.weights,
            exports=exports,
            is_leader=lambda: tablet.serves,
            leased_from=self.leases.needed_from,
            clock=self.clock,
            ages=self.ages,
        )
        await self.namespace.repair()
        tablet.on_restart(tree.reload)
        consumers.on_restart(self.registrations.reload)

    async def _start_transactions(self, tablet: KvTablet) -> None:
        """Whatever was decided before the last stop, of the broker or of the tablet, is carried out from here on."""
        await self._stop_old("commits")
        await self._stop_old("transactions")
        self.transactions = TransactionCoordinator(
            TransactionStore(tablet),
            Ending(self._partition_of, self._offsets, self.clock),
            self._offsets,
            new_producer_id=self.catalog.new_producer_id,
            clock=self.clock,
            ages=self.ages,
            options=self.options.transactions,
        )
        self._stops["transactions"] = self.transactions.stop
        self.transactions.start()
        self.commits.use(self.transactions, self.consumers)
        self._stops["commits"] = self.commits.stop

    def _partition_of(self, queue: TopicPartition) -> Partition:
        return self.partition(self.catalog.topic_by_id(queue.topic_id), queue.partition)

    async def _start_groups(self, tablet: KvTablet) -> None:
        """Go on with the groups as they were. After a restart of the tablet, members are told to find their coordinator again."""
        await self._stop_old("groups")
        groups = Groups(tablet, self.consumers, self.options.limits.groups)
        groups.classic = await GroupCoordinator.start(groups, tablet, self.options.groups, clock=self.clock, random=self._random)
        groups.consumer = ConsumerCoordinator(
            tablet,
            self.options.consumer_groups,
            names=groups,
            topics=TopicsOfCatalog(self.catalog),
            clock=self.clock,
            random=self._random,
        )
        groups.add_kind(CONSUMER, groups.consumer)
        self.groups = groups
        expiry = Expiry(groups, self.consumers, self.catalog, self.options.groups, self.ages)
        expiring = asyncio.create_task(expiry.run(), name="expiry")

        async def stop() -> None:
            expiring.cancel()
            await asyncio.gather(expiring, return_exceptions=True)
            await groups.classic.stop()
            await groups.consumer.stop()

        self._stops["groups"] = stop

    async def _stop_old(self, name: str) -> None:
        """Stop what works on the last generation of a tablet, if there was one."""
        stop = self._stops.pop(name, None)
        if stop is not None:
            await stop()

    async def _check_existence(self) -> None:
        found = await self._storage.tablet(tablet_info(SYSTEM_TABLET, self.options.group)).discover(with_data=False)
        if found.status is Status.NODATA:
            raise DataMissingError(
                "the catalog of topics is gone from the storage, though a broker ran here before; restore the files of the disks "
                "from a backup (nothing was changed), or accept that all topics are lost"
            )

    async def _boot(self, tablet_id: int) -> SystemTablet:
        storage = self._storage.tablet(tablet_info(tablet_id, self.options.group))
        give_up = tablet_id in self.options.give_up_tablets
        tablet = await SystemTablet.start(
            storage, clock=self.clock, random=self._random, probe=self.probe.tablets, give_up=give_up
        )
        self._system.append(tablet)
        return tablet

    async def _host(self, topics: list[Topic], *, are_new: bool = False) -> None:
        """Bring up the tablets of some topics, not too many at a time. Those of a new topic were never started."""
        wanted: list[tuple[int, set[int], PartitionConfig]] = []
        for topic in topics:
            by_tablet: dict[int, set[int]] = {}
            for number, tablet_id in enumerate(topic.tablets):
                by_tablet.setdefault(tablet_id, set()).add(number)
            config = topic.config.for_partition()
            wanted += ((tablet_id, numbers, config) for tablet_id, numbers in by_tablet.items())
        at_once = NEW_STARTS_AT_ONCE if are_new else STARTS_AT_ONCE
        for begin in range(0, len(wanted), at_once):
            await asyncio.gather(*(self._tablets.host(*one, is_new=are_new) for one in wanted[begin : begin + at_once]))

    async def _finish_deleting(self, topic: Topic) -> None:
        await self._tablets.erase_all(sorted(set(topic.tablets)))
        await self.consumers.forget_topic(topic.id)
        await self.catalog.forget(topic)
