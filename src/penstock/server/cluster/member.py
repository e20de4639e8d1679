"""What a node of a cluster runs: its tablets of topics at all times, and either the broker, while it leads, or a follower of the
one that does. Its listeners for Kafka clients outlive that as well: a change of role closes no connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Final

from penstock.blob import BlobStorage
from penstock.broker import Broker, BrokerOptions, PartitionBroker, Tablets
from penstock.broker.schema_registry import SchemaRegistry, TopicIds
from penstock.broker.table_feed import FollowedTable, TablePosition
from penstock.coordination import Coordination
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.periodic import cancel_tasks, repeat
from penstock.gateway.kafka import OtherListeners
from penstock.interconnect import Interconnect
from penstock.placement import Answer, Placement
from penstock.server.broker_host import BrokerHost
from penstock.server.cluster.administration import ClusterAdministration
from penstock.server.cluster.cluster_nodes import ClusterNodes, LedClusterNodes
from penstock.server.cluster.group_rooms import GroupRooms
from penstock.server.cluster.inventory import CatalogInventory
from penstock.server.cluster.kafka_side import KafkaSide
from penstock.server.cluster.kafka_view import InStep, KafkaView
from penstock.server.cluster.leader_client import FollowedFloors, LeaderClient
from penstock.server.cluster.leader_service import LeaderService
from penstock.server.cluster.peers import Peers
from penstock.server.cluster.remote_partitions import PartitionService, RemotePartitions
from penstock.server.cluster.schema_partition import ClusterSchemaPartition, SchemaService
from penstock.server.cluster.tablet_client import TabletClient
from penstock.server.cluster.tablet_service import TabletService
from penstock.server.config import NodeConfig
from penstock.server.disk_marks import NodeLayout
from penstock.server.kafka_listeners import KafkaListeners
from penstock.server.listener import Listener
from penstock.server.metrics import Observatory
from penstock.server.schema_registry import listen_schemas

log = logging.getLogger(__name__)

CHECK_S: Final = 1.0
RETRY_S: Final = 1.0

Changes = asyncio.Queue[tuple[set[bytes] | None, TablePosition]]
"""The keys of the leader's tables that have changed, or None for all, and the position after that."""


class ClusterMember:
    """The tablets of this node, and the broker or follower on them. Call `follow` first; `lead` and `follow` exchange them."""

    def __init__(
        self,
        config: NodeConfig,
        layout: NodeLayout,
        storage: BlobStorage,
        coordination: Coordination,
        *,
        interconnect: Interconnect,
        peers: Peers,
        options: BrokerOptions,
        clock: Clock,
        random: Random,
        in_step: InStep,
        behind: Callable[[], frozenset[int]] = frozenset,
        own_group: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self._config = config
        self._layout = layout
        self._storage = storage
        self._coordination = coordination
        self._interconnect = interconnect
        self._peers = peers
        self._options = options
        self._clock = clock
        self._random = random
        self._own_group = own_group
        self.listeners: dict[str, Listener] = {}
        self.placement: Placement | None = None  # while this node leads
        self.tablets = Tablets(
            storage,
            options.group,
            cache_bytes=options.cache_bytes,
            clock=clock,
            random=random,
            on_fenced=lambda _: None,  # the leader sees that it is not hosted here any more
        )
        self.nodes = ClusterNodes(layout.node_id, coordination)
        self._service = TabletService(interconnect, coordination, self.tablets)
        PartitionService(interconnect, lambda: self._service.broker)
        self.client = TabletClient(layout.node_id, coordination, peers, self._service)
        self._leader_client = LeaderClient(layout.node_id, coordination, peers)
        SchemaService(interconnect, lambda: self._service.broker)
        self.registry = self._new_registry()
        self.kafka = self._new_kafka_side(in_step, behind)
        self._kafka_listeners = KafkaListeners(config, layout)
        self._listening = AsyncExitStack()  # the port of the schema registry
        self._observatory: Observatory | None = None  # of this node as a follower; None: it never follows
        self._following: asyncio.Task[None] | None = None
        self._follower = AsyncExitStack()  # what runs only while this node follows
        self._checking = asyncio.create_task(repeat("the look at other nodes", CHECK_S, self._check_kafka_side))

    def _new_registry(self) -> SchemaRegistry:
        node_id, link_to = self._layout.node_id, self._peers.link
        return SchemaRegistry(
            ClusterSchemaPartition(node_id, self._clock, lambda: self._service.broker, lambda: self.nodes.leader, link_to=link_to)
        )

    def _new_kafka_side(self, in_step: InStep, behind: Callable[[], frozenset[int]]) -> KafkaSide:
        side = KafkaSide(
            self._layout.node_id,
            self._coordination,
            self._interconnect,
            self.tablets,
            loads=self._service.loads,
            link_to=self._peers.link,
            is_connected=self._peers.is_connected,
            in_step=in_step,
            behind=behind,
            rack=self._config.rack or "",
            clock=self._clock,
            random=self._random,
        )
        side.start()
        return side

    @property
    def broker(self) -> PartitionBroker | None:
        """What serves the partitions of this node; None until it has a catalog."""
        return self._service.broker

    def administration(self, requests: Mapping[str, Answer]) -> ClusterAdministration:
        """The cluster as operators see it while this node leads; `requests` carries out what they ask for."""
        return ClusterAdministration(
            self._coordination,
            lambda: self.placement,
            self.client,
            partitions=RemotePartitions(self._peers),
            requests=requests,
            clock=self._clock,
        )

    async def stop(self) -> None:
        """Stop following, and all tablets. The broker, if this node leads, is stopped before. May be called again."""
        if self._checking.cancelled():
            return
        await self.stop_listening()
        await self.stop_following()
        await self.kafka.stop()
        self._checking.cancel()
        await asyncio.gather(self._checking, return_exceptions=True)
        await self.tablets.stop()

    async def stop_listening(self) -> None:
        """Answer the requests of clients that are in flight, and close their connections. May be called again."""
        await self._listening.aclose()
        await self._kafka_listeners.stop()

    # The leader.

    async def lead(
        self,
        host: BrokerHost,
        options: BrokerOptions,
        on_started: Callable[[], Awaitable[None]],
    ) -> None:
        """Start the broker with its listeners in `host`, on the tablets that run here. Whatever is started is stopped with it."""
        inventory = CatalogInventory(self._coordination, lambda: host.broker, self._options.group, self._own_group)
        loads = self.kafka.loads_elsewhere()
        placement = self.placement = Placement(self._coordination, self._peers, self.client, inventory, self._clock, loads=loads)
        rooms = GroupRooms(
            self._coordination,
            self.client,
            self._storage,
            first_group=self._options.group,
            partitions=inventory.partitions_by_group,
        )
        led_nodes = LedClusterNodes(self._layout.node_id, self._coordination, self.client, self.tablets, placement, rooms=rooms)

        async def swap() -> None:
            await on_started()
            await self._begin_leading(host, placement, rooms)

        await host.start(
            self._storage, options, self._random, swap, tablets=self.tablets, led_nodes=led_nodes, registry=self.registry
        )
        self.listeners.update(host.listeners)

    async def _begin_leading(self, host: BrokerHost, placement: Placement, rooms: GroupRooms) -> None:
        """Serve clients and other nodes from the broker of this node, which runs by now."""
        broker = host.broker
        assert broker is not None
        service = LeaderService(self._interconnect, broker)
        host.closing.callback(self._end_leading, broker, service)
        self._service.broker = broker
        tasks = [
            asyncio.create_task(placement.run(), name="placement"),
            asyncio.create_task(self.client.poll_statuses(), name="partition-statuses"),
            asyncio.create_task(rooms.poll(), name="group-rooms"),
        ]
        host.closing.push_async_callback(cancel_tasks, tasks)
        host.view = self.kafka.begin_leading(placement.move)
        host.on_stop = partial(self._step_down, broker)
        await self._listen(broker, host.observatory, host.view, host.advertised_listeners)
        host.kafka = self._kafka_listeners
        host.listeners.update(self.listeners)
        self.kafka.serve(broker, host.kafka_gateways, lambda: service.position)
        await self.stop_following()

    async def _step_down(self, broker: Broker) -> None:
        """Keep the clients of this node while its broker stops: it follows with the tables as they are here, until those of the
        next leader come, which this node may not know yet."""
        view = self.kafka.begin_following()
        await self.stop_following()
        if self._kafka_listeners.gateways and self._observatory is not None:
            table, changes = self._new_table()
            table.begin_with(broker.system_tablets.system.latest)
            follower = await self._begin_following(table, self._observatory, view)
            self._following = asyncio.create_task(self._follow_changes(table, changes, follower), name="follow-leader")
        broker.groups.release()  # members of groups find the next leader

    def _end_leading(self, broker: Broker, service: LeaderService) -> None:
        service.close()
        self.kafka.begin_following()
        self.placement = None
        if self._service.broker is broker:
            self._service.broker = None

    # A follower.

    async def follow(self, observatory: Observatory) -> None:
        """Follow the leader, and serve the partitions of this node as soon as its tables are here."""
        self._observatory = observatory
        if self._following is None:
            self._following = asyncio.create_task(self._follow(observatory), name="follow-leader")

    async def stop_following(self) -> None:
        """Stop what runs only while this node follows; its tablets and listeners run on."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        follower, self._follower = self._follower, AsyncExitStack()
        await follower.aclose()

    async def _follow(self, observatory: Observatory) -> None:
        table, changes = self._new_table()
        _, position = await changes.get()  # all of it is here
        broker = await self._begin_following(table, observatory, self.kafka.begin_following())
        table.note_applied(position)
        await self._follow_changes(table, changes, broker)

    def _new_table(self) -> tuple[FollowedTable, Changes]:
        """A copy of the leader's tables, and its changes."""
        changes: Changes = asyncio.Queue()
        table = FollowedTable(lambda keys: changes.put_nowait((keys, table.position)))
        copying = asyncio.create_task(self._leader_client.follow(table), name="follow-tables")
        self._follower.push_async_callback(cancel_tasks, [copying])
        return table, changes

    async def _begin_following(self, table: FollowedTable, observatory: Observatory, view: KafkaView) -> PartitionBroker:
        """Serve clients and other nodes as a follower."""
        broker = PartitionBroker(table, self.tablets, self._options, clock=self._clock, random=self._random, others=self.nodes)
        broker.intake.schema_ids = TopicIds(self.registry)
        self._follower.push_async_callback(broker.stop_tasks)
        self._start_upkeep(broker)
        self._service.broker = broker
        self._follower.callback(self._stop_serving, broker)
        self.kafka.follow_table(table)
        self._follower.callback(self.kafka.follow_table, None)
        while True:
            try:
                await self._listen(broker, observatory, view)
            except PenstockError as error:
                log.error("%s; trying again", error)
                await asyncio.sleep(RETRY_S)
                continue
            break
        log.info("this node follows the leader and serves its partitions")
        return broker

    async def _follow_changes(self, table: FollowedTable, changes: Changes, broker: PartitionBroker) -> None:
        while True:
            keys, position = await changes.get()
            try:
                await broker.follow_tables(table, keys)
            except PenstockError as error:
                log.error("a change of the leader's tables cannot be applied here: %s", error)
            table.note_applied(position)

    def _stop_serving(self, broker: PartitionBroker) -> None:
        self._service.refresh_floors = None
        if self._service.broker is broker:
            self._service.broker = None

    def _start_upkeep(self, broker: PartitionBroker) -> None:
        floors = FollowedFloors(self._leader_client, lambda: [state.tablet for state in self.tablets.states()], self._clock)
        self._service.refresh_floors = floors.refresh
        broker.start_followed_upkeep(floors.needed_from, floors.leased_from, floors.refresh, floors.run())

    # Both.

    async def _listen(
        self,
        broker: PartitionBroker,
        observatory: Observatory,
        view: KafkaView,
        other_listeners: OtherListeners | None = None,
    ) -> None:
        """Serve Kafka clients from a broker, and those of the schema registry if that has a port of its own. The listeners are
        opened once, and stay open whether this node leads or follows."""
        await self._kafka_listeners.serve(broker, observatory=observatory, view=view, other_listeners=other_listeners)
        for name, gateway in self._kafka_listeners.gateways.items():
            self.listeners[name] = Listener(self._config.host, gateway.port)
        if "schema_registry" not in self.listeners:
            registry = await listen_schemas(self._config, self.registry, lambda: self.broker, self._clock, self._listening)
            if registry is not None:
                self.listeners["schema_registry"] = registry

    async def _check_kafka_side(self) -> None:
        self.kafka.check()
