"""A worker: a node with a storage group of its own, in one cluster with the other workers of its machine. Worker 1 leads."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import uuid
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom  # noqa: TID251 - ids of payloads and sessions must not be guessed
from typing import Final

from penstock import __version__
from penstock.blob import BlobStorage
from penstock.coordination import Coordination, MemberRecord, SocketStore
from penstock.core.clock import SystemClock, boot_time
from penstock.interconnect import Interconnect, NodeIdentity, SocketNetwork
from penstock.server.broker_host import BrokerHost, Listener, MountConsole, advertised_host, broker_options
from penstock.server.cluster.peers import ADDRESS, Peers
from penstock.server.data_directory import DataDirectory, node_secret
from penstock.server.local_storage import open_storage, start_errors
from penstock.server.metrics import Observatory
from penstock.server.security import tls_context
from penstock.server.supervisor.worker_config import COORDINATION_SOCKET, socket_directory
from penstock.server.supervisor.worker_order import WorkerOrder

log = logging.getLogger(__name__)

FEATURE_LEVEL: Final = 1
FIRST_WORKER: Final = 1


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
        await coordination.register(self._member(address))
        coordination.listen(lambda _: self._peers.follow())
        self._peers.follow()

    def _member(self, address: str) -> MemberRecord:
        config, host = self.config, advertised_host(self.config)
        ports = {name: getattr(config, f"{name}_port") for name in ("kafka", "kafka_tls", "http", "yt", "ydb")}
        return MemberRecord(
            node_id=self._order.node_id,
            name=f"worker{self._order.worker}",
            directory_id=str(self._order.node_id),
            instance_id=str(uuid.UUID(bytes=self._random.randbytes(16), version=4)),
            addresses={ADDRESS: address, **{name: str(Listener(host, port)) for name, port in ports.items() if port}},
            rack=config.rack or "",
            version=__version__,
            feature_level_max=FEATURE_LEVEL,
            disks={"disk0": ""},
        )

    async def _serve(self, storage: BlobStorage) -> None:
        if self._order.worker != FIRST_WORKER:
            return
        self._coordination.campaign()
        config, directory = self.config, self._directory
        options = broker_options(config, self._order.group)
        must_exist = directory.layout.started and not config.accept_data_loss
        options = replace(options, must_exist=must_exist, storage_groups=frozenset(self._order.groups.values()))
        if options.security is not None:
            secret = await asyncio.to_thread(node_secret, Path(self._order.data_dir), options.security.random)
            options = replace(options, security=replace(options.security, secret=secret))
        observatory = Observatory(clock=self._clock)
        observatory.watch_loop()
        host = BrokerHost(config, self.layout, observatory, self._mount_console)
        host.closing.push_async_callback(observatory.stop_watching_loop)
        with start_errors(directory.layout.disks):
            await host.start(storage, options, self._random, directory.note_started)
        self._closing.push_async_callback(host.stop)
        self.listeners.update(host.listeners)
