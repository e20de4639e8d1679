"""A node of a cluster: joins it, hosts its share of the storage, and runs the broker while it leads."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from random import Random, SystemRandom  # noqa: TID251 - ids of payloads and sessions must not be guessed
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock import __version__
from penstock.blob import BlobStorage, Configuration, Confirmations, Erasure, GroupOptions
from penstock.broker import BrokerOptions
from penstock.coordination import (
    ClusterIdentity,
    ClusterMark,
    Coordination,
    CoordinationUnavailableError,
    DuplicateMemberError,
    MemberRecord,
)
from penstock.core.clock import SystemClock
from penstock.core.errors import PenstockError
from penstock.core.periodic import cancel_tasks
from penstock.interconnect import Interconnect, NodeIdentity, SocketNetwork, TlsFiles
from penstock.placement import PlacementRequests
from penstock.server.broker_host import (
    BrokerHost,
    MountConsole,
    broker_options,
    import_listeners,
    listener_modules,
)
from penstock.server.cluster.connection import connect_coordination
from penstock.server.cluster.controller import GroupController, lead
from penstock.server.cluster.directory import ClusterDirectory
from penstock.server.cluster.disks import NodeDisks
from penstock.server.cluster.feature_level import (
    FEATURE_LEVEL_MAX,
    FEATURE_LEVEL_MIN,
    RAISE_LEVEL,
    check_feature_level,
    raise_level,
)
from penstock.server.cluster.groups import ClusterGroups, group_ids, system_group
from penstock.server.cluster.joining import check_members
from penstock.server.cluster.known_nodes import NODE_STATES, NodeStates, ServingNode, serving_node
from penstock.server.cluster.leaving import hand_over
from penstock.server.cluster.member import ClusterMember
from penstock.server.cluster.peers import ADDRESS, Peers
from penstock.server.cluster.role import STANDBY, BrokerRole
from penstock.server.cluster.standby_listeners import HttpListener, StandbyListeners
from penstock.server.cluster.troubles import cluster_troubles
from penstock.server.config import NodeConfig
from penstock.server.disk_marks import NodeLayout
from penstock.server.errors import BadSettingError
from penstock.server.listener import Listener, advertised_host, cannot_listen, check_ports
from penstock.server.metrics import Observatory
from penstock.server.metrics.alerts import ClusterTrouble
from penstock.server.node_ports import NodePorts
from penstock.server.schema_registry import mount_standby_registry
from penstock.server.security import tls_context
from penstock.server.tracing import start_tracing

if TYPE_CHECKING:
    from penstock.gateway.http_port import HttpPort
    from penstock.server.cluster.http_forwarder import HttpForwarder

log = logging.getLogger(__name__)

STEP_S: Final = 0.25
MARK_S: Final = 5.0
RETRY_S: Final = 1.0
LISTENERS: Final = ("kafka", "kafka_tls", "http", "yt", "ydb", "stream", "stream_http", "schema_registry")


class ClusterNode:
    """A running node of a cluster. Create it with `start`; `stop` hands the broker over and closes everything."""

    def __init__(self, config: NodeConfig, directory: ClusterDirectory, coordination: Coordination) -> None:
        self.config = config
        self.data_dir = directory.path
        self.listeners: dict[str, Listener] = {}
        self._directory = directory
        self._coordination = coordination
        self._clock = SystemClock()
        self._random: Random = SystemRandom()
        self._closing = AsyncExitStack()
        self._changed = asyncio.Event()
        self._kept_mark: ClusterMark | None = None
        self._has_left = False
        self._record: MemberRecord  # since it has joined
        self._ports = NodePorts(config)
        self._mount_console: MountConsole | None = None

    @classmethod
    async def start(cls, config: NodeConfig, mount_console: MountConsole | None = None) -> ClusterNode:
        """Join the cluster and host its share of the storage; the broker follows when this node leads. Raises ConfigError with
        what to change if it cannot."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        _check_fixed_ports(config)
        tls_context(config)  # reports wrong files before anything is created
        coordination = connect_coordination(config, SystemRandom())
        directory = await asyncio.to_thread(ClusterDirectory.open, config, SystemRandom(), SystemClock())
        node = cls(config, directory, coordination)
        node._mount_console = mount_console
        node._closing.callback(directory.close)
        node._closing.push_async_callback(node._leave)
        try:
            check_ports(config)
            identity = await _open(coordination, directory)
            await node._join(identity)
            await node._run(identity)
        except BaseException:
            await node._closing.aclose()
            raise
        return node

    async def stop(self) -> None:
        """Hand tablets and the lead over, stop the broker, then close the VDisks."""
        await self._hand_over()
        await self._closing.aclose()

    async def _hand_over(self) -> None:
        """Let other nodes take the tablets of this one, and the lead, while it still serves; the rest is taken over later."""
        coordination, tablets = self._coordination, self._member.tablets
        if not coordination.status.is_usable:
            return
        self._record = msgspec.structs.replace(self._record, is_leaving=True)
        await hand_over(coordination, self._record, lambda: len(tablets.states()), has_lead=lambda: self._role.role != STANDBY)

    async def _stop_serving(self) -> None:
        """Stop the listeners for Kafka clients, then the broker: a node that stops does not follow in between."""
        await self._ports.close()
        await self._member.stop_listening()
        await self._role.stop()
        await self._close_standby()

    async def _leave(self) -> None:
        """Leave coordination, so that another node leads at once."""
        if not self._has_left:
            self._has_left = True
            await self._coordination.close()

    async def wait_failure(self) -> None:
        """Raise why this node cannot go on, when that is so."""
        await asyncio.shield(self._role.failure)

    # Joining.

    async def _join(self, identity: ClusterIdentity) -> None:
        """Get the id of this node, and mark the directory and its disks."""
        config, directory = self.config, self._directory
        check_feature_level(identity, FEATURE_LEVEL_MAX)
        name = config.node_name or socket.gethostname().partition(".")[0]
        node_id = await self._coordination.claim_node_id(
            name,
            directory.directory_id,
            replaces=config.replaces_node,
            known_id=directory.node_id,
            above=_highest_id(self._coordination),
        )
        await asyncio.to_thread(directory.keep_mark, self._coordination.mark, identity.feature_level)
        await asyncio.to_thread(directory.join, identity.cluster_id, node_id)
        disks = NodeDisks(
            directory.disks,
            identity.cluster_id,
            node_id,
            durable=config.durability == "fsync",
            timeout_s=config.disk_timeout_s,
        )
        await asyncio.to_thread(disks.check)
        self._disks = disks
        self.layout = NodeLayout(identity.cluster_id, node_id, Erasure(identity.kind), directory.disks)
        self._interconnect = await self._listen_interconnect(identity, node_id)
        self._record = MemberRecord(
            node_id=node_id,
            name=name,
            directory_id=directory.directory_id,
            instance_id=str(uuid.UUID(bytes=self._random.randbytes(16), version=4)),
            addresses=self._addresses(),
            rack=config.rack or "",
            datacenter=config.datacenter or "",
            version=__version__,
            started_ms=int(self._clock.wall() * 1000),
            feature_level_max=FEATURE_LEVEL_MAX,
            is_encrypted=config.interconnect_ca is not None,
            disks=await asyncio.to_thread(disks.states),
        )

    async def _listen_interconnect(self, identity: ClusterIdentity, node_id: int) -> Interconnect:
        config = self.config
        own = NodeIdentity(
            uuid.UUID(identity.cluster_id).bytes, node_id, self._directory.incarnation, FEATURE_LEVEL_MIN, FEATURE_LEVEL_MAX
        )
        files = (config.interconnect_cert, config.interconnect_key, config.interconnect_ca)
        tls = TlsFiles(files[0], files[1], files[2]) if files[0] and files[1] and files[2] else None
        interconnect = Interconnect(own, SocketNetwork(tls), clock=self._clock, random=self._random)
        self._closing.push_async_callback(interconnect.close)
        port = config.interconnect_port or 0
        try:
            address = await interconnect.listen(str(Listener(config.host, port)))
        except OSError as error:
            raise cannot_listen("interconnect_port", config.host, port, error) from error
        self.listeners[ADDRESS] = Listener(config.host, int(address.rpartition(":")[2]))
        return interconnect

    def _addresses(self) -> dict[str, str]:
        host = advertised_host(self.config)
        ports = {name: getattr(self.config, f"{name}_port") for name in LISTENERS}
        ports[ADDRESS] = self.listeners[ADDRESS].port
        return {name: str(Listener(host, port)) for name, port in ports.items() if port}

    # Running.

    async def _run(self, identity: ClusterIdentity) -> None:
        """Register, follow the cluster, and begin with the role of a standby."""
        coordination, node_id = self._coordination, self.layout.node_id
        self._storage = self._open_storage()
        self._groups = ClusterGroups(
            node_id,
            coordination,
            self._interconnect,
            self._disks,
            self._storage,
            clock=self._clock,
            random=self._random,
            options=GroupOptions(),
        )
        self._peers = self._groups.peers = Peers(node_id, coordination, self._interconnect, self._clock)
        self._observatory = self._observe_standby()
        self._controller = self._new_controller()
        self._role = BrokerRole(
            node_id,
            coordination,
            self._peers,
            can_start=self._can_start,
            start=self._start_broker,
            unconfirmed_s=lambda: self._storage.unconfirmed_s(self._options.group),
            on_standby=self._stand_by,
        )
        self._member = await self._new_member()
        await asyncio.to_thread(import_listeners, listener_modules(self.config))
        await self._stand_by()
        self._closing.push_async_callback(self._close_standby)
        await check_members(self._record, await coordination.read_members())
        await self._peers.check_accepted()
        await coordination.register(self._record)
        coordination.listen(lambda _: self._changed.set())
        await self._groups.start()
        coordination.campaign()
        self._closing.push_async_callback(self._leave)
        self._closing.push_async_callback(self._member.stop)  # other nodes start its tablets when it has left
        self._closing.push_async_callback(self._stop_serving)
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("cluster-follow", self._follow()),
                ("cluster-survey", self._groups.survey()),
                ("cluster-lead", lead(self._controller, coordination, STEP_S)),
                ("cluster-role", self._role.run()),
                ("cluster-mark", self._keep_marks()),
            )
        ]
        self._closing.push_async_callback(cancel_tasks, tasks)
        log.info("node %d (%s) of cluster %s runs", node_id, self._record.name, identity.name)

    async def _new_member(self) -> ClusterMember:
        self._options = await self._broker_options()
        member = ClusterMember(
            self.config,
            self.layout,
            self._storage,
            self._coordination,
            interconnect=self._interconnect,
            peers=self._peers,
            options=self._options,
            clock=self._clock,
            random=self._random,
            in_step=self._groups.nodes_in_step,
            behind=self._groups.behind,
        )
        self._closing.push_async_callback(member.stop)
        self._standby = StandbyListeners(self.config, self._ports, self._serving, self._secret, self._new_http)
        return member

    def _new_controller(self) -> GroupController:
        """What decides about groups, with all that operators may ask the leader for."""
        controller = GroupController(self._coordination, self._groups, self._clock)
        self._placement_requests = PlacementRequests(self._coordination, lambda: self._member.placement).answers
        controller.answers.update(self._placement_requests)
        controller.answers[NODE_STATES] = NodeStates(self._coordination, lambda: self._member.placement).tell
        controller.answers[RAISE_LEVEL] = partial(raise_level, self._coordination)
        return controller

    def _open_storage(self) -> BlobStorage:
        """The storage, which confirms tablets of this node until the broker has given its last answer."""
        storage = BlobStorage(clock=self._clock, random=self._random)
        storage.confirmations = Confirmations(storage.proxy)
        self._closing.push_async_callback(storage.close)
        confirming = asyncio.create_task(storage.confirmations.run(), name="cluster-confirm")
        self._closing.push_async_callback(cancel_tasks, [confirming])
        return storage

    def _observe_standby(self) -> Observatory:
        """What is measured of this node while it runs no broker."""
        observatory = Observatory(clock=self._clock)
        observatory.role = STANDBY
        observatory.interconnect = self._interconnect
        observatory.standby_trouble = self._trouble
        observatory.watch_loop()
        self._closing.push_async_callback(observatory.stop_watching_loop)
        return observatory

    async def _follow(self) -> None:
        """Do what a change of any key asks for, and look now and then all the same."""
        while True:
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            self._peers.follow()
            await self._groups.follow()
            try:
                await self._check_replaced()
                await self._update_member()
            except PenstockError as error:
                log.debug("this node could not tell about itself: %s", error)

    async def _check_replaced(self) -> None:
        own = [member for member in self._coordination.members() if member.node_id == self.layout.node_id]
        if own and own[0].directory_id != self._record.directory_id and not self._role.failure.done():
            self._role.failure.set_exception(
                DuplicateMemberError(f"node {own[0].node_id} was replaced by {own[0].name}; this process stops")
            )

    async def _update_member(self) -> None:
        disks = await asyncio.to_thread(self._disks.states)
        record = msgspec.structs.replace(self._record, configurations=self._groups.configurations(), disks=disks)
        if record != self._record:
            self._record = record
            await self._coordination.update_member(record)

    async def _keep_marks(self) -> None:
        try:
            while True:
                await self._keep_mark()
                await asyncio.sleep(MARK_S)
        finally:
            await self._keep_mark()  # ids of new groups depend on how often etcd was rebuilt

    async def _keep_mark(self) -> None:
        """Keep what this node has seen of etcd on its disks."""
        mark, level = self._coordination.mark, self._coordination.identity.feature_level
        if mark != self._kept_mark and self._coordination.status.is_usable:
            try:
                await asyncio.to_thread(self._directory.keep_mark, mark, level, group_ids(self._coordination))
                self._kept_mark = mark
            except PenstockError as error:
                log.warning("what this node saw of etcd cannot be kept, trying again: %s", error)

    # The broker.

    def _can_start(self) -> bool:
        membership = self._groups.memberships.get(system_group(self._coordination))
        return membership is not None and membership.configuration.is_formed

    async def _start_broker(self, on_fenced: Callable[[], None]) -> BrokerHost:
        config, coordination = self.config, self._coordination
        await coordination.take_system_tablets()
        options = replace(self._options, on_fenced=on_fenced)
        options = replace(options, must_exist=coordination.has_started and not config.accept_data_loss)
        observatory = Observatory(clock=self._clock)
        observatory.role = "active"
        observatory.interconnect = self._interconnect
        observatory.disk_troubles = self._groups.troubles
        observatory.cluster_troubles = self._cluster_troubles
        observatory.placement = lambda: self._member.placement
        observatory.watch_loop()
        host = BrokerHost(
            config,
            self.layout,
            observatory,
            self._mount_console,
            ports=self._ports,
            release=self._standby.release,
            cluster=self._member.administration(self._placement_requests),
            forward_secret=self._secret,
            started_ms=self._record.started_ms,
        )
        host.closing.push_async_callback(observatory.stop_watching_loop)
        tracing = start_tracing(config.otel_endpoint, node_id=self.layout.node_id, cluster=config.cluster_name)
        if tracing is not None:
            observatory.trace(tracing)
            host.closing.push_async_callback(asyncio.to_thread, tracing.stop)
        await self._member.lead(host, options, coordination.note_started)
        self.listeners.update(host.listeners)
        return host

    async def _broker_options(self) -> BrokerOptions:
        options = broker_options(self.config, system_group(self._coordination))
        self._secret = await self._directory.shared_secret(self._coordination, self._random)
        if options.security is not None:
            options = replace(options, security=replace(options.security, secret=self._secret))
        return options

    # A standby.

    async def _stand_by(self) -> None:
        """Follow the node that leads, and listen as a standby."""
        await self._member.follow(self._observatory)
        self.listeners.update(await self._standby.start())
        if "http" in self.listeners:
            self.config = replace(self.config, http_port=self.listeners["http"].port)

    def _new_http(self, port: HttpPort, forwarder: HttpForwarder) -> HttpListener:
        from penstock.server.cluster.standby_http import StandbyHttp

        config = self.config
        return StandbyHttp(
            port,
            self._readiness,
            forwarder,
            advertised_host=advertised_host(config),
            broker=lambda: self._member.broker,
            observatory=self._observatory,
            mount=partial(mount_standby_registry, config=config, member=self._member, clock=self._clock),
            tls=tls_context(config),
        )

    def _serving(self, listener: str) -> ServingNode:
        """The node that serves the clients of a listener."""
        return serving_node(self._coordination, self._role.active_node, self.layout.node_id, listener)

    async def _close_standby(self) -> None:
        await self._standby.stop()
        await self._ports.close()

    def _trouble(self) -> list[str]:
        """Why this node is not ready, as a standby."""
        reasons = self._groups.troubles()
        if self._peers.is_alone:
            reasons += self._peers.troubles()
        if not self._groups.memberships:
            reasons.append(self._controller.waiting_for or "the cluster has no storage group yet")
        return reasons

    def _readiness(self) -> dict[str, Any]:
        reasons = self._trouble()
        status = "not ready" if reasons else "ready"
        return {
            "status": status,
            "role": STANDBY,
            "node": self.layout.node_id,
            "active_node": self._role.active_node,
            "reasons": reasons,
            "warnings": [trouble.message for trouble in self._cluster_troubles()],
        }

    def _cluster_troubles(self) -> list[ClusterTrouble]:
        return cluster_troubles(self._coordination, self._peers, self._groups, self._member.placement)


def _highest_id(coordination: Coordination) -> int:
    """The highest node id that is in use, also by nodes that a rebuilt store does not know."""
    seats = (seat for entry in coordination.groups().values() for seat in Configuration.unpack(entry.value).seats)
    return max((0, *(seat.node for seat in seats), *(member.node_id for member in coordination.members())))


def _check_fixed_ports(config: NodeConfig) -> None:
    for name in ("kafka_port", "kafka_tls_port"):
        if getattr(config, name) == 0:
            raise BadSettingError(f"{name} is 0; a node of a cluster needs a fixed port, which other nodes tell clients")


async def _open(coordination: Coordination, directory: ClusterDirectory) -> ClusterIdentity:
    """Open the store, and wait for it for as long as it is away."""
    mark = await asyncio.to_thread(directory.mark)
    while True:
        try:
            return await coordination.open(mark)
        except CoordinationUnavailableError as error:
            log.warning("waiting for etcd: %s", error)
            await asyncio.sleep(RETRY_S)
