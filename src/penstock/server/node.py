"""One node: storage, broker and gateways, started from the ground up and stopped from the top down."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random, SystemRandom  # noqa: TID251 - ids of payloads and sessions must not be guessed
from ssl import SSLContext
from typing import TYPE_CHECKING, NamedTuple

from penstock.blob import BlobStorage, Disk, GroupConfig, VDiskOptions, open_local_vdisk
from penstock.blob import GroupOptions as StorageGroupOptions
from penstock.broker import Broker, BrokerLimits, BrokerOptions, CompactionOptions
from penstock.broker.groups import ConsumerGroupOptions, GroupOptions
from penstock.broker.streams import StreamEngine, Streams
from penstock.core.clock import SystemClock, boot_time
from penstock.core.errors import ConfigError, DataMissingError
from penstock.gateway.kafka import KafkaGateway, KafkaOptions
from penstock.server.config import NodeConfig
from penstock.server.data_directory import DataDirectory
from penstock.server.errors import (
    BadSettingError,
    DirectoryInUseError,
    DirectoryMismatchError,
    DirectoryUnusableError,
    ListenError,
)
from penstock.server.listener_checks import ListenerChecks
from penstock.server.metrics import Observatory, Sources
from penstock.server.security import peer_token, security_of, tls_context
from penstock.server.stream_listeners import listen_streams
from penstock.server.tracing import start_tracing

if TYPE_CHECKING:
    from aiohttp import web

    from penstock.server.http import HttpListener, NodeContext, ReadersOf

log = logging.getLogger(__name__)

GROUP = 0
_ANY_ADDRESS = ("0.0.0.0", "::", "")


class Listener(NamedTuple):
    """Where a gateway is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Node:
    """A running node. Create it with `start`; `stop` waits for requests in flight, then closes everything."""

    def __init__(self, config: NodeConfig, directory: DataDirectory) -> None:
        self.config = config
        self.layout = directory.layout
        self.data_dir = directory.path
        self.listeners: dict[str, Listener] = {}
        self.observatory = Observatory(clock=SystemClock())
        self._http: HttpListener | None = None
        self._ydb_readers_of: ReadersOf | None = None
        self._closing = AsyncExitStack()

    @classmethod
    async def start(cls, config: NodeConfig, mount_console: Callable[[web.Application], None] | None = None) -> Node:
        """Lock the data directory, open the storage, start the broker and listen. Raises ConfigError with what to change if it
        cannot. The console is a layer above: `mount_console` mounts it beside the admin API."""
        # gRPC's core writes a line for every malformed call to standard error, bypassing our log and its limit.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        random = SystemRandom()
        options, tls = _broker_options(config), tls_context(config)
        directory = await asyncio.to_thread(DataDirectory.open, config, random)
        if options.security is not None:
            secret = await asyncio.to_thread(directory.secret, options.security.random)
            options = replace(options, security=replace(options.security, secret=secret))
        node = cls(config, directory)
        node._closing.callback(directory.close)
        node.observatory.watch_loop()
        node._closing.push_async_callback(node.observatory.stop_watching_loop)
        try:
            node._start_tracing()
            storage = await node._open_storage(directory, random)
            options = replace(options, must_exist=directory.layout.started and not config.accept_data_loss)
            broker = await _start_broker(storage, options, random)
            node._closing.push_async_callback(broker.stop)
            await directory.note_started()
            # It starts last and stops just before the broker, so that monitoring can watch the node drain.
            node._closing.push_async_callback(node._stop_http)
            await node._listen(broker, tls)
            await node._listen_ydb(broker, random)
            await node._listen_yt(broker, tls, random)
            streams = await listen_streams(config, broker, node._closing, random)
            for name, port in streams.ports.items():
                node.listeners[name] = Listener(config.host, port)
            for gateway in streams.gateways:
                node.observatory.watch("stream", gateway)
            await node._listen_http(storage, broker, streams.engine, tls, mount_console)
        except BaseException:
            await node._closing.aclose()
            raise
        node.observatory.loop_watch.serve()
        return node

    async def stop(self) -> None:
        """Accepts no more requests, finishes those in flight, then stops the broker and closes the storage."""
        self.observatory.drain()
        await self._closing.aclose()

    async def _open_storage(self, directory: DataDirectory, random: Random) -> BlobStorage:
        layout = self.layout
        durable = self.config.durability == "fsync"

        async def open_vdisk(group: GroupConfig, order: int) -> Disk:
            await asyncio.to_thread(directory.check_disk, order)
            return await _open_disk(group, order, durable=durable, timeout_s=self.config.disk_timeout_s)

        group = GroupConfig(GROUP, layout.erasure, layout.disks)
        vdisk_options = VDiskOptions(accept_loss=self.config.accept_data_loss)
        storage = BlobStorage(
            clock=SystemClock(), random=random, open_vdisk=open_vdisk, options=StorageGroupOptions(vdisk=vdisk_options)
        )
        storage.add_group(group, None if layout.formed else directory.note_formed)
        self._closing.push_async_callback(storage.close)
        try:
            life = await storage.life(GROUP)
        except (DirectoryInUseError, DirectoryUnusableError):
            raise
        except DataMissingError as error:
            raise _data_missing(error, layout.disks) from error
        except ConfigError as error:
            raise DirectoryMismatchError(str(error)) from error
        log.info("storage is open: %s, %d of %d disks", layout.erasure.value, len(life.vdisks), len(layout.disks))
        return storage

    async def _listen(self, broker: Broker, tls: SSLContext | None) -> None:
        config = self.config
        if config.kafka_tls_port is None:
            await self._listen_at("kafka", config.kafka_port, broker, tls)
        else:
            await self._listen_at("kafka", config.kafka_port, broker, None)
            await self._listen_at("kafka_tls", config.kafka_tls_port, broker, tls)

    async def _listen_at(self, name: str, port: int | None, broker: Broker, tls: SSLContext | None) -> None:
        """A listener for Kafka clients, which get its own address in metadata."""
        if port is None:
            return
        config = self.config
        gateway = KafkaGateway(
            broker,
            node_id=self.layout.node_id,
            cluster_id=self.layout.cluster_id,
            host=config.host,
            port=port,
            advertised_host=_advertised_host(config),
            options=KafkaOptions(drain_timeout_s=config.drain_timeout_s),
            tls=tls,
        )
        try:
            await gateway.start()
        except OSError as error:
            raise _cannot_listen(f"{name}_port", config.host, port, error) from error
        self._closing.push_async_callback(gateway.stop)
        self.listeners[name] = Listener(config.host, gateway.port)
        self.observatory.watch("kafka", gateway)

    async def _listen_yt(self, broker: Broker, tls: SSLContext | None, random: Random) -> None:
        config = self.config
        if config.yt_port is None:
            return
        try:
            from penstock.gateway.yt import YtGateway
        except ImportError as error:
            raise BadSettingError(
                f"yt_port is {config.yt_port}, but {error.name} is not installed; install Penstock with its yt extra: "
                f"pip install 'penstock[yt]'"
            ) from error
        gateway = YtGateway(
            broker,
            cluster_name=config.cluster_name,
            host=config.host,
            port=config.yt_port,
            advertised_host=_advertised_host(config),
            peers=config.peer_clusters,
            peer_token=peer_token(config),
            tls=tls,
            drain_timeout_s=config.drain_timeout_s,
            random=random,
        )
        try:
            await gateway.start()
        except OSError as error:
            raise _cannot_listen("yt_port", config.host, config.yt_port, error) from error
        self._closing.push_async_callback(gateway.stop)
        self.listeners["yt"] = Listener(config.host, gateway.port)
        self.observatory.watch("yt", gateway)

    async def _listen_ydb(self, broker: Broker, random: Random) -> None:
        config = self.config
        if config.ydb_port is None:
            return
        try:
            # Only those who want it need what it is made with.
            from penstock.gateway.ydb import YdbGateway
        except ModuleNotFoundError as error:
            raise BadSettingError(
                f"ydb_port is set, but {error.name} is not installed; run: pip install 'penstock[ydb]', or set ydb_port to none"
            ) from error
        tls = None if config.tls_cert is None or config.tls_key is None else (config.tls_cert, config.tls_key)
        gateway = YdbGateway(
            broker,
            node_id=self.layout.node_id,
            host=config.host,
            port=config.ydb_port,
            advertised_host=_advertised_host(config),
            drain_timeout_s=config.drain_timeout_s,
            random=random,
            tls=tls,
        )
        try:
            await gateway.start()
        except OSError as error:
            raise _cannot_listen("ydb_port", config.host, config.ydb_port, error) from error
        self._closing.push_async_callback(gateway.stop)
        self.listeners["ydb"] = Listener(config.host, gateway.port)
        self._ydb_readers_of = gateway.readers_of
        self.observatory.watch("ydb", gateway)

    async def _listen_http(
        self,
        storage: BlobStorage,
        broker: Broker,
        streams: StreamEngine | None,
        tls: SSLContext | None,
        mount_console: Callable[[web.Application], None] | None,
    ) -> None:
        """Start the HTTP listener, last, so that it can show all the others."""
        config = self.config
        if config.http_port is None:
            return
        # It takes a while to import, and not every node listens.
        from penstock.server.http import HttpListener
        from penstock.server.metrics.pipeline_reports import PipelineReports
        from penstock.server.metrics.routes import add_routes

        context = self._node_context(storage, broker, streams)
        listener = HttpListener(
            context,
            host=config.host,
            port=config.http_port,
            advertised_host=_advertised_host(config),
            mounts=(partial(add_routes, observatory=self.observatory), *(() if mount_console is None else (mount_console,))),
            tls=tls,
        )
        try:
            await listener.start()
        except OSError as error:
            raise _cannot_listen("http_port", config.host, config.http_port, error) from error
        self._http = listener
        self.listeners["http"] = Listener(config.host, listener.port)
        self.observatory.count_connections = listener.connections
        life = await storage.life(GROUP)
        sources = Sources(broker, life, self.listeners, _expected_listeners(config), PipelineReports(context).read)
        sources.streams = streams if isinstance(streams, Streams) else None
        sources.checks = ListenerChecks(self.listeners, _encrypted_listeners(config), broker.clock.monotonic)
        self.observatory.serve(sources)

    def _node_context(self, storage: BlobStorage, broker: Broker, streams: StreamEngine | None) -> NodeContext:
        """The node as the HTTP listener sees it."""
        from penstock.server.http import Figures, NodeContext

        clock = broker.clock
        return NodeContext(
            config=self.config,
            cluster_id=self.layout.cluster_id,
            node_id=self.layout.node_id,
            erasure=self.layout.erasure.value,
            broker=broker,
            storage=storage,
            streams=streams,
            listeners=self.listeners,
            clock=clock,
            started_ms=int(clock.wall() * 1000),
            figures=Figures(broker, clock),
            observatory=self.observatory,
            readers_of=self._ydb_readers_of,
        )

    def _start_tracing(self) -> None:
        config = self.config
        tracing = start_tracing(config.otel_endpoint, node_id=self.layout.node_id, cluster=config.cluster_name)
        if tracing is not None:
            self.observatory.trace(tracing)
            self._closing.push_async_callback(asyncio.to_thread, tracing.stop)

    async def _stop_http(self) -> None:
        if self._http is not None:
            await self._http.stop()
        await self.observatory.stop()


async def _open_disk(group: GroupConfig, order: int, *, durable: bool, timeout_s: float) -> Disk:
    try:
        return await open_local_vdisk(group, order, durable=durable, timeout_s=timeout_s)
    except ConfigError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise DirectoryInUseError(str(error)) from error
        raise DirectoryUnusableError(str(error)) from error


async def _start_broker(storage: BlobStorage, options: BrokerOptions, random: Random) -> Broker:
    try:
        return await Broker.start(storage, options, clock=SystemClock(), random=random)
    except DataMissingError as error:
        raise _data_missing(error, storage.groups()[0].disks) from error


def _data_missing(error: DataMissingError, disks: Sequence[Path]) -> DirectoryMismatchError:
    names = ", ".join(map(str, disks[:3]))
    return DirectoryMismatchError(f"data is missing from {names}: {error}, with --accept-data-loss true")


def _broker_options(config: NodeConfig) -> BrokerOptions:
    return BrokerOptions(
        group=GROUP,
        auto_create_topics=config.auto_create_topics,
        default_partitions=config.default_partitions,
        limits=BrokerLimits(
            topic_partitions=config.topic_partitions_max,
            partitions=config.partitions_max,
            groups=config.groups_max,
            yt_nodes=config.yt_nodes_max,
            yt_transactions=config.yt_transactions_max,
        ),
        cache_bytes=config.cache_bytes,
        retention_interval_s=config.retention_interval_s,
        elapsed=boot_time,
        give_up_tablets=frozenset(config.give_up_tablets or ()),
        compaction=CompactionOptions(config.compaction_interval_s, config.compaction_map_bytes),
        produce_bytes_per_s=config.produce_bytes_per_s,
        fetch_bytes_per_s=config.fetch_bytes_per_s,
        groups=GroupOptions(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            members_max=config.group_members_max,
            session_timeout_ms_min=config.group_session_timeout_min_ms,
            session_timeout_ms_max=config.group_session_timeout_max_ms,
            offsets_retention_s=config.offsets_retention_minutes * 60.0,
        ),
        security=security_of(config),
        cluster_name=config.cluster_name,
        rules_for_anonymous=config.allow_without_rule and not config.sasl,
        consumer_groups=ConsumerGroupOptions(
            session_timeout_ms=int(config.consumer_session_timeout_s * 1000),
            heartbeat_interval_ms=max(int(config.consumer_heartbeat_interval_s * 1000), 1),
            members_max=config.group_members_max or ConsumerGroupOptions().members_max,
        ),
    )


def _encrypted_listeners(config: NodeConfig) -> frozenset[str]:
    """The listeners with TLS."""
    if config.tls_cert is None:
        return frozenset()
    return _expected_listeners(config) - (frozenset() if config.kafka_tls_port is None else {"kafka"})


def _expected_listeners(config: NodeConfig) -> frozenset[str]:
    names = ("kafka", "kafka_tls", "http", "yt", "ydb", "stream", "stream_http")
    return frozenset(name for name in names if getattr(config, f"{name}_port") is not None)


def _advertised_host(config: NodeConfig) -> str:
    if config.advertised_host is not None:
        return config.advertised_host
    return socket.gethostname() if config.host in _ANY_ADDRESS else config.host


def _cannot_listen(key: str, host: str, port: int, error: OSError) -> ListenError:
    option = "--" + key.replace("_", "-")
    reason = error.strerror or str(error)
    where = Listener(host, port)
    return ListenError(f"cannot listen on {where}: {reason}; choose another --host or {option} (0 picks a free one)")
