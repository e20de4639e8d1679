"""The broker: topics with their partitions, and consumers with their committed offsets, for all gateways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random

from penstock.blob import BlobStorage
from penstock.broker.buffered_transactions import BufferedCommits
from penstock.broker.consumers import Consumers, TopicPartition
from penstock.broker.errors import PartitionElsewhereError, StorageGroupMissingError, TopicExistsError, UnknownTopicError
from penstock.broker.groups.consumer_coordinator import ConsumerCoordinator
from penstock.broker.groups.coordinator import GroupCoordinator
from penstock.broker.groups.expiry import Expiry
from penstock.broker.groups.registry import CONSUMER, Groups
from penstock.broker.groups.subscriptions import TopicsOfCatalog
from penstock.broker.internal_topics import INTERNAL_PARTITIONS, check_not_internal, internal_config
from penstock.broker.leases import Leases, is_short_of_room
from penstock.broker.namespace import Namespace, Tree
from penstock.broker.options import BrokerOptions
from penstock.broker.other_nodes import LedNodes
from penstock.broker.partition_broker import PartitionBroker
from penstock.broker.partition_status import PartitionStatus
from penstock.broker.probe import BrokerReading
from penstock.broker.queue_agent import Exporter, QueueAgent, StaticExports
from penstock.broker.registrations import Registrations
from penstock.broker.retention import Retention
from penstock.broker.system_tablet import SystemTablet
from penstock.broker.system_tablets import SystemTablets, check_existence
from penstock.broker.table_store import TableStore
from penstock.broker.tablets import TabletDamage, Tablets
from penstock.broker.topic import Topic
from penstock.broker.topic_config import TopicConfig
from penstock.broker.transactional_offsets import TransactionalOffsets
from penstock.broker.transactions import MarkerWriter, TransactionCoordinator, TransactionStore
from penstock.broker.weights import Weights
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.queue import (
    SourceWrite,
)
from penstock.tablet import KvTablet

log = logging.getLogger(__name__)

CATCH_UP_S = 1.0
DELETE_S = 5.0  # how long a client waits for other nodes to delete the data of a topic, which is gone already


class Broker(PartitionBroker):
    """The broker of a single node, or of the leader of a cluster, on its running system tablets. Create it with `start`. Without
    `led_nodes`, there is no other node, and all tablets run here."""

    def __init__(
        self,
        system_tablets: SystemTablets,
        tablets: Tablets,
        options: BrokerOptions,
        *,
        clock: Clock,
        random: Random,
        is_short_of_room: Callable[[], bool],
        led_nodes: LedNodes | None = None,
    ) -> None:
        super().__init__(system_tablets.system, tablets, options, clock=clock, random=random, others=led_nodes)
        self.system_tablets = system_tablets
        self._led_nodes = led_nodes
        self.consumers = Consumers(system_tablets.consumers, clock)
        self.leases = Leases(system_tablets.consumers, options.leases, clock, is_short_of_room=is_short_of_room)
        self.registrations = Registrations(system_tablets.consumers)
        self._offsets = TransactionalOffsets(system_tablets.consumers, self.consumers, clock)
        self.tables = TableStore(system_tablets.tables)
        self.namespace = self._new_namespace(system_tablets.namespace)
        self.weights = Weights()
        self._exports = self._new_exports()
        self.queue_agent = self._new_queue_agent(system_tablets.namespace)
        self._retention = self._new_retention()
        # These two are replaced whenever their tablet restarts; `start` loads their stored state.
        self.transactions = self._new_transactions(system_tablets.transactions.latest)
        self.groups = self._new_groups(system_tablets.consumers.latest)
        self.commits = BufferedCommits(self.transactions, self.consumers)
        self._expiry: asyncio.Task[None] | None = None
        self._catch_up_task: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        storage: BlobStorage,
        options: BrokerOptions,
        *,
        clock: Clock,
        random: Random,
        tablets: Tablets | None = None,
        led_nodes: LedNodes | None = None,
    ) -> Broker:
        """Start the system tablets, then those of every topic. In a cluster `tablets` are those of this node, which outlive the
        broker, and which of them run is for `led_nodes` to decide."""
        if options.must_exist:
            await check_existence(storage, options.group)
        if tablets is None:
            fenced = options.on_fenced
            on_fenced = None if fenced is None else lambda _: fenced()
            tablets = Tablets(
                storage, options.group, cache_bytes=options.cache_bytes, clock=clock, random=random, on_fenced=on_fenced
            )
        life = await storage.life(options.group)
        system_tablets = await SystemTablets.start(storage, options, clock=clock, random=random, probe=tablets.probe.tablets)
        try:
            broker = cls(
                system_tablets,
                tablets,
                options,
                clock=clock,
                random=random,
                is_short_of_room=lambda: is_short_of_room(life),
                led_nodes=led_nodes,
            )
        except BaseException:
            await system_tablets.stop()
            raise
        try:
            await broker._open()
        except BaseException:
            await broker.stop()
            raise
        return broker

    async def _open(self) -> None:
        """Start every topic, then resume transactions and groups."""
        self._check_groups()
        if self._led_nodes is None:
            for topic in self.catalog.deleting():
                await self._finish_deleting(topic)
            await self._host_all()
        else:
            self._start_catching_up()  # other nodes may not answer
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
        self.start_upkeep(self._retention, self._leased_from, **{"queue-agent": self.queue_agent.run()})

    def _check_groups(self) -> None:
        """Raise StorageGroupMissingError if a topic is in a storage group that is not here."""
        known = self.options.storage_groups
        if known is None:
            return
        for topic in [*self.catalog.topics(), *self.catalog.deleting()]:
            for group in topic.groups:
                if group is not None and group not in known:
                    raise StorageGroupMissingError(topic.name, group)

    async def create_topic(
        self, name: str, partitions: int | None = None, config: TopicConfig | None = None, replicas: int = 1
    ) -> Topic:
        """Create a topic; it can be written to when this returns."""
        check_not_internal(name)
        count = self.options.default_partitions if partitions is None else partitions
        topic = await self.catalog.create(name, count, config or TopicConfig(), replicas, self._led_nodes)
        await self._start_new(topic, topic.tablets)
        return topic

    async def internal_topic(self, name: str) -> Topic:
        """Returns one of the broker's own topics, and creates it on first use. They are in the first storage group, like all that
        must be there for the broker to start."""
        try:
            return self.catalog.topic(name)
        except UnknownTopicError:
            pass
        try:
            topic = await self.catalog.create(name, INTERNAL_PARTITIONS, internal_config(name))
        except TopicExistsError:
            # A concurrent request has created it.
            return self.catalog.topic(name)
        await self._start_new(topic, topic.tablets)
        return topic

    async def add_partitions(self, name: str, partitions: int) -> Topic:
        """Increase the number of partitions of a topic to `total`."""
        check_not_internal(name)
        before = self.catalog.topic(name).partitions
        topic = await self.catalog.add_partitions(name, partitions, self._led_nodes)
        await self._start_new(topic, topic.tablets[before:])
        return topic

    async def configure_topic(self, name: str, config: TopicConfig) -> Topic:
        """Change the configuration of a topic."""
        topic = await self.catalog.configure(name, config)
        self.apply([topic])
        return topic

    async def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Set what a broker, or without a name all of them, have while they run; topics that inherit some of it follow. Call it
        with `dynamic.changing` held."""
        await self.dynamic.set(name, settings)
        self.apply(self.catalog.topics())

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its data and the committed offsets in it. Data on a node that is away is deleted when it is
        back; until then no other topic can have the name."""
        check_not_internal(name)
        topic = await self.catalog.mark_deleting(name)
        self.routes.clear()
        try:
            async with asyncio.timeout(None if self._led_nodes is None else DELETE_S):
                await self._finish_deleting(topic)
        except (PenstockError, TimeoutError) as error:
            self._start_catching_up()
            if self._led_nodes is None:
                raise
            log.warning(
                "the data of topic %r will be deleted later: %s", name, str(error) or f"it takes more than {DELETE_S:g} s"
            )

    async def examine(self, topic: Topic) -> TabletDamage:
        """Read all stored data of a topic and report what is lost. UnavailableError if part of the storage cannot answer now."""
        self._check_here(topic)
        return TabletDamage.of_all([await self.tablets.examine(tablet_id) for tablet_id in sorted(set(topic.tablets))])

    async def give_up_lost(self, topic: Topic) -> TabletDamage:
        """Give up the lost data of damaged partitions, so that they serve again. Returns what was lost."""
        self._check_here(topic)
        damages: list[TabletDamage] = []
        for tablet_id in sorted(set(topic.tablets)):
            damages.append(await self.tablets.examine(tablet_id))
            if not damages[-1].is_none:
                await self.tablets.give_up_lost(tablet_id)
        return TabletDamage.of_all(damages)

    def status(self, topic: Topic, number: int) -> PartitionStatus:
        """The figures of a partition, wherever it is. Raises what `partition` raises if they are not known."""
        try:
            return PartitionStatus.of(self.partition(topic, number))
        except PartitionElsewhereError:
            nodes = self._led_nodes
            status = None if nodes is None else nodes.status_of(topic.tablets[number], number)
            if status is None:
                raise
            return status

    async def settled_start(self, topic: Topic, number: int) -> int:
        """The start offset of a partition after all pending deletes, respecting current leases."""
        tablet_id = topic.tablets[number]
        if self._led_nodes is None or self.tablets.hosts(tablet_id):
            return await self.partition(topic, number).trim(0)
        return await self._led_nodes.settled_start(TopicPartition(topic.id, number), tablet_id)

    def _check_here(self, topic: Topic) -> None:
        """Raise PartitionElsewhereError if part of a topic is on another node."""
        for number, tablet_id in enumerate(topic.tablets):
            if self.others is not None and not self.tablets.hosts(tablet_id):
                raise self._elsewhere(topic, number, self.others)

    def reading(self) -> BrokerReading:
        """Returns a cheap view of the broker for metrics and health checks."""
        return BrokerReading(self)

    async def system_tablet(self, tablet_id: int) -> SystemTablet:
        """Start an optional system tablet; it is kept running, and stopped with the broker."""
        return await self.system_tablets.start_another(tablet_id)

    def running_tablets(self) -> list[KvTablet]:
        """All tablets that this node runs, the broker's own ones first."""
        return [*(tablet.latest for tablet in self.system_tablets.running if tablet.serves), *super().running_tablets()]

    async def new_producer(self) -> tuple[int, int]:
        """Allocate an id and epoch for an idempotent producer."""
        return await self.catalog.new_producer_id(), 0

    def needed_from(self, topic: Topic, number: int) -> int | None:
        """The first offset of a partition that must be kept for a consumer or lease; None if there is none."""
        place = TopicPartition(topic.id, number)
        positions = (self.consumers.position(name, place) for name in topic.config.important_consumers)
        # A consumer that has never committed has read nothing.
        offsets = [0 if position is None else position.offset for position in positions]
        others = self.queue_agent.needed_from(topic, number), self.leases.needed_from(place)
        return min([*offsets, *(offset for offset in others if offset is not None)], default=None)

    def _leased_from(self, topic: Topic, number: int) -> int | None:
        return self.leases.needed_from(TopicPartition(topic.id, number))

    async def stop(self) -> None:
        """Finish what is in flight and stop the system tablets, and those of topics unless they outlive it."""
        await self.system_tablets.stop_restarting()
        if self._catch_up_task is not None:
            self._tasks.append(self._catch_up_task)
        await self.stop_tasks()
        await self._stop_transactions()
        await self._exports.stop()
        await self._stop_groups()
        if self._led_nodes is None:
            await self.tablets.stop()
        await self.system_tablets.stop()

    async def _reload_system(self, tablet: KvTablet) -> None:
        """Reload the tables of the system tablet, and apply them."""
        await self.reload_tables(tablet)
        self._start_catching_up()

    def _start_catching_up(self) -> None:
        if self._catch_up_task is not None:
            self._catch_up_task.cancel()
        self._catch_up_task = asyncio.create_task(self._catch_up(), name="catch-up")

    async def _catch_up(self) -> None:
        """Apply changes of topics that were stored although their requests failed."""
        while True:
            try:
                await self._finish_all_deleting()
                await self._host_all()
                self.apply(self.catalog.topics())
            except PenstockError as error:
                log.warning("changes of topics will be carried out later: %s", error)
                await asyncio.sleep(CATCH_UP_S)
            else:
                return

    async def _finish_all_deleting(self) -> None:
        """Delete the data of all topics that are being deleted. Raises the last error when all were tried."""
        trouble: PenstockError | None = None
        for topic in self.catalog.deleting():
            try:
                await self._finish_deleting(topic)
            except PenstockError as error:
                trouble = error
        if trouble is not None:
            raise trouble

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
            changes=lambda: self.tablets.changes,
            clock=self.clock,
            ages=self.ages,
        )

    def _new_retention(self) -> Retention:
        return Retention(
            self.catalog,
            self.tablets,
            self.needed_from,
            self._before_retention,
            ages=self.ages,
            interval_s=self.options.retention_interval_s,
        )

    async def _before_retention(self) -> None:
        """Delete expired leases and store the time; what fails is done before the next run."""
        try:
            await self.leases.sweep()
        except PenstockError as error:
            log.warning("expired leases will be deleted later: %s", error)
        try:
            await self.ages.store()
        except PenstockError as error:
            log.warning("the time that messages age by will be stored later: %s", error)

    def _new_transactions(self, tablet: KvTablet) -> TransactionCoordinator:
        return TransactionCoordinator(
            TransactionStore(tablet),
            MarkerWriter(self._mark, self.catalog.topic_by_id, self._offsets, self.clock),
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

    async def _mark(self, place: TopicPartition, marker: bytes, source: SourceWrite) -> None:
        """Write the end of a transaction to a partition, wherever it is."""
        topic = self.catalog.topic_by_id(place.topic_id)
        tablet_id = topic.tablets[place.partition]
        if self._led_nodes is None or self.tablets.hosts(tablet_id):
            await self.partition(topic, place.partition).mark(marker, source)
        else:
            await self._led_nodes.mark(place, tablet_id, marker, source)

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

    async def _host_all(self) -> None:
        """Start the tablets of all topics, unless it is decided elsewhere which run where."""
        if self._led_nodes is None:
            await self.host({tablet_id: topic for topic in self.catalog.topics() for tablet_id in topic.tablets})

    async def _start_new(self, topic: Topic, tablets: tuple[int, ...]) -> None:
        if self._led_nodes is None:
            await self.host(dict.fromkeys(tablets, topic), are_new=True)
        else:
            await self._led_nodes.place(sorted(set(tablets)))

    async def _finish_deleting(self, topic: Topic) -> None:
        tablets = [(tablet_id, topic.group_of(tablet_id)) for tablet_id in sorted(set(topic.tablets))]
        await (self.tablets.erase_all(tablets) if self._led_nodes is None else self._led_nodes.erase(tablets))
        await self.consumers.forget_topic(topic.id)
        await self.catalog.forget(topic)
