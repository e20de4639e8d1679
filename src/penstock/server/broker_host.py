"""The broker of a node with all its listeners, started together on a storage that is open, and stopped together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from random import Random
from ssl import SSLContext
from typing import TYPE_CHECKING

from penstock.blob import BlobStorage
from penstock.broker import Broker, BrokerLimits, BrokerOptions, CompactionOptions, LedNodes, Tablets
from penstock.broker.groups import ConsumerGroupOptions, GroupOptions
from penstock.broker.schema_registry import OwnSchemaPartition, SchemaRegistry, TopicIds
from penstock.broker.streams import StreamEngine, Streams
from penstock.core.clock import SystemClock, boot_time
from penstock.gateway.kafka import ClusterView, KafkaGateway
from penstock.server.config import NodeConfig
from penstock.server.disk_marks import NodeLayout
from penstock.server.errors import BadSettingError
from penstock.server.kafka_listeners import KafkaListeners
from penstock.server.listener import Listener, advertised_host, cannot_listen
from penstock.server.listener_checks import ListenerChecks
from penstock.server.metrics import Observatory, Sources
from penstock.server.node_ports import NodePorts
from penstock.server.pipelines import DeploymentKeeper
from penstock.server.schema_registry import listen_schemas, mount_registry
from penstock.server.security import peer_token, security_of, tls_context
from penstock.server.stream_listeners import listen_streams

if TYPE_CHECKING:
    from aiohttp import web

    from penstock.server.cluster.administration import ClusterAdministration
    from penstock.server.http import HttpListener, NodeContext, ReadersOf

MountConsole = Callable[["web.Application"], None]


class BrokerHost:
    """A broker and its gateways. `stop` finishes the requests in flight first."""

    def __init__(
        self,
        config: NodeConfig,
        layout: NodeLayout,
        observatory: Observatory,
        mount_console: MountConsole | None = None,
        *,
        view: ClusterView | None = None,
        ports: NodePorts | None = None,
        release: Callable[[str], Awaitable[None]] | None = None,
        cluster: ClusterAdministration | None = None,
        forward_secret: bytes | None = None,
        started_ms: int | None = None,
    ) -> None:
        self.config = config
        self.layout = layout
        self.observatory = observatory
        self.listeners: dict[str, Listener] = {}
        self.broker: Broker | None = None
        self.kafka: KafkaListeners | None = None  # None: this host has its own; otherwise they outlive it
        self.on_stop: Callable[[], Awaitable[None]] | None = None  # called before anything stops
        self._group = 0
        self._mount_console = mount_console
        self.view = view  # of the other nodes for Kafka clients; None: there are none
        self._has_own_ports = ports is None  # otherwise they outlive this host
        self._ports = ports or NodePorts(config)
        self._release = release  # called with the name of a listener when its port is needed
        self._cluster = cluster  # None: there are no other nodes
        self._forward_secret = forward_secret
        self._started_ms = started_ms  # when the node started; None: with this host
        self._http: HttpListener | None = None
        self._deployments: DeploymentKeeper | None = None
        self._ydb_readers_of: ReadersOf | None = None
        self.closing = AsyncExitStack()  # what is stopped after the broker may be put in before it starts

    async def start(
        self,
        storage: BlobStorage,
        options: BrokerOptions,
        random: Random,
        on_started: Callable[[], Awaitable[None]],
        *,
        tablets: Tablets | None = None,
        led_nodes: LedNodes | None = None,
        registry: SchemaRegistry | None = None,
    ) -> None:
        """Start the broker, then listen. `on_started` is called in between: from then on the broker's tablets exist. What was
        started is stopped again if anything fails. The schema registry is that of a cluster, or one on this broker alone."""
        config, tls = self.config, tls_context(self.config)
        self._group, is_alone = options.group, registry is None
        try:
            self.broker = broker = await Broker.start(
                storage, options, clock=SystemClock(), random=random, tablets=tablets, led_nodes=led_nodes
            )
            self.closing.push_async_callback(broker.stop)
            registry = registry or SchemaRegistry(OwnSchemaPartition(broker))
            broker.intake.schema_ids = TopicIds(registry)
            await on_started()
            # It starts last and stops just before the broker, so that monitoring can watch the node drain.
            self.closing.push_async_callback(self._stop_http)
            if self._has_own_ports:
                self.closing.push_async_callback(self._ports.close)
            await self._listen_kafka(broker)
            await self._listen_ydb(broker, random)
            await self._listen_yt(broker, registry, tls, random)
            streams = await self._listen_streams(broker, random)
            if is_alone and (schemas := await listen_schemas(config, registry, lambda: broker, broker.clock, self.closing)):
                self.listeners["schema_registry"] = schemas
            self._deployments = deployments = self._make_deployments(broker, random)
            await self._listen_http(storage, broker, registry, streams, tls)
            self.closing.push_async_callback(deployments.stop)
            deployments.start()
            if self._has_own_ports:
                await self._ports.close()  # together with the listeners, which are the last ones
        except BaseException:
            await self._close()
            raise
        self.observatory.loop_watch.serve()

    async def stop(self) -> None:
        """Accept no more requests, finish those in flight, then stop the broker."""
        self.observatory.drain()
        await self._close()

    async def _close(self) -> None:
        try:
            if self.on_stop is not None:
                await self.on_stop()
        finally:
            await self.closing.aclose()

    @property
    def kafka_gateways(self) -> dict[str, KafkaGateway]:
        """The listeners for Kafka clients, by name."""
        return {} if self.kafka is None else self.kafka.gateways

    async def _listen_kafka(self, broker: Broker) -> None:
        if self.kafka is None:
            self.kafka = KafkaListeners(self.config, self.layout)
            self.closing.push_async_callback(self.kafka.stop)
            view, others = self.view, self.advertised_listeners
            await self.kafka.serve(broker, observatory=self.observatory, view=view, other_listeners=others)
        for name, gateway in self.kafka.gateways.items():
            self.listeners[name] = Listener(self.config.host, gateway.port)

    def advertised_listeners(self) -> dict[str, str]:
        """The addresses of the listeners that commands use beside Kafka's."""
        host, scheme = advertised_host(self.config), "http" if self.config.tls_cert is None else "https"
        host = f"[{host}]" if ":" in host else host
        forms = {"http": f"{scheme}://{host}", "stream": host}
        return {name: f"{form}:{self.listeners[name].port}" for name, form in forms.items() if name in self.listeners}

    async def _listen_yt(self, broker: Broker, registry: SchemaRegistry, tls: SSLContext | None, random: Random) -> None:
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
            port=self._ports.http("yt_port"),
            advertised_host=advertised_host(config),
            peers=config.peer_clusters,
            peer_token=peer_token(config),
            tls=tls,
            drain_timeout_s=config.drain_timeout_s,
            random=random,
            registry=registry,
            forward_secret=self._forward_secret,
        )
        await self._take_port("yt")
        try:
            await gateway.start()
        except OSError as error:
            raise cannot_listen("yt_port", config.host, config.yt_port, error) from error
        self.closing.push_async_callback(gateway.stop)
        self.listeners["yt"] = Listener(config.host, gateway.port)
        self.observatory.watch("yt", gateway)

    async def _listen_ydb(self, broker: Broker, random: Random) -> None:
        config = self.config
        if config.ydb_port is None:
            return
        server = self._ports.ydb()
        from penstock.gateway.ydb import YdbGateway

        gateway = YdbGateway(
            broker,
            server=server,
            node_id=self.layout.node_id,
            advertised_host=advertised_host(config),
            drain_timeout_s=config.drain_timeout_s,
            random=random,
            has_tls=config.tls_cert is not None,
        )
        await self._take_port("ydb")
        try:
            await gateway.start()
        except OSError as error:
            raise cannot_listen("ydb_port", config.host, config.ydb_port, error) from error
        self.closing.push_async_callback(gateway.stop)
        self.listeners["ydb"] = Listener(config.host, gateway.port)
        self._ydb_readers_of = gateway.readers_of
        self.observatory.watch("ydb", gateway)

    async def _listen_streams(self, broker: Broker, random: Random) -> StreamEngine | None:
        for name in ("stream", "stream_http"):
            await self._take_port(name)
        streams = await listen_streams(
            self.config, broker, self._ports, self.closing, random=random, forward_secret=self._forward_secret
        )
        for name, port in streams.ports.items():
            self.listeners[name] = Listener(self.config.host, port)
        for gateway in streams.gateways:
            self.observatory.watch("stream", gateway)
        return streams.engine

    async def _listen_http(
        self,
        storage: BlobStorage,
        broker: Broker,
        registry: SchemaRegistry,
        streams: StreamEngine | None,
        tls: SSLContext | None,
    ) -> None:
        """Start the HTTP listener, last, so that it can show all the others."""
        config = self.config
        if config.http_port is None:
            return
        # It takes a while to import, and not every node listens.
        from penstock.server.http import HttpListener
        from penstock.server.metrics.disk_damage import disk_damage
        from penstock.server.metrics.pipeline_reports import PipelineReports
        from penstock.server.metrics.routes import add_routes

        context = self._node_context(storage, broker, registry, streams)
        port = self._ports.http("http_port")
        listener = HttpListener(
            context,
            port=port,
            advertised_host=advertised_host(config),
            mounts=(
                partial(add_routes, observatory=self.observatory),
                partial(mount_registry, registry=registry, broker=broker),
                *(() if self._mount_console is None else (self._mount_console,)),
            ),
            tls=tls,
        )
        await self._take_port("http")
        try:
            await listener.start()
        except OSError as error:
            raise cannot_listen("http_port", config.host, config.http_port, error) from error
        self._http = listener
        self.listeners["http"] = Listener(config.host, port.port)
        self.observatory.count_connections = listener.connections
        life = await storage.life(self._group)
        sources = Sources(broker, life, self.listeners, _expected_listeners(config), PipelineReports(context).read)
        sources.read_damage = partial(disk_damage, storage, broker)
        sources.streams = streams if isinstance(streams, Streams) else None
        sources.checks = ListenerChecks(self.listeners, _encrypted_listeners(config), broker.clock.monotonic)
        await self.observatory.restore_history(config.data_dir)
        sources.deployments = self._deployments
        self.observatory.serve(sources)

    def _make_deployments(self, broker: Broker, random: Random) -> DeploymentKeeper:
        listener = self.listeners.get("kafka") or self.listeners.get("kafka_tls")

        def brokers() -> str:
            return "" if listener is None else str(Listener(advertised_host(self.config), listener.port))

        return DeploymentKeeper(broker, self.config, brokers, random)

    def _node_context(
        self, storage: BlobStorage, broker: Broker, registry: SchemaRegistry, streams: StreamEngine | None
    ) -> NodeContext:
        """The node as the HTTP listener sees it."""
        from penstock.server.http import Figures, NodeContext

        assert self._deployments is not None
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
            started_ms=int(clock.wall() * 1000) if self._started_ms is None else self._started_ms,
            figures=Figures(broker, clock),
            observatory=self.observatory,
            deployments=self._deployments,
            cluster=self._cluster,
            view=self.view,
            forward_secret=self._forward_secret,
            schemas=registry,
            readers_of=self._ydb_readers_of,
        )

    async def _take_port(self, name: str) -> None:
        if self._release is not None:
            await self._release(name)

    async def _stop_http(self) -> None:
        if self._http is not None:
            await self._http.stop()
        await self.observatory.stop()


def listener_modules(config: NodeConfig) -> list[str]:
    """What the listeners of a node import when they start."""
    needed = {
        "penstock.server.http": config.http_port,
        "penstock.server.metrics.pipeline_reports": config.http_port,
        "penstock.server.metrics.routes": config.http_port,
        "penstock.gateway.yt": config.yt_port,
        "penstock.gateway.ydb": config.ydb_port,
        "penstock.gateway.stream": config.stream_http_port if config.stream_port is None else config.stream_port,
        "penstock.gateway.schema_registry": config.http_port or config.schema_registry_port,
    }
    return [module for module, port in needed.items() if port is not None]


def import_listeners(modules: Sequence[str]) -> None:
    """Import the code of listeners in advance, so that a standby node starts them at once. A missing package is reported when
    it is needed."""
    for module in modules:
        with suppress(ImportError):
            import_module(module)


def broker_options(config: NodeConfig, group: int) -> BrokerOptions:
    """The options of the broker that the settings of a node describe."""
    return BrokerOptions(
        group=group,
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
    names = ("kafka", "kafka_tls", "http", "yt", "ydb", "stream", "stream_http", "schema_registry")
    return frozenset(name for name in names if getattr(config, f"{name}_port") is not None)
