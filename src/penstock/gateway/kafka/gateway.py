"""The Kafka listener: accepts connections, applies their timeouts, and drains them when it stops."""

from __future__ import annotations

import asyncio
import logging
from ssl import SSLContext

from penstock.broker import PartitionBroker
from penstock.core.clock import Clock, SystemClock
from penstock.gateway.kafka.cluster_view import ClusterView, ForwardedReply, ForwardedRequest
from penstock.gateway.kafka.connection import Connection
from penstock.gateway.kafka.forwarded import serve_forwarded
from penstock.gateway.kafka.node import Node, OtherListeners
from penstock.gateway.kafka.options import KafkaOptions
from penstock.gateway.kafka.probe import KafkaProbe

log = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 0.5
TLS_END_S = 1.0  # how long a client has to confirm the end of its connection; an idle one may not read, and never does
BACKLOG = 1024


class KafkaGateway:
    """Serves Kafka clients on one address. `port` 0 picks a free one; clients get the advertised address."""

    def __init__(
        self,
        broker: PartitionBroker,
        *,
        node_id: int,
        cluster_id: str,
        host: str,
        port: int,
        advertised_host: str | None = None,
        advertised_port: int | None = None,
        options: KafkaOptions | None = None,
        clock: Clock | None = None,
        tls: SSLContext | None = None,
        view: ClusterView | None = None,
        listener: str = "kafka",
        other_listeners: OtherListeners | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._advertised_port = advertised_port
        self._tls = tls
        self._node = Node(
            broker,
            node_id=node_id,
            cluster_id=cluster_id,
            address=(advertised_host or host, advertised_port or port),
            options=options or KafkaOptions(),
            clock=clock or SystemClock(),
            is_encrypted=tls is not None,
            view=view,
            listener=listener,
            other_listeners=other_listeners,
        )
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._node.connections)

    @property
    def probe(self) -> KafkaProbe:
        """What is counted of its requests."""
        return self._node.probe

    @property
    def memory_used(self) -> int:
        """Bytes of requests in flight and of responses not sent."""
        return self._node.memory.used

    async def serve_forwarded(self, request: ForwardedRequest) -> ForwardedReply:
        """Answers a request of a client of another node. ProtocolError if it is none that is forwarded."""
        return await serve_forwarded(self._node, request)

    def serve(self, broker: PartitionBroker, view: ClusterView | None, other_listeners: OtherListeners | None = None) -> None:
        """Serves clients from another broker on the same tablets from now on; they stay connected. Those that are signing in
        connect again, since their exchange is with the users of the broker before."""
        self._node.serve(broker, view, other_listeners)
        for connection in list(self._node.connections):
            if connection.sasl is not None:
                connection.finish("the users are those of another broker now")

    async def start(self) -> None:
        """Starts to listen. Raises OSError if the address is in use or not local."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._node),
            self._host,
            self._port,
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_shutdown_timeout=None if self._tls is None else TLS_END_S,
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self._node.port = self._advertised_port or self._port
        self._sweeper = asyncio.create_task(self._sweep(), name="kafka-sweep")

    async def stop(self) -> None:
        """Accepts nothing more, answers requests in flight within `drain_timeout_s`, and closes every connection."""
        if self._server is not None:
            self._server.close()
        try:
            async with asyncio.timeout(self._node.options.drain_timeout_s):
                await self._drain()
        except TimeoutError:
            log.warning("%d clients were not answered in time; closing their connections", self.connections)
        finally:
            for connection in list(self._node.connections):
                connection.abort("the node stops")
            for task in list(self._node.tasks):
                task.cancel()
            if self._sweeper is not None:
                self._sweeper.cancel()

    async def _drain(self) -> None:
        connections = list(self._node.connections)
        for connection in connections:
            connection.finish("the node stops")
        # Joins and syncs may wait for longer than the drain timeout.
        self._node.release_waiting()
        for connection in connections:
            await asyncio.shield(connection.closed)
        while self._node.tasks:
            await asyncio.wait(self._node.tasks)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            now = self._node.clock.monotonic()
            for connection in list(self._node.connections):
                connection.sweep(now)
