"""A cluster in one process, for the tests of Kafka clients: nodes with listeners and tablets of their own on one storage, the
first of which leads. PENSTOCK_TEST_NODES=3 has the tests of this folder run on it, connected to the second node."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

from penstock.blob import BlobStorage, Configuration, Erasure, Seat
from penstock.broker import Broker, BrokerOptions, PartitionBroker
from penstock.coordination import ClusterIdentity, Coordination, KeyTable, MemberRecord, MemoryStore
from penstock.core.clock import SystemClock, boot_time
from penstock.gateway.kafka import KafkaGateway
from penstock.interconnect import Interconnect, NodeIdentity, SocketNetwork
from penstock.placement import NodeView, TabletView, choose, placement
from penstock.server.broker_host import BrokerHost
from penstock.server.cluster.member import ClusterMember
from penstock.server.cluster.peers import ADDRESS, Peers
from penstock.server.config import NodeConfig
from penstock.server.disk_marks import NodeLayout
from penstock.server.metrics import Observatory
from tests.ports import free_ports

NODES: Final = int(os.environ.get("PENSTOCK_TEST_NODES", "1"))
ASKED: Final = 2  # the node that clients connect to
STARTED_S: Final = 20.0


@dataclass(frozen=True)
class _Node:
    coordination: Coordination
    interconnect: Interconnect
    peers: Peers
    config: NodeConfig
    layout: NodeLayout
    member: ClusterMember
    observatory: Observatory


class _SharedStore(MemoryStore):
    """One store for all nodes: no one of them closes it."""

    async def close(self) -> None:
        """Leave it to the others."""


class GatewayCluster:
    """The nodes, by number from 1. It can be started again after it was stopped, and storage opened again."""

    def __init__(self, path: Path, options: BrokerOptions, cluster_id: str, nodes: int = NODES) -> None:
        self._path = path
        self._store = _SharedStore(KeyTable(uuid.uuid4().hex), boot_time)
        self._starts = 0
        self._storage: BlobStorage
        self._options = options
        self._cluster_id = cluster_id
        self._nodes: dict[int, _Node] = {}
        self._stack = AsyncExitStack()
        self._host: BrokerHost
        self._former: list[BrokerHost] = []
        self._leader = 0
        self.ports = free_ports(nodes)
        self.gathers = False  # whether all partitions of a new topic are put on the node that clients are connected to

    @property
    def broker(self) -> Broker:
        """The broker of the leader."""
        assert self._host.broker is not None
        return self._host.broker

    @property
    def gateway(self) -> KafkaGateway:
        """The listener of the leader."""
        return self._host.kafka_gateways["kafka"]

    async def start(self, storage: BlobStorage) -> None:
        """Start all nodes, and wait until they serve."""
        self._storage = storage
        self._starts += 1
        self._nodes.clear()
        identity = ClusterIdentity(cluster_id=str(uuid.uuid4()), name="tested", kind=Erasure.MIRROR_3.value)
        await Coordination(self._store).create_cluster(identity)
        for number in range(1, len(self.ports) + 1):
            await self._join(number)
        first = self._nodes[1]
        await _until(lambda: first.coordination.leadership is not None)
        seats = tuple(Seat(number, "disk0") for number in self._nodes)
        configuration = Configuration(self._options.group, 1, Erasure.MIRROR_3, seats)
        if self._starts == 1:
            await first.coordination.change_group(configuration.group, configuration.pack(), 0)
        await first.coordination.set_maintenance(is_on=True)  # tablets stay where they are
        self._stack.enter_context(patch.object(placement, "choose", self._choose))
        await first.coordination.take_system_tablets()
        await self._lead(1)
        await _until(lambda: all("kafka" in node.member.listeners for node in self._nodes.values()))
        tablets = {tablet_id for topic in self.broker.catalog.topics() for tablet_id in topic.tablets}
        await _until(lambda: tablets <= {tablet for node in self._nodes.values() for tablet in node.member.tablets.generations()})

    async def take_over(self, number: int) -> None:
        """Have another node lead instead of the one that does, which does not know yet."""
        coordination = self._nodes[number].coordination
        assert coordination.leader is not None
        coordination.campaign()
        assert await coordination.challenge(coordination.leader)
        await _until(lambda: coordination.leadership is not None)
        await coordination.take_system_tablets()
        await self._lead(number)

    async def step_down(self) -> None:
        """The leader is one no more, and no other node leads."""
        await self._host.stop()

    async def stop_former_leaders(self) -> None:
        """They learn that they are superseded."""
        while self._former:
            await self._former.pop().stop()

    async def _lead(self, number: int) -> None:
        node = self._nodes[number]
        observatory = Observatory(clock=SystemClock())
        host = BrokerHost(node.config, node.layout, observatory)
        await node.member.lead(host, self._options, node.coordination.note_started)
        if self._leader:
            self._former.append(self._host)
        self._host, self._leader = host, number

    async def stop(self) -> None:
        """Stop all nodes."""
        await self._nodes[self._leader].member.stop_listening()
        await self.stop_former_leaders()
        await self._host.stop()
        self._leader = 0
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def settle(self) -> None:
        """Wait until all nodes follow what the leader has changed."""
        position = self._nodes[self._leader].member.kafka._service._position()
        tables = (node.member.kafka._forwarder.table for number, node in self._nodes.items() if number != self._leader)
        assert all([table is not None and await table.applied(position, STARTED_S) for table in tables])

    def broker_of(self, tablet_id: int) -> PartitionBroker:
        """The broker of the node that has a tablet."""
        brokers = (node.member.broker for node in self._nodes.values() if node.member.tablets.hosts(tablet_id))
        return next(broker for broker in brokers if broker is not None)

    def _choose(self, nodes: Sequence[NodeView], tablets: Sequence[TabletView], new: Sequence[TabletView]) -> Mapping[int, int]:
        """A test whose client finds no leaders has its topics on the node that it is connected to."""
        is_gathered = self.gathers or len(new) == 1
        return {tablet.tablet_id: ASKED for tablet in new} if is_gathered else choose(nodes, tablets, new)

    async def _join(self, number: int) -> None:
        clock, random = SystemClock(), Random()
        coordination = Coordination(self._store)
        identity = await coordination.open()
        self._stack.push_async_callback(coordination.close)
        assert await coordination.claim_node_id(f"n{number}", str(number)) == number
        own = NodeIdentity(uuid.UUID(identity.cluster_id).bytes, number, self._starts)
        interconnect = Interconnect(own, SocketNetwork(None), clock=clock, random=random)
        self._stack.push_async_callback(interconnect.close)
        address = await interconnect.listen("127.0.0.1:0")
        peers = Peers(number, coordination, interconnect, clock)
        coordination.listen(lambda _: peers.follow())
        port = self.ports[number - 1]
        config = NodeConfig(
            data_dir=self._path / f"node{number}", host="127.0.0.1", kafka_port=port, http_port=None, drain_timeout_s=5.0
        )
        layout = NodeLayout(self._cluster_id, number, Erasure.MIRROR_3, (self._path,))
        await coordination.register(
            MemberRecord(
                node_id=number,
                name=f"n{number}",
                directory_id=str(number),
                instance_id=f"{number}-{self._starts}",
                addresses={ADDRESS: address, "kafka": f"127.0.0.1:{port}"},
                rack=f"r{number}",
            )
        )
        if number == 1:
            coordination.campaign()
        member = ClusterMember(
            config,
            layout,
            self._storage,
            coordination,
            interconnect=interconnect,
            peers=peers,
            options=self._options,
            clock=clock,
            random=random,
            in_step=lambda _: frozenset(self._nodes),
        )
        observatory = Observatory(clock=clock)
        self._nodes[number] = _Node(coordination, interconnect, peers, config, layout, member, observatory)
        self._stack.push_async_callback(member.stop)
        await member.follow(observatory)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(STARTED_S):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
