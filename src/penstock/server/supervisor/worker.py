"""A worker: a node with a storage group of its own, in one cluster with the other workers of its machine. Worker 1 leads."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from random import Random, SystemRandom  # noqa: TID251 - ids of payloads and sessions must not be guessed
from typing import Any, Final

from penstock import __version__
from penstock.blob import BlobStorage
from penstock.broker import BrokerOptions, PartitionBroker, Topic
from penstock.coordination import Coordination, MemberRecord, SocketStore
from penstock.core.clock import SystemClock, boot_time
from penstock.gateway.http_port import HttpPort
from penstock.interconnect import Interconnect, NodeIdentity, SocketNetwork
from penstock.server.broker_host import BrokerHost, MountConsole, broker_options
from penstock.server.cluster.known_nodes import ServingNode, known_nodes, serving_node
from penstock.server.cluster.member import ClusterMember
from penstock.server.cluster.peers import ADDRESS, Peers
from penstock.server.data_directory import DataDirectory, node_secret
from penstock.server.listener import Listener, advertised_host, cannot_listen
from penstock.server.local_storage import open_storage, start_errors
from penstock.server.metrics import Observatory
from penstock.server.metrics.alerts import ClusterTrouble
from penstock.server.schema_registry import mount_standby_registry
from penstock.server.security import tls_context
from penstock.server.supervisor.worker_config import COORDINATION_SOCKET, socket_directory, worker_name
from penstock.server.supervisor.worker_order import WorkerOrder
from penstock.server.tracing import start_tracing

FEATURE_LEVEL: Final = 1
FIRST_WORKER: Final = 1
FIRST_GROUP: Final = 0
"""That of worker 1, where topics are that were created without workers."""
LOOK_S: Final = 0.02


class WorkerNode:
    """A running worker. Create it with `start`; `stop` waits for requests in flight, then closes everything."""

    def __init__(self, order: WorkerOrder, directory: DataDirectory, mount_console: MountConsole | None) -> None:
        self.config = order.config
        self.layout = directory.layout
        self.data_dir = directory.path
        self.listeners: dict[str, Listener] = {}
        self._order = order
        self._directory = directory
        self._sockets = socket_directory(Path(order.data_dir))
        self._mount_console = mount_console
        self._clock = SystemClock()
        self._random: Random = SystemRandom()
        self._closing = AsyncExitStack()
        self._is_ready = False

    @classmethod
    async def start(cls, order: WorkerOrder, mount_console: MountConsole | None = None) -> WorkerNode:
        """Open the storage, join the other workers and listen. Raises ConfigError with what to change if it cannot."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        tls_context(order.config)  # reports wrong files before anything is created
        config = replace(order.config, node_id=order.node_id)
        directory = await asyncio.to_thread(DataDirectory.open, config, SystemRandom(), lock=order.lock)
        node = cls(order, directory, mount_console)
        node._closing.callback(directory.close)
        try:
            storage = await open_storage(config, directory, order.group, node._random)
            node._closing.push_async_callback(storage.close)
            await node._join()
            with start_errors(directory.layout.disks):
                await node._serve(storage)
        except BaseException:
            await node._closing.aclose()
            raise
        return node

    async def stop(self) -> None:
        """Accepts no more requests, finishes those in flight, then closes the storage."""
        await self._closing.aclose()

    async def wait_failure(self) -> None:
        """Raise why this worker cannot go on; it always tries."""
        await asyncio.Event().wait()

    async def _join(self) -> None:
        """Connect to the supervisor and the other workers."""
        self._coordination = coordination = Coordination(SocketStore(self._sockets / COORDINATION_SOCKET, boot_time))
        self._closing.push_async_callback(coordination.close)
        identity = await coordination.open()
        cluster = hashlib.sha256(identity.cluster_id.encode()).digest()[:16]
        incarnation = int(self._clock.wall() * 1000)
        own = NodeIdentity(cluster, self._order.node_id, incarnation, FEATURE_LEVEL, FEATURE_LEVEL)
        self._interconnect = Interconnect(own, SocketNetwork(), clock=self._clock, random=self._random)
        self._closing.push_async_callback(self._interconnect.close)
        address = await self._interconnect.listen(f"unix:{self._sockets / f'worker{self._order.worker}.sock'}")
        self._peers = Peers(self._order.node_id, coordination, self._interconnect, self._clock)
        await coordination.register(self._record(address))
        coordination.listen(lambda _: self._peers.follow())
        self._peers.follow()

    def _record(self, address: str) -> MemberRecord:
        config, host = self.config, advertised_host(self.config)
        ports = {name: getattr(config, f"{name}_port") for name in ("kafka", "kafka_tls", "http", "yt", "ydb")}
        return MemberRecord(
            node_id=self._order.node_id,
            name=worker_name(self._order.worker),
            directory_id=str(self._order.node_id),
            instance_id=str(uuid.UUID(bytes=self._random.randbytes(16), version=4)),
            addresses={ADDRESS: address, **{name: str(Listener(host, port)) for name, port in ports.items() if port}},
            rack=config.rack or "",
            version=__version__,
            started_ms=int(self._clock.wall() * 1000),
            feature_level_max=FEATURE_LEVEL,
            disks={"disk0": ""},
        )

    async def _serve(self, storage: BlobStorage) -> None:
        """Lead or follow, and return when the partitions of this worker are served."""
        options = await self._broker_options()
        member = ClusterMember(
            self.config,
            self.layout,
            storage,
            self._coordination,
            interconnect=self._interconnect,
            peers=self._peers,
            options=options,
            clock=self._clock,
            random=self._random,
            in_step=self._nodes_of,
            own_group=self._order.groups.get,
        )
        self._closing.push_async_callback(member.stop)
        observatory = Observatory(clock=self._clock)
        observatory.interconnect = self._interconnect
        observatory.watch_loop()
        self._closing.push_async_callback(observatory.stop_watching_loop)
        self._start_tracing(observatory)
        if self._order.worker == FIRST_WORKER:
            await self._lead(member, options, observatory)
        else:
            await self._listen_http(member, observatory)
            await member.follow(observatory)
            await _until(lambda: member.broker is not None and bool(member.listeners))
        assert member.broker is not None
        await self._host(member.broker)
        self.listeners = {**member.listeners, **self.listeners}
        self._is_ready = True

    async def _broker_options(self) -> BrokerOptions:
        options = replace(broker_options(self.config, FIRST_GROUP), storage_groups=frozenset(self._order.groups.values()))
        self._secret = await asyncio.to_thread(node_secret, Path(self._order.data_dir), self._random)
        if options.security is not None:
            options = replace(options, security=replace(options.security, secret=self._secret))
        return options

    async def _lead(self, member: ClusterMember, options: BrokerOptions, observatory: Observatory) -> None:
        coordination, directory = self._coordination, self._directory
        coordination.campaign()
        await _until(lambda: coordination.leadership is not None)
        await coordination.take_system_tablets()
        host = BrokerHost(
            self.config,
            self.layout,
            observatory,
            self._mount_console,
            cluster=member.administration({}),
            forward_secret=self._secret,
        )
        must_exist = directory.layout.started and not self.config.accept_data_loss
        observatory.placement = lambda: member.placement
        observatory.cluster_troubles = self._troubles
        await member.lead(host, replace(options, must_exist=must_exist), directory.note_started)
        self._closing.push_async_callback(host.stop)
        self._closing.push_async_callback(member.stop_listening)

    async def _listen_http(self, member: ClusterMember, observatory: Observatory) -> None:
        """Health, metrics and schema registry of this worker; all else is forwarded to the first one."""
        config = self.config
        if config.http_port is None:
            return
        from penstock.server.cluster.http_forwarder import HttpForwarder, client_tls, console_refusal
        from penstock.server.cluster.standby_http import StandbyHttp

        port = HttpPort(config.host, config.http_port)
        http = StandbyHttp(
            port,
            self._readiness,
            HttpForwarder(self._serving_node, self._secret, client_tls(config), console_refusal),
            advertised_host=advertised_host(config),
            broker=lambda: member.broker,
            observatory=observatory,
            mount=partial(mount_standby_registry, config=config, member=member, clock=self._clock),
            tls=tls_context(config),
        )
        try:
            await http.start()
        except OSError as error:
            raise cannot_listen("http_port", config.host, config.http_port, error) from error
        self._closing.callback(port.close)
        self._closing.push_async_callback(http.stop)
        self.listeners["http"] = Listener(config.host, port.port)

    def _readiness(self) -> dict[str, Any]:
        reasons = [] if self._is_ready else ["its partitions are starting"]
        return {"status": "not ready" if reasons else "ready", "role": "worker", "node": self._order.node_id, "reasons": reasons}

    def _troubles(self) -> list[ClusterTrouble]:
        """The workers that are away: the supervisor starts them again."""
        nodes = known_nodes(self._coordination)
        return [ClusterTrouble("node", f"{node.name} is away; it is started again") for node in nodes if not node.is_running]

    def _serving_node(self) -> ServingNode:
        leader = self._coordination.leader
        return serving_node(self._coordination, None if leader is None else leader.record.node_id, self._order.node_id)

    async def _host(self, broker: PartitionBroker) -> None:
        """Run the tablets of this worker's group. No other worker can, so there is no need to wait for the leader's order."""
        own: dict[int, Topic] = {}
        for topic in broker.catalog.topics():
            for tablet_id, group in zip(topic.tablets, topic.groups or repeat(None), strict=False):
                if (FIRST_GROUP if group is None else group) == self._order.group:
                    own[tablet_id] = topic
        await broker.host(own)

    def _start_tracing(self, observatory: Observatory) -> None:
        config = self.config
        tracing = start_tracing(config.otel_endpoint, node_id=self.layout.node_id, cluster=config.cluster_name)
        if tracing is not None:
            observatory.trace(tracing)
            self._closing.push_async_callback(asyncio.to_thread, tracing.stop)

    def _nodes_of(self, group: int) -> frozenset[int]:
        """The worker whose group this is."""
        return frozenset(node_id for node_id, own in self._order.groups.items() if own == group)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - it comes true in several places
        await asyncio.sleep(LOOK_S)
